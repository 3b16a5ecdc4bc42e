"""What came while away, and what notification_ack moves (D23, D26 to D28; spec, Offline)."""

import json
import threading

import pytest

from tests.conformance.approvals import post, pre
from tests.conformance.bridge import EVENT, Bridge
from tests.conformance.delivery import away, back, nothing_more
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook, new_id, new_session, prompt

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.spec("offline.pending", "offline.replay"),
]

MANY = 3000


@pytest.mark.spec("ws.notification_ack", "delivery.cursor")
def test_what_came_while_away(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: right after connection_ack, no join needed, oldest first, as ordinary messages; D27:
    with the same ids until it is acknowledged, in whatever order, and then never again.
    """
    began = new_session()  # of which the device has never heard
    bridge.accept(prompt(sid, 0))
    away(device)
    bridge.accept(*[prompt(sid, number) for number in range(1, 8)])
    bridge.accept(hook("SessionStart", began), prompt(began, 1))

    def missed() -> list[str]:
        device.close()
        device.connect().auth()
        events = [*device.wait_numbers(sid, range(1, 8)), *device.wait_numbers(began, [None, 1])]
        device.expect("session_started", session_id=began)
        assert device.messages[0]["type"] == "connection_ack"
        assert "replay_buffer" not in {message["type"] for message in device.messages}
        assert device.health_check()["payload"]["ready"] is True
        return [event["id"] for event in events]

    ids = missed()
    assert missed() == ids
    device.ack(*ids[1:7], new_id(), "", ids[0].upper(), ids[6])  # as Swift prints a UUID
    nothing_more(bridge, device.again(), sid, [])


def test_what_waits_and_what_happens_now_do_not_wait_for_what_was_missed(
    bridge: Bridge, sid: str, device: Phone
) -> None:
    """D28: of thousands of rows a client that acknowledges is sent as many as it can take, with
    live ones between them; each session's own are in order.
    """
    bridge.accept(prompt(sid, 0))
    away(device)
    asks = new_session()
    for start in range(1, MANY, 500):
        numbers = range(start, start + 500)
        assert bridge.post_batch([prompt(sid, number) for number in numbers]).status == 200
    bridge.accept(hook("SessionStart", asks), pre(asks, approval=True, tool_call_id="waits"))
    device.close()
    device.ready()
    device.join(sid)
    device.expect("approval_required", tool_call_id="waits")
    assert len(device.events(sid)) < MANY / 4, "what waits came after it"
    device.collect(lambda: bool(device.events(sid)), "the first of them")
    starts = hook("SessionStart", begins := new_session())
    meanwhile = threading.Thread(target=bridge.accept, args=(starts,))
    meanwhile.start()
    began: list[Message] = []
    while not began:  # a slow phone, which has taken one row so far
        device.ack(device.events(sid)[0])
        began = [one for one in device.messages if one["type"] == "session_started"]
        began = [one for one in began if one["payload"]["session_id"] == begins]
    meanwhile.join()
    assert len(device.events(sid)) < MANY / 2, "what happens now came after it"

    def take() -> bool:
        events = device.events(sid)
        if len(events) % 100 == 0:
            device.ack(*events[-100:])
        return len(events) == MANY

    device.collect(take, "all of them")
    device.wait_numbers(sid, range(1, MANY + 1))
    bridge.accept(post(asks, tool_call_id="waits"))


def test_a_session_is_live_once_its_backlog_has_come(bridge: Bridge, device: Phone) -> None:
    """D26: its rows keep their place among others', also where nothing was acknowledged yet."""
    device.ready()
    sessions = [new_session() for _ in range(2)]
    for sid in sessions:
        bridge.accept(prompt(sid, 0), prompt(sid, 1))
    for sid in sessions:
        device.join(sid)
        device.wait_numbers(sid, [0, 1])
    last, other = sessions[-1], new_session()
    bridge.accept(prompt(last, 2), prompt(other, 0))
    device.expect("session_started", session_id=other)
    assert len(device.events(last)) == 3, "it came after what is later"


@pytest.mark.spec("limit.max_message_size_mb")
def test_nine_megabytes_arrive_whole(bridge: Bridge, sid: str, device: Phone) -> None:
    """A message that is hard to send keeps a device from nothing after it (D30)."""
    bridge.accept(prompt(sid, 0))
    away(device)
    texts = ["\U0001f600" * (9 * 2**20 // 4), "\n" * (9 * 2**20 // 2)]
    for number, text in enumerate(texts, 1):
        large = hook("UserPromptSubmit", sid, {"prompt": text, "number": number})
        body = json.dumps(large, ensure_ascii=False).encode()
        assert bridge.https().post(EVENT, token=bridge.hook_token, body=body).status == 200
    bridge.accept(prompt(sid, 3))
    events = back(device, sid, [1, 2, 3])
    assert [event["payload"]["payload"]["prompt"] for event in events[:2]] == texts


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
