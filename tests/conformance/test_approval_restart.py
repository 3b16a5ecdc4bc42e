"""Approvals survive kill -9, and no passing of time approves anything (D26, D31, D35, D38)."""

from collections.abc import Callable

import pytest

from tests.conformance.approvals import (
    ask,
    assert_recorded,
    assert_refused,
    assert_stands,
    call_ids,
    decide,
    decided,
    decision_of,
    greeted,
    notifications,
    of,
    post,
)
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.samples import hook, new_id, new_session, now
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

HOUR = 3600
LATER = """
import time, time_machine
from bridge_project.kernel.ages import ages
time_machine.travel(time.time() + {seconds}, tick=True).start()
ages.__init__()  # forked: for a clock that is set while it runs nothing ages at once
"""


class Ageing(QuickBridge):
    """A bridge that is started again with its clock set forward."""

    def later(self, seconds: int) -> None:
        self.stop()
        self.first = LATER.format(seconds=seconds)
        self.start()


@pytest.mark.spec("client.repeat")
def test_kill_9(make_bridge: Callable[..., Bridge], sid: str) -> None:
    """D38: what was answered stands; D31: for who repeats it too; D28: the rest is asked again.
    D35: the session stays open. D15: the device stays bound, a revoked one revoked.
    """
    bridge = make_bridge("killed")
    pairing, revoked = bridge.pairing(), bridge.pairing()
    bridge.phone(revoked).ready().close()
    phone = bridge.phone(pairing, device_id="bound").ready()
    bridge.watch(phone, sid)
    left, settled, granted = (ask(bridge, phone, sid, {"command": one}) for one in "abc")
    bridge.accept(post(sid, {"command": "c"}))
    question = of(phone, "approval_required", sid)[0]
    id_, body = new_id(), decision_of(sid, settled, "approved")
    answer = send(phone, "approval_response", id_, body)
    bridge.manage("revoke_device", revoked.name)
    bridge.kill()
    assert phone.wait_closed() == 1006
    bridge.start()
    view = bridge.session(sid)
    assert (view["status"], view["websocket_connected"]) == ("active", False)
    for stranger in (bridge.phone(pairing, device_id="other"), bridge.phone(revoked)):
        assert stranger.connect().auth()["payload"]["code"] == "AUTH_FAILED"
    with bridge.phones(1) as (other,):
        assert_stands(decide(other, sid, settled, "rejected"), "approved", pairing.name)
        assert_stands(decide(other, sid, granted, "rejected"), "approved", "agent")
        greeted(bridge, other)
        (greeting,) = of(other, "approval_required", sid)
        assert (greeting["id"], greeting["payload"]) == (question["id"], question["payload"])
        assert_recorded(decide(other, sid, left, "rejected"), sid, left, "rejected")
    phone.ready()
    again = send(phone, "approval_response", id_, body)
    assert again["type"] == "approval_recorded" and again["payload"] == answer["payload"]
    bridge.fence(phone)
    told = [one["data"]["tool_call_id"] for one in notifications(phone, sid, "approval_decided")]
    assert told.count(settled) <= 1, "not decided again"
    bridge.stop()


@pytest.mark.spec("decision.pending")
def test_no_passing_of_time_approves(make_bridge: Callable[..., Ageing], sid: str) -> None:
    """D38: pending after twenty hours; D34: rejected when the session closes by age."""
    bridge = make_bridge("ageing", kind=Ageing)
    phone = bridge.phone().ready()
    bridge.watch(phone, sid)
    risks = {"a": "low", "b": "low", "c": "critical"}
    calls = [ask(bridge, phone, sid, {"command": one}, risk=risk) for one, risk in risks.items()]
    asked = [message["id"] for message in of(phone, "approval_required", sid)]

    def later(seconds: int) -> None:
        """Let the time pass; the phone has all that waited for it."""
        bridge.later(seconds)
        phone.ready()
        for session_id in (new_session(), new_session()):  # as `greeted`, by the server's clock
            bridge.accept(hook("SessionStart", session_id, timestamp=now(seconds)))
            phone.expect("session_started", session_id=session_id)

    later(20 * HOUR)
    assert sorted(call_ids(phone, "approval_required", sid)) == sorted(calls)
    assert sorted(message["id"] for message in of(phone, "approval_required", sid)) == sorted(asked)
    assert not notifications(phone, sid, "approval_decided")
    assert_recorded(decide(phone, sid, calls[0], "approved"), sid, calls[0], "approved")

    later(72 * HOUR)
    wait_until(lambda: bridge.session(sid)["status"] == "closed")
    phone.collect(lambda: len(decided(phone, sid)) == 2, "both decisions")
    assert decided(phone, sid) == dict.fromkeys(calls[1:], "rejected")
    for call_id in calls[1:]:
        assert_refused(decide(phone, sid, call_id, "modified"), "SESS_CLOSED", False, sid)
    phone.close()
    bridge.stop()
