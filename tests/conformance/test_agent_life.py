"""What becomes of a session and of its agent: started slowly, left, come back to, resumed; and how
its words reach the phones (D26, D28 to D30, D34 to D38; issue, The session's life).
"""

import json
import time
from pathlib import Path

import pytest

from tests.conformance.agent_tools import (
    Script,
    alive,
    begun,
    bridge_of,
    http_say,
    restart,
    script_of,
    status,
    stream,
    wait_for,
    wait_status,
)
from tests.conformance.agents import (
    answer_to,
    ask,
    begin,
    end,
    log_of,
    say,
    send_start,
    start,
    tool,
    words,
)
from tests.conformance.approvals import assert_refused, decide, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_session
from tests.faults.quick import with_limits

GRACE = 4
SESSIONS, PER_SECOND, COUNT = 10, 100, 200


script = script_of("plain", "told", "no-load", "forgets", "hangs", "stuck")
# a phone that does not read is left alone
PATIENT = with_limits(SLOW_SOCKET_SECONDS=300, LIVENESS_SECONDS=300)
bridge = bridge_of(first=PATIENT, BRIDGE_SESSION_GRACE_SECONDS=str(GRACE), BRIDGE_MAX_SESSIONS="50")


@pytest.fixture
def go(script: Script) -> Path:
    script.go.unlink(missing_ok=True)
    return script.go


def resume(bridge: Bridge, phone: Phone, session_id: str) -> Message:
    return start(phone, bridge.root, session_id, resume=True)


def listed(bridge: Bridge, session_id: str) -> tuple[str, bool]:
    """The session's state, and whether it can be resumed, in GET /sessions."""
    sessions = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    (found,) = [one for one in sessions if one["id"] == session_id]
    return found["status"], found["resumable"]


def wait_end(phone: Phone, session_id: str) -> None:
    phone.collect(lambda: bool(of(phone, "stream_end", session_id)), "its end")


def test_agents_that_are_not_waited_for(
    bridge: Bridge, script: Script, phone: Phone, go: Path
) -> None:
    """A bridge that ends while an agent starts; D39: what was accepted is said when it runs."""
    early: dict[str, list[str]] = {}
    for how, said in {"stop": [], "kill": ["early"]}.items():
        early[sid := new_session()] = said
        send_start(phone, bridge.root, sid, "told")
        eventually(lambda sid=sid: bridge.knows(sid) and script.processes())
        for content in said:
            answer = http_say(bridge, sid, {"type": "user_message", "content": content})
            assert answer.json()["accepted"] is True
        assert status(bridge, sid) == "created"
        restart(bridge, how)
        script.assert_gone()
        assert status(bridge, sid) == "paused"
        phone.ready()
    go.touch()
    for sid, said in early.items():
        assert resume(bridge, phone, sid)["type"] == "session_ready"
        say(phone, sid, "and now")
        phone.collect(lambda sid=sid: "and now" in words(stream(phone.messages, sid)), "its answer")  # type: ignore[misc]
        assert script.prompts()[-1 - len(said) :] == [*said, "and now"]
        end(phone, sid)
    assert script.prompts().count("and now") == 2


@pytest.mark.spec("ws.session_interrupt")
def test_an_agent_that_does_not_yield(bridge: Bridge, script: Script, phone: Phone) -> None:
    """D40: stream_end with stop; it is killed after five seconds, and the session paused."""
    sid = begun(bridge, phone, "/deaf")
    began = time.monotonic()
    phone.send("session_interrupt", {"session_id": sid})
    assert phone.expect("stream_end", session_id=sid, finish_reason="stop")["payload"][
        "interrupted"
    ]
    wait_status(bridge, sid, "paused")
    assert time.monotonic() - began > 4
    script.assert_gone()
    assert resume(bridge, phone, sid)["type"] == "session_ready"
    assert "2 characters" in words(ask(phone, sid, "hi")) and script.prompts().count("/deaf") == 1
    end(phone, sid)


def test_a_start_that_hangs_is_ended(
    bridge: Bridge, script: Script, phone: Phone, sid: str
) -> None:
    """Issue: whoever wants to ends it, without having joined; its process is gone at once."""
    asked = send_start(phone, bridge.root, sid, "hangs")
    eventually(lambda: bridge.knows(sid) and script.processes())
    alive(phone)
    with bridge.phones(1) as (other,):
        assert end(other, sid)["type"] == "session_end"
        assert_refused(answer_to(phone, asked), "SESS_CLOSED", False, sid)
        script.assert_gone()
        assert listed(bridge, sid) == ("closed", False)
        assert_refused(start(other, bridge.root, sid), "SESS_CLOSED", False, sid)


