"""Approvals and time (D26, D31, D34, D35, D38): they survive kill -9, before and after the
decision, and no passing of time approves anything.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.approvals import (
    ask,
    assert_recorded,
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
from tests.conformance.bridge import Bridge, Pairing, eventually
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session, now
from tests.faults.quick import QuickBridge

HOUR = 3600
LATER = """
import time, time_machine
from bridge_project.kernel.ages import ages
time_machine.travel(time.time() + {seconds}, tick=True).start()
ages.__init__()  # forked: for a clock that is set while it runs nothing ages at once
"""


class Killed:
    """Three approvals of one session, one decided, one about to be, one left; then kill -9 right
    behind the decision's answer.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge, self.sid, self.pairing = bridge, new_session(), bridge.pairing()
        self.phone = bridge.phone(self.pairing).ready()
        bridge.watch(self.phone, self.sid)
        self.left, self.decided, self.granted = (
            ask(bridge, self.phone, self.sid, {"command": command}) for command in "abc"
        )
        bridge.accept(post(self.sid, {"command": "c"}))
        self.asked = of(self.phone, "approval_required", self.sid)[0]["id"]
        self.body = decision_of(self.sid, self.decided, "approved")
        self.message_id = new_id()
        self.answer = send(self.phone, "approval_response", self.message_id, self.body)
        bridge.kill()
        assert self.phone.wait_closed() == 1006
        bridge.start()


@pytest.mark.spec("client.repeat")
def test_kill_9(make_bridge: Callable[..., Bridge]) -> None:
    """D38: what was answered stands, and names who decided. D31: a client that has not seen the
    answer repeats its message on another connection, to another process: the same answer. D28,
    D35: what is pending greets with the same id, and can be decided; a start approves nothing.
    """
    killed = Killed(make_bridge("killed"))
    bridge, sid, name = killed.bridge, killed.sid, killed.pairing.name
    with bridge.phones(1) as (phone,):
        assert_stands(decide(phone, sid, killed.decided, "rejected"), "approved", name)
        assert_stands(decide(phone, sid, killed.granted, "rejected"), "approved", "agent")
        greeted(bridge, phone)
        (greeting,) = of(phone, "approval_required", sid)
        assert (greeting["id"], greeting["payload"]["tool_call_id"]) == (killed.asked, killed.left)
        assert_recorded(decide(phone, sid, killed.left, "rejected"), sid, killed.left, "rejected")
    phone = bridge.phone(killed.pairing).ready()
    again = send(phone, "approval_response", killed.message_id, killed.body)
    assert again["type"] == "approval_recorded" and again["payload"] == killed.answer["payload"]
    bridge.fence(phone)
    told = [one["data"] for one in notifications(phone, sid, "approval_decided")]
    about = [one for one in told if one["tool_call_id"] == killed.decided]
    assert len(about) <= 1, "not decided again"
    bridge.stop()


class Ageing(QuickBridge):
    """A bridge that is started again with its clock set forward."""

    seconds = 0

    def later(self, seconds: int) -> None:
        self.stop()
        self.seconds, self.first = seconds, LATER.format(seconds=seconds)
        self.start()

    def connected(self, pairing: Pairing) -> Phone:
        """That device's phone, ready, with all that waited for it; a clock that is hours off is a
        warning and nothing else (D25).
        """
        phone = self.phone(pairing).ready()
        for session_id in (new_session(), new_session()):  # as `greeted`, by the server's clock
            self.accept(hook("SessionStart", session_id, timestamp=now(self.seconds)))
            phone.expect("session_started", session_id=session_id)
        return phone


@pytest.mark.spec("decision.pending")
def test_no_passing_of_time_approves(make_bridge: Callable[..., Bridge]) -> None:
    """D38: nothing is ever approved by a timeout, nor by an orderly stop (D35): after twenty hours
    it is still pending and can be decided; D34: the session closes by age: rejected.
    """
    bridge = make_bridge("ageing", kind=Ageing)
    assert isinstance(bridge, Ageing)
    sid, pairing = new_session(), bridge.pairing()
    phone = bridge.phone(pairing).ready()
    bridge.watch(phone, sid)
    calls = [
        ask(bridge, phone, sid, {"command": command}, risk=risk)
        for command, risk in (("a", "low"), ("b", "low"), ("c", "critical"))
    ]
    asked = [message["id"] for message in of(phone, "approval_required", sid)]
    phone.close()

    bridge.later(20 * HOUR)
    phone = bridge.connected(pairing)
    assert sorted(call_ids(phone, "approval_required", sid)) == sorted(calls)
    assert sorted(message["id"] for message in of(phone, "approval_required", sid)) == sorted(asked)
    assert not notifications(phone, sid, "approval_decided")
    assert_recorded(decide(phone, sid, calls[0], "approved"), sid, calls[0], "approved")
    phone.close()

    bridge.later(72 * HOUR)
    eventually(lambda: bridge.session(sid)["status"] == "closed")
    phone = bridge.connected(pairing)
    assert "approved" not in [decided(phone, sid).get(call_id) for call_id in calls[1:]]
    for call_id in calls[1:]:
        answer = decide(phone, sid, call_id, "modified")
        assert (
            answer["type"] == "error"
            and answer["payload"].get("details", {}).get("decision", "rejected") == "rejected"
        ), answer
    phone.close()
    bridge.stop()
