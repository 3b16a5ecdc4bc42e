"""What is pending greets every device that connects (D21, D27, D28)."""

import pytest

from tests.conformance.approvals import (
    ask,
    assert_recorded,
    call_ids,
    decide,
    greeted,
    of,
    pre,
)
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import away
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, prompt

pytestmark = pytest.mark.spec("offline.pending")


def asked(phone: Phone, session_id: str) -> list[str]:
    return [message["id"] for message in of(phone, "approval_required", session_id)]


def test_a_new_device_is_asked(bridge: Bridge, sid: str, joined: Phone, device: Phone) -> None:
    """D28: with the id that the others know; D21: it can decide once the connection is ready."""
    call_id = ask(bridge, joined, sid, {"command": "rm x"}, risk="critical")
    (question,) = of(joined, "approval_required", sid)
    device.connect()
    device.auth()
    greeting = device.expect("approval_required", session_id=sid)
    assert greeting["id"] == question["id"] and greeting["payload"] == question["payload"]
    refused = decide(device, sid, call_id, "approved")
    assert refused["payload"]["code"] == "PROTO_SEQUENCE_ERROR"
    assert device.health_check()["payload"]["ready"] is True
    assert_recorded(decide(device, sid, call_id, "rejected"), sid, call_id, "rejected")


def test_again_on_each_connection(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: also when it was acknowledged, with the same id, until it is decided."""
    bridge.accept(prompt(sid, 0))
    device.ready()
    device.join(sid)
    call_id = ask(bridge, device, sid)
    first = asked(device, sid)
    for _ in range(2):
        device.ack(*device.messages[2:])
        device.close()
        device.ready()
        greeted(bridge, device)
        assert asked(device, sid) == first
    decide(device, sid, call_id, "rejected")
    device.ack(*device.messages[2:])
    device.close()
    device.ready()
    greeted(bridge, device)
    assert asked(device, sid) == []


def test_once_per_connection(bridge: Bridge, sid: str, device: Phone) -> None:
    """D28: the backlog, the greeting and the join bring one question."""
    bridge.accept(prompt(sid, 0))
    away(device)
    with bridge.phones(1) as (late,):
        bridge.accept(
            prompt(sid, 1), pre(sid, approval=True, tool_call_id="x"), hook("Notification", sid)
        )
        greeted(bridge, late)
        assert asked(late, sid) == []
        late.join(sid)
        late.expect("approval_required", session_id=sid)
    device.ready()
    device.join(sid)
    device.join(sid)
    greeted(bridge, device)
    assert call_ids(device, "approval_required", sid) == ["x"]
    bridge.accept(hook("SessionEnd", sid))
