"""A bridge that is stopped or killed under its agents: paused, nothing lost, nothing left, resumed, nothing said twice (D35, D38; issue, Shown by)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.agent_tools import Script, quick_bridge, restart, status, stream, wait_for
from tests.conformance.agents import ask, begin, end, log_of, say, start, tool, words
from tests.conformance.approvals import assert_refused, assert_stands, decide, pending
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone

GRACE = 2


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain", "no-load", "forgets")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    """A bridge that every test here may kill, and starts again before it ends."""
    with quick_bridge(tmp_path_factory.mktemp("killed"), script, BRIDGE_SESSION_GRACE_SECONDS=str(GRACE), BRIDGE_MAX_SESSIONS="50") as bridge:
        yield bridge


@pytest.fixture
def phone(quick: Bridge) -> Iterator[Phone]:
    with quick.phones(1) as (phone,):
        yield phone


@pytest.mark.spec("state.resume", "state.order")
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_bridge_that_ends_in_the_middle_of_a_turn(quick: Bridge, script: Script, phone: Phone, how: str) -> None:
    """Issue, Shown by: the session is paused, the phone sees all that had been said, resume continues from the agent's own id, no process is left; D35."""
    sid = begin(quick, phone, agent="plain")
    ask(phone, sid, "/spawn")
    assert len(script.processes()) >= 3, "the agent and what it started"
    before = len(phone.messages)
    asked = {"session_id": sid, "content": f"/rate {how} 6000 100", "role": "user"}
    id_ = phone.send("message", asked)
    say(phone, sid, f"queued behind it {how}")
    phone.expect("stream_chunk", session_id=sid)
    phone.collect(lambda: len(words(stream(phone.messages[before:], sid))) > 300, "something to lose")
    said = words(stream(phone.messages[before:], sid))
    restart(quick, how)
    assert status(quick, sid) == "paused", "D35: at once, without waiting for a lease"
    script.assert_gone()
    phone.ready()
    assert sid in [session["session_id"] for session in phone_sessions(quick, phone)]
    phone.join(sid)
    kept = log_of(phone, sid)
    turns = [message for message in stream(kept, sid) if message["type"] != "stream_chunk"]
    assert [message["type"] for message in turns][-2:] == ["stream_start", "stream_end"], "an open stream is ended"
    assert turns[-1]["payload"]["finish_reason"] == "error"
    cut = words([message for message in kept if message["payload"].get("message_id") == turns[-1]["payload"]["message_id"]])
    assert cut.startswith(said), "all that the phone had seen is there"
    assert cut == "".join(f"{how}-{number} " for number in range(cut.count(" "))), "and nothing else"
    assert script.prompts()[-2:] == ["/spawn", f"/rate {how} 6000 100"]
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    assert script.lines("load")[-1]["session"] == f"scripted-{script.lines('new')[-1]['pid']}", "its own id is the checkpoint"
    phone.send("message", asked, id=id_)  # as a phone does that does not know whether it has arrived (D31)
    say(phone, sid, "onward")
    phone.collect(lambda: "onward" in words(stream(phone.messages, sid)), "its answer")
    prompts = script.prompts()
    assert prompts[-1] == "onward" and prompts.count(f"/rate {how} 6000 100") == 1 and prompts.count(f"queued behind it {how}") <= 1, "none is sent twice"
    end(phone, sid)
    script.assert_gone()


def phone_sessions(bridge: Bridge, phone: Phone) -> list[dict[str, Any]]:
    """active_sessions of a fresh connection."""
    with bridge.phones(1) as (other,):
        acknowledged = next(message for message in other.messages if message["type"] == "connection_ack")
        return list(acknowledged["payload"]["active_sessions"])


@pytest.mark.parametrize(("agent", "how"), [("demo", "kill"), ("plain", "stop"), ("plain", "kill")])
def test_a_bridge_that_ends_while_somebody_thinks(quick: Bridge, phone: Phone, agent: str, how: str) -> None:
    """D35, D38: what was pending is rejected, reason session_paused, every phone is told, and nobody is asked any more."""
    sid = begin(quick, phone, agent=agent)
    if agent == "demo":
        call_id = tool(phone, sid)["tool_call_id"]
    else:
        say(phone, sid, "/ask make test")
        call_id = phone.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
    restart(quick, how)
    phone.ready()
    notice = phone.expect("notification", session_id=sid, notification_type="approval_decided")["payload"]["data"]
    assert (notice["tool_call_id"], notice["decision"], notice["reason"], notice["decided_by"]) == (call_id, "rejected", "session_paused", "bridge")
    assert call_id not in pending(quick, sid)
    assert_stands(decide(phone, sid, call_id, "approved"), "rejected", "bridge")
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    assert words(ask(phone, sid, "and on"))
    asked = [message for message in log_of(phone, sid) if message["type"] == "approval_required"]
    assert len(asked) == 1, "the prompt that asked was not sent again"
    end(phone, sid)


def test_two_phones_resume_at_once(quick: Bridge, script: Script, phone: Phone) -> None:
    """Both are answered session_ready, and one agent runs."""
    sid = begin(quick, phone, agent="plain")
    ask(phone, sid, "hello")
    restart(quick, "kill")
    loads = len(script.lines("load"))
    with quick.phones(2) as phones, ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda one: start(one, quick.root, sid, resume=True), phones))
        assert [answer["type"] for answer in answers] == ["session_ready"] * 2, answers
        assert len(script.lines("load")) == loads + 1 and len(script.processes()) == 1
        assert "9 characters" in words(ask(phones[0], sid, "from both"))
        phones[1].expect("stream_end", session_id=sid)
        end(phones[0], sid)


@pytest.mark.spec("state.not_resumable", "wscode.SESS_NOT_RESUMABLE")
@pytest.mark.parametrize(("agent", "reason"), [("no-load", ""), ("forgets", "that conversation was deleted")])
def test_an_agent_that_cannot_resume(quick: Bridge, script: Script, phone: Phone, agent: str, reason: str) -> None:
    """Spec: stays paused, SESS_NOT_RESUMABLE; issue: with the reason; again and again, and no process is left."""
    sid = begin(quick, phone, agent=agent)
    ask(phone, sid, "remember me")
    restart(quick, "stop")
    phone.ready()
    for _ in range(2):
        error = assert_refused(start(phone, quick.root, sid, resume=True), "SESS_NOT_RESUMABLE", False, sid)
        assert reason in error["message"] and len(error["message"].split()) > 3, error
        assert status(quick, sid) == "paused"
    script.assert_gone()
    phone.join(sid)
    assert words(log_of(phone, sid)), "what was said can still be read"
    end(phone, sid)


def test_a_restart_closes_nothing(quick: Bridge, phone: Phone) -> None:
    """D35: restarting the bridge never closes a session, however long nobody comes: the grace time is for those that are active."""
    sid = begin(quick, phone)
    restart(quick, "stop")
    with quick.phones(1) as (other,):
        wait_for(GRACE + 1.5, other)
    assert status(quick, sid) == "paused"
    phone.ready()
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    end(phone, sid)
