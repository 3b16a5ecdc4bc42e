"""What a home screen needs to know of each session, and that it stays true (D54)."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from bridge_project.protocol.resources import SessionInfo
from tests.conformance.agents import begin, end, log_of, say, tool
from tests.conformance.approvals import decide, of, post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_now
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, prompt

pytestmark = pytest.mark.spec("ws.session_update")

INFO = {field.alias or name for name, field in SessionInfo.model_fields.items()}
STATE = INFO - {"session_id", "agent", "title", "working_directory", "last_activity_at"}


def shown(phone: Phone, session_id: str) -> dict[str, Any]:
    told = [one for one in phone.updates if one["session_id"] == session_id]
    return told[-1] if told else {}


def until(phone: Phone, session_id: str, what: Callable[[dict[str, Any]], object]) -> None:
    """Wait until the phone was told so; it needs to do nothing for it."""
    phone.collect(lambda: bool((one := shown(phone, session_id)) and what(one)), "its new state")


def agree(bridge: Bridge, phone: Phone, session_id: str, **state: Any) -> dict[str, Any]:
    """A phone that looks on, one that connects now (D25: no closed one), and HTTP show the same."""
    until(phone, session_id, lambda one: {name: one[name] for name in state} == state)
    view = shown(phone, session_id)
    assert set(view) == INFO
    with bridge.phones(1) as (fresh,):
        (acknowledged,) = [m for m in fresh.messages if m["type"] == "connection_ack"]
        listed = {one["session_id"]: one for one in acknowledged["payload"]["active_sessions"]}
        same = view | {"last_activity_at": listed.get(session_id, view)["last_activity_at"]}
        assert listed.get(session_id, view) == same
        assert (session_id in listed) is (view["session_status"] != "closed")
    over_http = bridge.session(session_id)
    assert view == view | {name: over_http[name] for name in STATE}
    return view


def test_a_short_session_ends_with_its_title(bridge: Bridge, phone: Phone) -> None:
    """No look between saw that the prompt gave it one: a phone knows it as its directory."""
    sid = new_session()
    began = hook("SessionStart", sid, {"working_directory": "/home/dev/project"})
    bridge.accept(began, prompt(sid, "short"), hook("SessionEnd", sid))
    started = phone.expect("session_started", session_id=sid)["payload"]["session"]
    ended = phone.expect("session_end", session_id=sid)["payload"]
    assert (started["title"], ended["title"]) == ("project", "prompt short")


@pytest.mark.spec("ws.session_started ws.session_end event.SessionStart event.SessionEnd info.*")
def test_an_observed_session(bridge: Bridge, phone: Phone) -> None:
    """From its first event to its end, for a phone that has not joined it."""
    sid = new_session()
    bridge.accept(hook("SessionStart", sid, {"working_directory": "/home/dev/project"}))
    started = phone.expect("session_started", session_id=sid)["payload"]["session"]
    assert set(started) == INFO and started["working_directory"] == "/home/dev/project"
    idle = {"turn": "idle", "doing": None, "pending_approvals": 0, "session_status": "active"}
    about = {"kind": "observed", "title": "project", "agent": "primary-agent"}
    assert started == started | idle | about
    assert_now(started["last_activity_at"])
    bridge.accept(prompt(sid, 1), pre(sid, {"command": "make\ntest"}, tool_call_id="a"))
    until(phone, sid, lambda one: one["doing"])
    doing = agree(bridge, phone, sid, turn="working")["doing"]
    assert (doing["tool"], doing["summary"]) == ("Bash", "Bash: make test")
    assert_now(doing["since"])
    bridge.accept(post(sid, {"command": "make\ntest"}, tool_call_id="a"))
    bridge.accept(pre(sid, {"command": "rm x"}, approval=True, tool_call_id="b"))
    asked = agree(bridge, phone, sid, turn="waiting", pending_approvals=1)
    assert asked["doing"]["summary"] == "Bash: rm x"
    # what a phone says is only noted: the agent still waits for the person at its machine
    decide(phone, sid, "b", "approved")
    bridge.accept(pre(sid, tool_call_id="other"), post(sid, tool_call_id="other"))
    bridge.accept(pre(sid, tool_call_id="next"))
    assert bridge.session(sid)["turn"] == "waiting", "whatever other calls do"
    agree(bridge, phone, sid, turn="waiting", doing=asked["doing"], pending_approvals=0)
    bridge.accept(post(sid, tool_call_id="next"))
    bridge.accept(post(sid, {"command": "rm x"}, tool_call_id="b"))
    agree(bridge, phone, sid, turn="working", doing=None)
    bridge.accept(hook("Stop", sid))
    agree(bridge, phone, sid, **idle)
    bridge.accept(hook("SessionEnd", sid))
    agree(bridge, phone, sid, turn="idle", session_status="closed")
    bridge.fence(phone)
    for kind in ("session_started", "session_end"):
        assert len(of(phone, kind, sid)) == 1, kind
    reason = phone.expect("session_end", session_id=sid)["payload"]["reason"]
    assert reason in ("user_request", "timeout", "error", "completed")
    assert phone.events(sid) == [], "D28: the session's own feed waits for the join"
    bridge.accept(post(sid, tool_call_id="late"))
    assert bridge.session(sid)["turn"] == "idle", "it has ended"


def test_several_calls_at_once(bridge: Bridge, phone: Phone) -> None:
    """A session waits as long as one of its calls does; else it shows the newest that runs."""
    sid = new_session()
    run = [pre(sid, {"command": name}, tool_call_id=name) for name in "abc"]
    bridge.accept(hook("SessionStart", sid), *run)

    def ends(name: str, waits: int, shown: str | None) -> None:
        bridge.accept(post(sid, {"command": name}, tool_call_id=name))
        until(phone, sid, lambda one: (one["doing"] or {}).get("summary") == shown)
        turn = "waiting" if waits else "working"
        agree(bridge, phone, sid, turn=turn, pending_approvals=waits)

    ends("b", 0, "Bash: c")
    ends("c", 0, "Bash: a")
    bridge.accept(
        pre(sid, {"command": "d"}, approval=True, tool_call_id="d"),
        pre(sid, {"command": "e"}, tool_call_id="e"),
    )
    ends("e", 1, "Bash: d")
    ends("d", 0, "Bash: a")
    ends("a", 0, None)


def test_a_session_of_the_bridge(bridge: Bridge, phone: Phone) -> None:
    with bridge.phones(1) as (other,):
        sid = begin(bridge, phone)
        (ready,) = [m["payload"] for m in phone.messages if m["type"] == "session_ready"]
        assert (ready["status"], ready["session_status"]) == ("ready", "active")
        started = other.expect("session_started", session_id=sid)["payload"]["session"]
        assert (started["kind"], started["session_status"]) == ("bridge", "active")
        asked = tool(phone, sid, "Bash", command="make test")
        view = agree(bridge, other, sid, turn="waiting", pending_approvals=1)
        assert view["doing"]["tool"] == "Bash" and "make test" in view["doing"]["summary"]
        decide(phone, sid, asked["tool_call_id"], "approved")
        agree(bridge, other, sid, turn="idle", doing=None, pending_approvals=0)
        say(phone, sid, "/sleep 60")
        agree(bridge, other, sid, turn="working", doing=None)
        phone.send("session_interrupt", {"session_id": sid})
        agree(bridge, other, sid, turn="idle", title=view["title"])
        end(phone, sid)
        agree(bridge, other, sid, turn="idle", session_status="closed")


def test_seldom_and_never_again(bridge: Bridge, phone: Phone) -> None:
    """At most once a second for a session; no row: neither a reconnection nor a replay has it."""
    sid = new_session()
    bridge.accept(prompt(sid, 0))
    phone.join(sid)
    begun, number = time.monotonic(), 0
    while time.monotonic() - begun < 2:
        calls = [pre(sid, tool_call_id=f"call {number + more}") for more in range(50)]
        assert bridge.post_batch(calls).json()["accepted"] == len(calls)
        number += len(calls)
    bridge.accept(hook("Stop", sid))
    until(phone, sid, lambda one: one["turn"] == "idle")
    took = time.monotonic() - begun
    told = [one for one in phone.updates if one["session_id"] == sid]
    assert len(told) <= took + 2 < number
    assert all(one != two for one, two in itertools.pairwise(told))
    assert "session_update" not in {message["type"] for message in log_of(phone, sid)}
    phone.again()
    other = new_session()
    bridge.accept(prompt(other, 0))
    until(phone, other, lambda one: one["turn"] == "working")
    assert shown(phone, sid) == {}, "connection_ack had it"
    bridge.accept(hook("SessionEnd", sid), hook("SessionEnd", other))
