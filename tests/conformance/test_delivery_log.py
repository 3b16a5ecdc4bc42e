"""What came while away, and what notification_ack moves (D23, D26 to D28; spec, Offline)."""

import json

import pytest

from tests.conformance.approvals import post, pre
from tests.conformance.bridge import EVENT, Bridge
from tests.conformance.delivery import away, back, nothing_more
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session, prompt

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.spec("offline.pending", "offline.replay"),
]


def test_what_came_while_away(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: right after connection_ack, no join needed, oldest first, as ordinary messages."""
    began = new_session()  # of which the device has never heard
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in range(1, 8)])
    bridge.accept(hook("SessionStart", began), prompt(began, 1))
    device.connect().auth()
    device.wait_numbers(sid, range(1, 8))
    device.wait_numbers(began, [None, 1])
    device.expect("session_started", session_id=began)
    assert device.messages[0]["type"] == "connection_ack"
    assert "replay_buffer" not in {message["type"] for message in device.messages}
    assert device.health_check()["payload"]["ready"] is True


@pytest.mark.parametrize(("character", "size"), [("\U0001f600", 4), ("\n", 2)])
@pytest.mark.spec("limit.max_message_size_mb")
def test_nine_megabytes_arrive_whole(
    bridge: Bridge, sid: str, device: Phone, character: str, size: int
) -> None:
    """A message that is hard to send keeps a device from nothing after it (D30)."""
    bridge.accept(prompt(sid, 0))
    away(device)
    text = character * (9 * 1024 * 1024 // size)
    large = hook("UserPromptSubmit", sid, {"prompt": text, "number": 2})
    body = json.dumps(large, ensure_ascii=False).encode()
    bridge.accept(prompt(sid, 1))
    assert bridge.https().post(EVENT, token=bridge.hook_token, body=body).status == 200
    bridge.accept(prompt(sid, 3))
    events = back(device, sid, [1, 2, 3])
    assert events[1]["payload"]["payload"]["prompt"] == text


def test_a_new_device_starts_at_the_present(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: also when it joins; it hears of no approval, no notification."""
    call = pre(sid, approval=True, tool_call_id="x"), post(sid, tool_call_id="x")
    bridge.accept(prompt(sid, 0), *call, hook("Stop", sid), hook("Notification", sid))
    device.ready().join(sid)
    bridge.accept(prompt(sid, 3))
    device.wait_numbers(sid, [3])
    bridge.fence(device)
    told = {message["type"] for message in device.messages}
    assert not told & {"notification", "approval_required", "tool_call", "tool_result"}


@pytest.mark.spec("ws.notification_ack", "delivery.cursor")
def test_unacknowledged_is_sent_again(bridge: Bridge, sid: str, device: Phone) -> None:
    """D27: with the same id, in order; acknowledged, never again, in whatever order."""
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in (1, 2, 3)])
    first = back(device, sid, [1, 2, 3])
    device.close()
    device.connect().auth()
    second = device.wait_numbers(sid, [1, 2, 3])
    assert [event["id"] for event in first] == [event["id"] for event in second]
    device.ack(second[1])
    device.ack(second[2]["id"], new_id(), "", second[0]["id"], second[2]["id"])
    device.close()
    nothing_more(bridge, device.ready(), sid, [])
