"""A bridge that is stopped or killed under its agents (D35, D38; issue, Shown by)."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.agent_tools import Script, http_say, quick_bridge, status, stream
from tests.conformance.agents import ask, asked, begin, end, log_of, resume, say, start, tool, words
from tests.conformance.approvals import assert_refused, decide, notifications, pending
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.https import assert_error
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_id
from tests.servers import wait_until

pytestmark = pytest.mark.slow

GRACE = 2
# all but two are the same, each for the session of one test, with a journal of its own
AGENTS = ("plain", "asks", "no-load", "forgets")
Scripts = dict[str, Script]


@dataclass
class Under:
    how: str
    phone: Phone  # of the device that began the sessions, not connected
    sessions: dict[str, str]  # what it is for → its id
    calls: dict[str, str]  # what its session is for → the id of the call that waited, or ran
    prompt: tuple[str, dict[str, Any]]  # id and payload of the message that was being answered
    said: str  # what the phone had seen of the answer that was cut
    restarted: float


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return {agent: Script(tmp_path_factory.mktemp(agent), agent) for agent in AGENTS}


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, scripts: Scripts) -> Iterator[Bridge]:
    with quick_bridge(
        tmp_path_factory.mktemp("killed"),
        *scripts.values(),
        BRIDGE_SESSION_GRACE_SECONDS=str(GRACE),
        BRIDGE_MAX_SESSIONS="50",
        BRIDGE_DEMO_SHELL="1",
    ) as bridge:
        yield bridge


@pytest.fixture(scope="module", params=["stop", "kill"])
def under(request: pytest.FixtureRequest, bridge: Bridge, scripts: Scripts) -> Under:
    how, phone = request.param, bridge.phone().ready()
    (bridge.root / "gone").mkdir()
    removed = start(phone, bridge.root / "gone")["payload"]["session_id"]
    sessions = {agent: begin(bridge, phone, agent=agent) for agent in AGENTS}
    sessions |= {name: begin(bridge, phone) for name in ("runs", "left")} | {"removed": removed}
    for name in ("no-load", "forgets", "removed"):
        ask(phone, sessions[name], "remember me")
    runs = tool(phone, sessions["runs"], command="touch runs; sleep 600")
    calls = {"asks": asked(phone, sessions["asks"]), "runs": runs["tool_call_id"]}
    decide(phone, sessions["runs"], calls["runs"], "approved")
    wait_until((bridge.root / "runs").exists)
    (bridge.root / "runs").unlink()

    sid = sessions["plain"]
    ask(phone, sid, "/spawn")
    assert len(scripts["plain"].processes()) >= 3, "the agent and what it started"
    before = len(phone.messages)
    payload = {"session_id": sid, "content": f"/rate {how} 6000 100", "role": "user"}
    prompt = (phone.send("message", payload), payload)
    say(phone, sid, f"queued behind it {how}")

    def said() -> str:
        return words(stream(phone.messages[before:], sid))

    phone.collect(lambda: len(said()) > 300, "something to lose")
    shutil.rmtree(bridge.root / "gone")
    bridge.restart(how)
    return Under(how, phone, sessions, calls, prompt, said(), time.monotonic())


@pytest.fixture
def phone(under: Under) -> Iterator[Phone]:
    yield under.phone.ready()
    under.phone.close()


def of_type(messages: list[Message], type_: str) -> list[dict[str, Any]]:
    return [message["payload"] for message in messages if message["type"] == type_]


@pytest.mark.spec("state.resume", "state.order")
def test_a_bridge_that_ends_in_a_turn(bridge: Bridge, scripts: Scripts, under: Under) -> None:
    """D35: paused, all that was said is there, and a resume goes on; nothing is done twice."""
    sid, script, how, phone = under.sessions["plain"], scripts["plain"], under.how, under.phone
    assert status(bridge, sid) == "paused", "without waiting for a lease"
    script.assert_gone()
    phone.ready()
    [acknowledged] = of_type(phone.messages, "connection_ack")
    assert sid in [session["session_id"] for session in acknowledged["active_sessions"]]
    phone.join(sid)
    kept = log_of(phone, sid)
    turns = [one for one in stream(kept, sid) if one["type"] != "stream_chunk"]
    assert [one["type"] for one in turns[-2:]] == ["stream_start", "stream_end"]
    last = turns[-1]["payload"]
    assert last["finish_reason"] == "error"
    cut = words([one for one in kept if one["payload"].get("message_id") == last["message_id"]])
    assert cut.startswith(under.said), "all that the phone had seen is there"
    numbers = range(cut.count(" "))
    assert cut == "".join(f"{how}-{number} " for number in numbers), "and nothing else"
    id_, body = under.prompt
    assert script.prompts()[-2:] == ["/spawn", body["content"]]

    for type_, fields in {"message": body, "session_interrupt": {"session_id": sid}}.items():
        assert_refused(phone.request(type_, fields), "SESS_NOT_ACTIVE", True, sid)
    assert_error(http_say(bridge, sid), 409, "SESSION_CLOSED")
    queued, id_of_it = {"session_id": sid, "content": "from the queue", "role": "user"}, new_id()
    refused = send(phone, "message", id_of_it, queued)
    assert_refused(refused, "SESS_NOT_ACTIVE", True, sid)
    assert status(bridge, sid) == "paused", "joined with resume false, it stays so"

    assert resume(bridge, phone, sid)["type"] == "session_ready"
    checkpoint = f"scripted-{script.lines('new')[-1]['pid']}"
    assert script.lines("load")[-1]["session"] == checkpoint, "its own id"
    # as a phone does that does not know whether it has arrived (D31)
    phone.send("message", body, id=id_)
    phone.send("message", queued, id=id_of_it)
    say(phone, sid, "onward")
    phone.collect(lambda: "onward" in words(stream(phone.messages, sid)), "its answer")
    prompts = script.prompts()
    assert prompts[-2:] == ["from the queue", "onward"]
    assert prompts.count(body["content"]) == 1 and prompts.count(f"queued behind it {how}") <= 1
    end(phone, sid)
    script.assert_gone()
    phone.close()


@pytest.mark.parametrize("name", ["asks", "runs"])
def test_a_turn_that_is_cut_off(bridge: Bridge, under: Under, phone: Phone, name: str) -> None:
    """D35: its call has a result without success; every device is told once, and how to go on.
    D38: what was pending is rejected, and nobody is asked again.
    """
    sid, call_id = under.sessions[name], under.calls[name]
    ended = "stopped" if under.how == "stop" else "restarted"
    why = f"The bridge was {ended} in the middle of a turn."
    phone.expect("notification", session_id=sid, notification_type="error")
    phone.join(sid)
    [notice] = notifications(phone, sid, "error")
    assert (notice["body"], notice["priority"]) == (f"{why} Resume the session to go on.", "high")
    log = log_of(phone, sid)
    assert [message["type"] for message in log if message["type"] != "agent_event"] == [
        *("stream_start", "stream_end", "approval_required", "tool_result"),
        *("stream_start", "stream_end"),
    ]
    [first, last] = of_type(log, "stream_end")
    assert (first["finish_reason"], last["finish_reason"]) == ("tool_call", "error")
    assert first["message_id"] != last["message_id"]
    [question], [result] = of_type(log, "approval_required"), of_type(log, "tool_result")
    assert (result["tool_call_id"], result["tool"]) == (call_id, question["tool"])
    assert result["result"]["success"] is False
    assert result["result"]["error"] == "The call has no result because the session was paused."
    if name == "asks":
        told = phone.expect("notification", session_id=sid, notification_type="approval_decided")
        rejected = {"decision": "rejected", "reason": "session_paused", "decided_by": "bridge"}
        assert told["payload"]["data"] == {"tool_call_id": call_id} | rejected
    assert pending(bridge, sid) == []
    assert resume(bridge, phone, sid)["type"] == "session_ready"
    assert words(ask(phone, sid, "and on"))
    assert len(of_type(log_of(phone, sid), "approval_required")) == 1, "the prompt was not repeated"
    end(phone, sid)


NOT_RESUMABLE = {"no-load": "", "forgets": "that conversation was deleted"}
NOT_RESUMABLE["removed"] = "is not there any more"


@pytest.mark.spec("state.not_resumable", "wscode.SESS_NOT_RESUMABLE")
def test_what_stays_paused(bridge: Bridge, scripts: Scripts, under: Under, phone: Phone) -> None:
    """Spec: it stays paused, again and again, and no process is left; it can be read and ended."""
    for name, reason in NOT_RESUMABLE.items():
        sid = under.sessions[name]
        for _ in range(2):
            error = assert_refused(resume(bridge, phone, sid), "SESS_NOT_RESUMABLE", False, sid)
            assert reason in error["message"] and len(error["message"].split()) > 3, error
            assert status(bridge, sid) == "paused"
        if name in scripts:
            scripts[name].assert_gone()
        phone.join(sid)
        assert words(log_of(phone, sid))
        end(phone, sid)
        assert status(bridge, sid) == "closed"


def test_a_restart_closes_nothing(bridge: Bridge, under: Under, phone: Phone) -> None:
    """D35: however long nobody comes: the grace time is for sessions that are active."""
    sid = under.sessions["left"]
    phone.stay(under.restarted + GRACE + 1.5 - time.monotonic())
    assert status(bridge, sid) == "paused"
    assert resume(bridge, phone, sid)["type"] == "session_ready"
    end(phone, sid)