def test_a_resume_that_hangs_is_interrupted(bridge: Bridge, script: Script, phone: Phone) -> None:
    """Also when another phone resumes it at that moment: there are never two agents of it."""
    sid = begin(bridge, phone, agent="stuck")
    ask(phone, sid, "hello")
    restart(bridge, "kill")
    phone.ready()
    with bridge.phones(1) as (other,):
        for at_once in (False, True):
            loads = len(script.lines("load"))
            asked = send_start(phone, "", sid, "", resume=True)
            eventually(lambda loads=loads: len(script.lines("load")) > loads)
            phone.send("session_interrupt", {"session_id": sid})
            again = send_start(other, "", sid, "", resume=True) if at_once else ""
            assert_refused(answer_to(phone, asked), "SESS_NOT_ACTIVE", True, sid)
            if not at_once:
                assert listed(bridge, sid) == ("paused", True)
                script.assert_gone()
        eventually(lambda: len(script.processes()) <= 1)
        phone.join(sid)
        end(phone, sid)
        answer_to(other, again)
        script.assert_gone()


@pytest.mark.spec("state.grace", "state.grace_over", "limit.grace")
def test_the_grace_time_of_an_agent(bridge: Bridge, script: Script) -> None:
    """D60: it can be resumed then, also after a restart."""
    with bridge.phones(1) as (leaves,):
        stays = bridge.phone().ready()
        script.assert_gone()
        sid = begin(bridge, leaves, agent="plain")
        (pid,) = script.processes()
        ask(leaves, sid, "hello")
        leaves.vanish()
        gone = time.monotonic()
        assert stays.expect("session_end", session_id=sid)["payload"]["reason"] == "timeout"
        assert time.monotonic() - gone >= GRACE - 0.5
        eventually(lambda: pid not in script.processes())
        restart(bridge, "kill")
        assert listed(bridge, sid) == ("closed", True)
        leaves.connect()
        open_ones = leaves.auth()["payload"]["active_sessions"]
        assert sid not in [one["session_id"] for one in open_ones], "D25"
        leaves.health_check()
        refused = assert_refused(start(leaves, bridge.root, sid), "SESS_CLOSED", False, sid)
        assert "Resume it" in refused["message"]
        answer = resume(bridge, leaves, sid)
        assert answer["payload"]["session_status"] == "active", answer
        assert script.lines("load")[-1]["session"] == f"scripted-{pid}"
        assert listed(bridge, sid) == ("active", False)
        stays.ready()
        stays.expect("session_started", session_id=sid)
        types = [m["type"] for m in stays.messages if m.get("payload", {}).get("session_id") == sid]
        # the end comes again unless it was acknowledged meanwhile
        assert types[-1] == "session_started", "who was away ends up with the truth"
        assert "5 characters" in words(ask(leaves, sid, "again"))
        end(leaves, sid)
        stays.close()


def test_what_the_grace_timer_closed(bridge: Bridge, phone: Phone) -> None:
    """D60: a person ends it for good; what its agent cannot load is not resumable, or no more."""
    with bridge.phones(2) as (leaves, other):
        agents = ("plain", "no-load", "forgets")
        ended, *lost = sessions = [begin(bridge, leaves, agent=agent) for agent in agents]
        for sid in sessions:
            ask(leaves, sid, "hello")
        unasked = begin(bridge, leaves, agent="no-load")
        leaves.vanish()
        for sid in (*sessions, unasked):
            other.expect("session_end", session_id=sid, reason="timeout")
        states = [listed(bridge, sid) for sid in (*sessions, unasked)]
        assert states == [("closed", resumable) for resumable in (True, False, True, True)]
        assert end(phone, ended)["type"] == "session_end"
        other.expect("session_end", session_id=ended, reason="user_request")
    for answer in (resume(bridge, phone, ended), end(phone, ended)):
        assert_refused(answer, "SESS_CLOSED", False, ended)
    for sid in lost:
        assert_refused(resume(bridge, phone, sid), "SESS_NOT_RESUMABLE", False, sid)
        refused = assert_refused(start(phone, bridge.root, sid), "SESS_CLOSED", False, sid)
        assert "Resume it" not in refused["message"]
    assert {listed(bridge, sid) for sid in (ended, *lost)} == {("closed", False)}
    assert resume(bridge, phone, unasked)["type"] == "session_ready"
    assert words(ask(phone, unasked, "hello"))
    end(phone, unasked)


