"""A bridge that is stopped or killed under its agents: paused, nothing lost, nothing left, resumed,
nothing said twice (D35, D38; issue, Shown by).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.agent_tools import (
    Script,
    http_say,
    quick_bridge,
    status,
    stream,
    tidied,
    wait_for,
    wait_status,
)
from tests.conformance.agents import ask, begin, end, log_of, say, start, tool, words
from tests.conformance.approvals import (
    assert_refused,
    assert_stands,
    decide,
    notifications,
    pending,
)
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.delivery import send
from tests.conformance.https import assert_error
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_id

GRACE = 2
# all but two are the same, each for the session of one test, with a journal of its own
AGENTS = ("plain", "asks", "twice", "no-load", "forgets", "fails")


@dataclass
class Under:
    """What ran when the bridge ended, which runs again: a session for each test. ``phone`` is of
    the device that began them, not connected.
    """

    how: str
    phone: Phone
    sessions: dict[str, str]  # what it is for → its id
    calls: dict[str, str]  # what its session is for → the id of the call that waited, or ran
    # the id and the payload of the message that was being answered
    prompt: tuple[str, dict[str, Any]]
    said: str  # what the phone had seen of the answer that was cut
    restarted: float


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Script]:
    return {agent: Script(tmp_path_factory.mktemp(agent), agent) for agent in AGENTS}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, scripts: dict[str, Script]) -> Iterator[Bridge]:
    settings = {
        "BRIDGE_SESSION_GRACE_SECONDS": str(GRACE),
        "BRIDGE_MAX_SESSIONS": "50",
        "BRIDGE_DEMO_SHELL": "1",
    }
    with quick_bridge(tmp_path_factory.mktemp("killed"), *scripts.values(), **settings) as bridge:
        yield bridge


@pytest.fixture(scope="module", params=["stop", "kill"])
def under(request: pytest.FixtureRequest, quick: Bridge, scripts: dict[str, Script]) -> Under:
    """One end of the bridge for all tests, under everything that they look into: a start takes a
    second of the processor.
    """
    how, phone = request.param, quick.phone().ready()
    (quick.root / "gone").mkdir()
    removed = start(phone, quick.root / "gone")["payload"]["session_id"]
    sessions = {agent: begin(quick, phone, agent=agent) for agent in AGENTS} | {
        name: begin(quick, phone) for name in ("runs", "left")
    }
    sessions["removed"] = removed
    for name in ("twice", "no-load", "forgets", "removed"):
        ask(phone, sessions[name], "remember me")
    say(phone, sessions["fails"], "/exit 3")
    wait_status(quick, sessions["fails"], "error")
    say(phone, sessions["asks"], "/ask make test")
    asked = phone.expect("approval_required", session_id=sessions["asks"])["payload"]
    calls = {
        "asks": asked["tool_call_id"],
        "runs": tool(phone, sessions["runs"], command="touch runs; sleep 600")["tool_call_id"],
    }
    decide(phone, sessions["runs"], calls["runs"], "approved")
    eventually((quick.root / "runs").exists)
    (quick.root / "runs").unlink()

    sid = sessions["plain"]
    ask(phone, sid, "/spawn")
    assert len(scripts["plain"].processes()) >= 3, "the agent and what it started"
    before = len(phone.messages)
    payload = {"session_id": sid, "content": f"/rate {how} 6000 100", "role": "user"}
    prompt = (phone.send("message", payload), payload)
    say(phone, sid, f"queued behind it {how}")
    phone.collect(
        lambda: len(words(stream(phone.messages[before:], sid))) > 300, "something to lose"
    )
    said = words(stream(phone.messages[before:], sid))
    if how == "kill":
        quick.kill()
    else:
        quick.stop()
    shutil.rmtree(quick.root / "gone")
    quick.start()
    return Under(how, phone, sessions, calls, prompt, said, time.monotonic())


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest, quick: Bridge) -> Iterator[None]:
    """A test that fails leaves nothing to the next one."""
    with tidied(request, quick):
        yield


@pytest.fixture
def phone(under: Under) -> Iterator[Phone]:
    """The phone that began the sessions, come back."""
    yield under.phone.ready()
    under.phone.close()


def turns(messages: list[Message], session_id: str) -> list[Message]:
    """Where streams begin and end."""
    return [
        message for message in stream(messages, session_id) if message["type"] != "stream_chunk"
    ]


# -- in the middle of a turn -----------------------------------------------------------------------


@pytest.mark.spec("state.resume", "state.order")
def test_a_bridge_that_ends_in_the_middle_of_a_turn(
    quick: Bridge, scripts: dict[str, Script], under: Under
) -> None:
    """Issue, Shown by: the session is paused, the phone sees all that had been said, resume
    continues from the agent's own id, no process is left; D35.
    """
    sid, script, how, phone = under.sessions["plain"], scripts["plain"], under.how, under.phone
    assert status(quick, sid) == "paused", "D35: at once, without waiting for a lease"
    script.assert_gone()
    phone.ready()
    acknowledged = next(
        message for message in phone.messages if message["type"] == "connection_ack"
    )
    assert sid in [session["session_id"] for session in acknowledged["payload"]["active_sessions"]]
    phone.join(sid)
    kept = log_of(phone, sid)
    assert [message["type"] for message in turns(kept, sid)][-2:] == [
        "stream_start",
        "stream_end",
    ], "an open stream is ended"
    last = turns(kept, sid)[-1]["payload"]
    assert last["finish_reason"] == "error"
    cut = words(
        [message for message in kept if message["payload"].get("message_id") == last["message_id"]]
    )
    assert cut.startswith(under.said), "all that the phone had seen is there"
    assert cut == "".join(f"{how}-{number} " for number in range(cut.count(" "))), (
        "and nothing else"
    )
    id_, asked = under.prompt
    assert script.prompts()[-2:] == ["/spawn", asked["content"]]
    error = assert_refused(phone.request("message", asked), "SESS_NOT_ACTIVE", True, sid)
    assert "resume" in error["message"]
    interrupted = phone.request("session_interrupt", {"session_id": sid})
    assert_refused(interrupted, "SESS_NOT_ACTIVE", True, sid)
    over_http = http_say(quick, sid, {"type": "user_message", "content": "hi"})
    assert_error(over_http, 409, "SESS_NOT_ACTIVE")
    queued, id_of_it = {"session_id": sid, "content": "from the queue", "role": "user"}, new_id()
    refused = send(phone, "message", id_of_it, queued)
    assert_refused(refused, "SESS_NOT_ACTIVE", True, sid)
    assert status(quick, sid) == "paused", "joined with resume false, it stays so"
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    assert script.lines("load")[-1]["session"] == f"scripted-{script.lines('new')[-1]['pid']}", (
        "its own id is the checkpoint"
    )
    # as a phone does that does not know whether it has arrived (D31)
    phone.send("message", asked, id=id_)
    phone.send("message", queued, id=id_of_it)
    say(phone, sid, "onward")
    phone.collect(lambda: "onward" in words(stream(phone.messages, sid)), "its answer")
    prompts = script.prompts()
    assert prompts[-2:] == ["from the queue", "onward"], "what was refused may be sent again"
    assert prompts.count(asked["content"]) == 1 and prompts.count(f"queued behind it {how}") <= 1
    end(phone, sid)
    script.assert_gone()
    phone.close()


@pytest.mark.parametrize("name", ["asks", "runs"])
def test_a_turn_that_is_cut_off_has_an_end(
    quick: Bridge, under: Under, phone: Phone, name: str
) -> None:
    """D35: a call that waited or ran has a result without success, the turn a stream_end with
    error after a stream_start of its own; every device is told once, and how to go on.
    """
    sid = under.sessions[name]
    why = f"The bridge was {'stopped' if under.how == 'stop' else 'restarted'} in the middle of a turn."
    phone.expect("notification", session_id=sid, notification_type="error")
    phone.join(sid)
    [told] = notifications(phone, sid, "error")
    assert (told["body"], told["priority"]) == (f"{why} Resume the session to go on.", "high")
    log = log_of(phone, sid)
    assert [message["type"] for message in log if message["type"] != "agent_event"] == [
        *("stream_start", "stream_end", "approval_required", "tool_result"),
        *("stream_start", "stream_end"),
    ]
    [first, last] = [message["payload"] for message in log if message["type"] == "stream_end"]
    assert (first["finish_reason"], last["finish_reason"]) == ("tool_call", "error")
    assert first["message_id"] != last["message_id"]
    [result] = [message["payload"] for message in log if message["type"] == "tool_result"]
    assert (result["tool_call_id"], result["tool"]) == (
        under.calls[name],
        log[-4]["payload"]["tool"],
    )
    assert result["result"]["success"] is False
    assert result["result"]["error"] == "The call has no result because the session was paused."


def test_a_bridge_that_ends_while_somebody_thinks(
    quick: Bridge, under: Under, phone: Phone
) -> None:
    """D35, D38: what was pending is rejected, reason session_paused, every phone is told, and
    nobody is asked any more.
    """
    sid, call_id = under.sessions["asks"], under.calls["asks"]
    told = phone.expect("notification", session_id=sid, notification_type="approval_decided")
    notice = told["payload"]["data"]
    assert (notice["tool_call_id"], notice["decision"]) == (call_id, "rejected")
    assert (notice["reason"], notice["decided_by"]) == ("session_paused", "bridge")
    assert call_id not in pending(quick, sid)
    assert_stands(decide(phone, sid, call_id, "approved"), "rejected", "bridge")
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    assert words(ask(phone, sid, "and on"))
    asked = [message for message in log_of(phone, sid) if message["type"] == "approval_required"]
    assert len(asked) == 1, "the prompt that asked was not sent again"
    end(phone, sid)


# -- between turns ---------------------------------------------------------------------------------


def test_two_phones_resume_at_once(quick: Bridge, scripts: dict[str, Script], under: Under) -> None:
    """Both are answered session_ready, and one agent runs."""
    sid, script = under.sessions["twice"], scripts["twice"]
    loads = len(script.lines("load"))
    with quick.phones(2) as phones, ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda one: start(one, quick.root, sid, resume=True), phones))
        assert [answer["type"] for answer in answers] == ["session_ready"] * 2, answers
        assert len(script.lines("load")) == loads + 1 and len(script.processes()) == 1
        assert "9 characters" in words(ask(phones[0], sid, "from both"))
        phones[1].expect("stream_end", session_id=sid)
        end(phones[0], sid)


@pytest.mark.spec("state.not_resumable", "wscode.SESS_NOT_RESUMABLE")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no-load", ""),
        ("forgets", "that conversation was deleted"),
        ("removed", "no such working directory"),
    ],
)
def test_a_session_that_cannot_be_resumed(
    quick: Bridge, scripts: dict[str, Script], under: Under, phone: Phone, name: str, reason: str
) -> None:
    """Spec: not resumable: stays paused, SESS_NOT_RESUMABLE; issue: with the reason; again and
    again, and no process is left. It can still be ended.
    """
    sid = under.sessions[name]
    for _ in range(2):
        error = assert_refused(
            start(phone, quick.root, sid, resume=True), "SESS_NOT_RESUMABLE", False, sid
        )
        assert reason in error["message"] and len(error["message"].split()) > 3, error
        assert status(quick, sid) == "paused"
    if name in scripts:
        scripts[name].assert_gone()
    phone.join(sid)
    assert words(log_of(phone, sid)), "what was said can still be read"
    end(phone, sid)
    assert status(quick, sid) == "closed"


def test_a_session_that_failed_is_left(quick: Bridge, under: Under, phone: Phone) -> None:
    """D35: error is a state of its own: listed with its reason told to whoever comes, resumed from
    there; the bridge's restart does not change it.
    """
    sid = under.sessions["fails"]
    assert status(quick, sid) == "error"
    phone.join(sid)
    told = [message for message in log_of(phone, sid) if message["type"] == "error"]
    assert told and "it went wrong" in told[0]["payload"]["message"], "why, in what is kept"
    assert start(phone, "/ignored", sid, resume=True)["type"] == "session_ready"
    assert "4 characters" in words(ask(phone, sid, "well"))
    end(phone, sid)


def test_a_restart_closes_nothing(quick: Bridge, under: Under, phone: Phone) -> None:
    """D35: restarting the bridge never closes a session, however long nobody comes: the grace time
    is for those that are active.
    """
    sid = under.sessions["left"]
    wait_for(max(0.1, under.restarted + GRACE + 1.5 - time.monotonic()), phone)
    assert status(quick, sid) == "paused"
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    end(phone, sid)