@pytest.mark.spec("state.grace", "state.reconnect")
def test_what_keeps_a_session(bridge: Bridge) -> None:
    """Coming back, who watches, and (D35) a turn in progress, which is waited for."""
    with bridge.phones(3) as (phone, watcher, other):
        back, watched, deciding, left = (begin(bridge, phone) for _ in range(4))
        watcher.join(watched)
        call_id = tool(phone, deciding)["tool_call_id"]
        phone.vanish()
        gone = time.monotonic()
        eventually(lambda: not bridge.session(back)["websocket_connected"])
        phone.ready()
        phone.join(back)
        other.expect("session_end", session_id=left, reason="timeout")
        wait_for(max(0.1, gone + 2 * GRACE + 1 - time.monotonic()), other)
        assert [status(bridge, sid) for sid in (back, watched, deciding)] == ["active"] * 3
        assert decide(other, deciding, call_id, "approved")["payload"]["forwarded"] is True
        other.expect("session_end", session_id=deciding, reason="timeout")
        phone.vanish()
        watcher.vanish()
        for sid in (back, watched):
            other.expect("session_end", session_id=sid, reason="timeout")


@pytest.mark.spec("state.reconnect", "ws.replay_buffer.reconnect")
def test_a_tunnel_in_the_middle_of_a_stream(bridge: Bridge, phone: Phone) -> None:
    """D27, D28: what was acknowledged, replayed and live make the whole text, once and in order."""
    sid = begun(bridge, phone, "/rate t 6000 100")  # a minute, unless it is interrupted
    with bridge.phones(1) as (watcher,):
        watcher.join(sid)
        watcher.expect("replay_buffer", session_id=sid)
        before = len(phone.messages)
        phone.collect(lambda: len(stream(phone.messages[before:], sid)) >= 3, "some of it")
        acknowledged = [message for message in phone.messages if "id" in message]
        phone.ack(*acknowledged)
        seen = stream(phone.messages, sid)
        phone.vanish()

        def goes_on() -> bool:
            replayed = of(watcher, "replay_buffer", sid)[0]["payload"]["messages"]
            return seen[-1] in [*replayed, *stream(watcher.messages, sid)][:-3]

        watcher.collect(goes_on, "what is said meanwhile")
    phone.ready()
    phone.join(sid)
    buffer = phone.expect("replay_buffer", session_id=sid)["payload"]
    assert buffer["complete"] is True
    replayed = stream(buffer["messages"], sid)
    assert replayed[0] not in acknowledged, "D27: at least once, what was not acknowledged"
    again = [message for message in replayed if message in seen]
    assert again == seen[len(seen) - len(again) :] and len(replayed) > len(again)
    phone.send("session_interrupt", {"session_id": sid})
    wait_end(phone, sid)
    whole = [*seen, *replayed[len(again) :], *stream(phone.messages, sid)]
    said = words(whole)
    assert said == "".join(f"t-{number} " for number in range(said.count(" ")))
    assert whole[-1]["type"] == "stream_end" and stream(log_of(phone, sid), sid) == whole
    end(phone, sid)


@pytest.mark.spec("ws.stream_start", "ws.stream_chunk", "ws.stream_end")
def test_ten_sessions_to_two_phones(bridge: Bridge) -> None:
    """Issue, Shown by: 100 chunks a second each: nothing lost, in order, the same rows for both."""
    with bridge.phones(2) as (first, second):
        sessions = [begin(bridge, first, agent="plain") for _ in range(SESSIONS)]
        for number, sid in enumerate(sessions):
            second.join(sid)
            say(first, sid, f"/rate s{number} {COUNT} {PER_SECOND}")
        rows = 0
        for number, sid in enumerate(sessions):
            wait_end(first, sid)
            wait_end(second, sid)
            _, *chunks, ended = seen = stream(first.messages, sid)
            assert stream(second.messages, sid) == seen, f"other rows of session {number}"
            assert words(chunks) == "".join(f"s{number}-{chunk} " for chunk in range(COUNT))
            assert ended["payload"]["finish_reason"] == "stop"
            rows += len(seen)
            end(first, sid)
    assert rows < SESSIONS * COUNT / 2, "what is said within 50 ms is one row"


@pytest.mark.spec("limit.replay_buffer", "ws.replay_buffer")
def test_a_phone_that_does_not_read_slows_nobody(bridge: Bridge, script: Script) -> None:
    """D30: 4 MB at full speed; the slow one gets all of it, one that comes then the last of it."""
    with bridge.phones(2) as (reads, slow):
        sid = begin(bridge, reads, agent="plain")
        slow.join(sid)
        label, count = "x" * 2000, 2000
        messages = ask(reads, sid, f"/rate {label} {count} 1000000")
        assert script.lines("said")[-1]["label"] == label, "the agent has said it all"
        assert words(messages) == "".join(f"{label}-{number} " for number in range(count))
        wait_end(slow, sid)
        assert stream(slow.messages, sid) == stream(reads.messages, sid)
        with bridge.phones(1) as (late,):
            late.join(sid)
            buffer = late.expect("replay_buffer", session_id=sid)["payload"]
            assert buffer["complete"] is False, "D29: what was cut is said"
            assert len(json.dumps(buffer["messages"])) < 110_000, "D30"
            assert buffer["messages"][-1] == messages[-1]
        end(reads, sid)
    script.assert_gone()
