"""What becomes of a session and of its agent's processes: started slowly, left, come back to,
killed, resumed; and how its words reach the phones (D26, D28 to D30, D34 to D38; issue, The
session's life).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.agent_tools import (
    Script,
    begun,
    http_say,
    quick_bridge,
    restart,
    status,
    stream,
    tidied,
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

GRACE = 2
SESSIONS, PER_SECOND, COUNT = 10, 100, 200


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    modes = ("plain", "told", "no-load", "forgets", "hangs", "stuck")
    return Script(tmp_path_factory.mktemp("script"), *modes)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    """A bridge that every test here may kill, and starts again before it ends."""
    with quick_bridge(
        tmp_path_factory.mktemp("life"),
        script,
        BRIDGE_SESSION_GRACE_SECONDS=str(GRACE),
        BRIDGE_MAX_SESSIONS="50",
    ) as bridge:
        yield bridge


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest, quick: Bridge) -> Iterator[None]:
    """A test that fails leaves nothing to the next one."""
    with tidied(request, quick):
        yield


@pytest.fixture
def phone(quick: Bridge) -> Iterator[Phone]:
    with quick.phones(1) as (phone,):
        yield phone


@pytest.fixture
def go(script: Script) -> Path:
    """A file for whose being there an agent in the mode `told` waits when it starts."""
    script.go.unlink(missing_ok=True)
    return script.go


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.spec("state.order")
def test_created_until_the_agent_is_ready(quick: Bridge, phone: Phone, go: Path, sid: str) -> None:
    """D35: created → active when the agent is ready; GET /sessions says so, and a phone that comes
    meanwhile gets the same session.
    """
    with quick.phones(1) as (other,):
        asked = {one: send_start(one, quick.root, sid, "told") for one in (phone, other)}
        eventually(lambda: quick.knows(sid))
        assert listed(quick, sid) == ("created", False)
        go.touch()
        for one, id_ in asked.items():
            ready = answer_to(one, id_)
            assert ready["payload"]["status"] == "ready", ready
        assert status(quick, sid) == "active"
        assert "2 characters" in words(ask(other, sid, "hi"))
        end(other, sid)


def test_agents_that_are_not_waited_for(
    quick: Bridge, script: Script, phone: Phone, go: Path
) -> None:
    """A bridge that is stopped or killed while an agent starts leaves no session in created for
    ever, and no process; D39: what was accepted meanwhile is said when it runs.
    """
    early: dict[str, list[str]] = {}
    for how, said in {"stop": [], "kill": ["early"]}.items():
        early[sid := new_session()] = said
        send_start(phone, quick.root, sid, "told")
        eventually(lambda sid=sid: quick.knows(sid) and script.processes())
        for content in said:
            answer = http_say(quick, sid, {"type": "user_message", "content": content})
            assert answer.json()["accepted"] is True
        assert status(quick, sid) == "created"
        restart(quick, how)
        script.assert_gone()
        assert status(quick, sid) == "paused"
        phone.ready()
    go.touch()
    for sid, said in early.items():
        answer = start(phone, quick.root, sid, resume=True)
        assert answer["type"] == "session_ready", answer["payload"]
        say(phone, sid, "and now")
        phone.collect(lambda sid=sid: "and now" in words(stream(phone.messages, sid)), "its answer")  # type: ignore[misc]
        assert script.prompts()[-1 - len(said) :] == [*said, "and now"]
        end(phone, sid)
    assert script.prompts().count("and now") == 2


@pytest.mark.spec("wscode.AGENT_ERROR")
def test_an_agent_that_dies_in_its_sleep(quick: Bridge, script: Script, phone: Phone) -> None:
    """D35: a crash between two turns is the state error too, at once and with the reason, and a
    resume goes on from its own id.
    """
    script.assert_gone()
    sid = begin(quick, phone, agent="plain")
    ask(phone, sid, "hello")
    (pid,) = script.processes()
    os.kill(pid, signal.SIGKILL)
    assert "9" in phone.expect("error", session_id=sid)["payload"]["message"], "which signal it was"
    phone.expect("notification", session_id=sid, notification_type="error")
    wait_status(quick, sid, "error")
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    assert script.lines("load")[-1]["session"] == f"scripted-{pid}"
    assert "5 characters" in words(ask(phone, sid, "hello"))
    end(phone, sid)


@pytest.mark.spec("ws.session_interrupt")
def test_an_agent_that_does_not_yield(quick: Bridge, script: Script, phone: Phone) -> None:
    """D40: stream_end with finish_reason stop; what does not yield in five seconds is killed and
    the session paused, which a resume ends.
    """
    sid = begun(quick, phone, "/deaf", "plain")
    began = time.monotonic()
    phone.send("session_interrupt", {"session_id": sid})
    assert phone.expect("stream_end", session_id=sid)["payload"]["finish_reason"] == "stop"
    wait_status(quick, sid, "paused")
    assert 4 < time.monotonic() - began < 60
    script.assert_gone()
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    assert "2 characters" in words(ask(phone, sid, "hi")) and script.prompts().count("/deaf") == 1
    end(phone, sid)


def test_where_an_agent_works(quick: Bridge, script: Script, phone: Phone) -> None:
    """Issue, Build: in the session's directory."""
    (quick.root / "work").mkdir()
    script.assert_gone()
    sid = start(phone, quick.root / "work", agent="plain")["payload"]["session_id"]
    (pid,) = script.processes()
    assert os.readlink(f"/proc/{pid}/cwd") == str(quick.root / "work")
    assert script.lines("new")[-1]["directory"] == str(quick.root / "work")
    end(phone, sid)


def test_a_start_that_hangs_is_cancelled(
    quick: Bridge, script: Script, phone: Phone, sid: str
) -> None:
    """Issue: whoever wants to ends it, without having joined; its process is gone at once."""
    asked = send_start(phone, quick.root, sid, "hangs")
    eventually(lambda: quick.knows(sid) and script.processes())
    with quick.phones(1) as (other,):
        assert end(other, sid)["type"] == "session_end"
        assert_refused(answer_to(phone, asked), "SESS_CLOSED", False, sid)
        script.assert_gone()
        assert listed(quick, sid) == ("closed", False)
        assert_refused(start(other, quick.root, sid), "SESS_CLOSED", False, sid)


def test_a_resume_that_hangs_is_cancelled(quick: Bridge, script: Script, phone: Phone) -> None:
    """Issue: session_interrupt gives the start up, whoever asked is told so, and the session stays
    what it was; also when another phone takes it up at that moment: there are never two agents of
    one session.
    """
    sid = begin(quick, phone, agent="stuck")
    ask(phone, sid, "hello")
    restart(quick, "kill")
    phone.ready()

    def cancel() -> None:
        asked = send_start(phone, "", sid, "", resume=True)
        eventually(lambda: len(script.lines("load")) > loads)
        phone.send("session_interrupt", {"session_id": sid})
        again.extend(send_start(one, "", sid, "", resume=True) for one in others)
        assert_refused(answer_to(phone, asked), "SESS_NOT_ACTIVE", True, sid)

    with quick.phones(1) as (other,):
        for others in ([], [other]):
            loads, again = len(script.lines("load")), list[str]()
            cancel()
            if not others:
                assert listed(quick, sid) == ("paused", True)
                script.assert_gone()
        eventually(lambda: len(script.processes()) <= 1)
        phone.join(sid)
        end(phone, sid)
        answer_to(other, again[0])
        script.assert_gone()


def test_a_start_that_is_cancelled_while_it_succeeds(
    quick: Bridge, script: Script, phone: Phone, sid: str, go: Path
) -> None:
    """Everybody who waits for it is told that it was cancelled, not that the session is closed."""
    send_start(phone, quick.root, sid, "told")
    eventually(lambda: quick.knows(sid) and script.processes())
    with quick.phones(1) as (other,):
        send_start(other, quick.root, sid, "told")
        other.ping()
        phone.send("session_interrupt", {"session_id": sid})
        eventually(lambda: status(quick, sid) == "paused")
        go.touch()
        for waits in (phone, other):
            assert_refused(waits.expect("error"), "SESS_NOT_ACTIVE", True, sid)
    assert listed(quick, sid) == ("paused", True)
    phone.join(sid)
    end(phone, sid)


# -- left, and come back to ------------------------------------------------------------------------


@pytest.mark.spec("state.grace", "state.grace_over", "limit.grace")
def test_the_grace_time_of_an_agent(quick: Bridge, script: Script) -> None:
    """Spec: closed when the grace time is over; its process has gone then.

    D60: it can be resumed, also after a restart, until somebody ends it.
    """
    with quick.phones(1) as (leaves,):
        stays = quick.phone().ready()
        script.assert_gone()
        sid = begin(quick, leaves, agent="plain")
        (pid,) = script.processes()
        ask(leaves, sid, "hello")
        leaves.vanish()
        gone = time.monotonic()
        assert stays.expect("session_end", session_id=sid)["payload"]["reason"] == "timeout"
        assert time.monotonic() - gone >= GRACE - 0.5
        eventually(lambda: pid not in script.processes())
        restart(quick, "kill")
        assert listed(quick, sid) == ("closed", True)
        leaves.connect()
        open_ones = leaves.auth()["payload"]["active_sessions"]
        assert sid not in [one["session_id"] for one in open_ones], "D25"
        leaves.health_check()
        refused = assert_refused(start(leaves, quick.root, sid), "SESS_CLOSED", False, sid)
        assert "Resume it" in refused["message"]
        answer = start(leaves, quick.root, sid, resume=True)
        assert answer["payload"]["session_status"] == "active", answer
        assert script.lines("load")[-1]["session"] == f"scripted-{pid}"
        assert listed(quick, sid) == ("active", False)
        stays.ready()
        stays.expect("session_started", session_id=sid)
        types = [m["type"] for m in stays.messages if m.get("payload", {}).get("session_id") == sid]
        # the end comes again unless it was acknowledged meanwhile
        assert types[-1] == "session_started", "who was away ends up with the truth"
        assert "5 characters" in words(ask(leaves, sid, "again"))
        end(leaves, sid)
        assert listed(quick, sid) == ("closed", False)
        assert_refused(start(leaves, quick.root, sid, resume=True), "SESS_CLOSED", False, sid)
        stays.close()


def listed(bridge: Bridge, session_id: str) -> tuple[str, bool]:
    """The session's state, and whether it can be resumed, in GET /sessions."""
    sessions = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    (found,) = [one for one in sessions if one["id"] == session_id]
    return found["status"], found["resumable"]


@pytest.fixture(scope="module")
def expired(quick: Bridge) -> dict[str, str]:
    """Sessions that the grace timer has closed, by their agents; in `unasked` nothing was said."""
    with quick.phones(2) as (leaves, stays):
        found = {
            agent: begin(quick, leaves, agent=agent) for agent in ("plain", "no-load", "forgets")
        }
        for sid in found.values():
            ask(leaves, sid, "hello")
        found["unasked"] = begin(quick, leaves, agent="no-load")
        leaves.vanish()
        for sid in found.values():
            stays.expect("session_end", session_id=sid, reason="timeout")
    return found


def test_what_the_grace_timer_closed_is_ended_for_good(
    quick: Bridge, phone: Phone, expired: dict[str, str]
) -> None:
    """D60: by a person, who need not resume it for that; every device is told."""
    sid = expired["plain"]
    assert listed(quick, sid) == ("closed", True)
    with quick.phones(1) as (other,):
        assert end(phone, sid)["type"] == "session_end"
        other.expect("session_end", session_id=sid, reason="user_request")
    assert listed(quick, sid) == ("closed", False)
    for answer in (start(phone, quick.root, sid, resume=True), end(phone, sid)):
        assert_refused(answer, "SESS_CLOSED", False, sid)


def test_an_agent_without_its_checkpoint(
    quick: Bridge, phone: Phone, expired: dict[str, str]
) -> None:
    """D60: one that cannot load is not resumable; one that has forgotten it stays closed, and is not
    resumable from then on. Where nothing was said it begins afresh.
    """
    for agent in ("no-load", "forgets"):
        sid = expired[agent]
        assert listed(quick, sid) == ("closed", agent == "forgets")
        answer = start(phone, quick.root, sid, resume=True)
        assert_refused(answer, "SESS_NOT_RESUMABLE", False, sid)
        assert listed(quick, sid) == ("closed", False)
        refused = assert_refused(start(phone, quick.root, sid), "SESS_CLOSED", False, sid)
        assert "Resume it" not in refused["message"]
    sid = expired["unasked"]
    assert listed(quick, sid) == ("closed", True)
    assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
    assert words(ask(phone, sid, "hello"))
    end(phone, sid)


@pytest.mark.spec("state.grace", "state.reconnect")
def test_what_keeps_a_session(quick: Bridge) -> None:
    """Spec: coming back clears the timer; D35: a turn in progress, here one that waits for a
    decision, is waited for; who watches keeps it too.
    """
    with quick.phones(3) as (phone, watcher, other):
        back, watched, deciding, left = (begin(quick, phone) for _ in range(4))
        watcher.join(watched)
        call_id = tool(phone, deciding)["tool_call_id"]
        phone.vanish()
        gone = time.monotonic()
        eventually(lambda: not quick.session(back)["websocket_connected"])
        phone.ready()
        phone.join(back)
        other.expect("session_end", session_id=left, reason="timeout")
        wait_for(max(0.1, gone + 2 * GRACE + 1 - time.monotonic()), other)
        assert [status(quick, sid) for sid in (back, watched, deciding)] == ["active"] * 3
        assert decide(other, deciding, call_id, "approved")["payload"]["forwarded"] is True
        other.expect("session_end", session_id=deciding, reason="timeout")
        phone.vanish()
        watcher.vanish()
        for sid in (back, watched):
            other.expect("session_end", session_id=sid, reason="timeout")


@pytest.mark.spec("state.reconnect", "ws.replay_buffer.reconnect")
def test_a_tunnel_in_the_middle_of_a_stream(quick: Bridge, phone: Phone) -> None:
    """D27, D28: what was acknowledged, the replay_buffer and what is live then make the whole text,
    each row once and in order.
    """
    sid = begun(quick, phone, "/rate t 6000 100", "plain")  # a minute, unless it is interrupted
    watcher = quick.phone().ready()
    watcher.join(sid)
    seen: list[Message] = []

    def look() -> None:
        """Keep what is new."""
        ids = {message["id"] for message in seen}
        seen.extend(one for one in stream(phone.messages, sid) if one["id"] not in ids)

    for _ in range(2):
        before = len(phone.messages)
        phone.collect(
            lambda before=before: len(stream(phone.messages[before:], sid)) >= 3,  # type: ignore[misc]
            "some of it",
        )
        look()
        phone.ack(*seen)
        look()
        phone.vanish()
        watcher.collect(
            lambda last=seen[-1]["id"]: len(after(watcher, sid, last)) > 2,  # type: ignore[misc]
            "what is said meanwhile",
        )
        phone.ready()
        phone.join(sid)
        buffer = phone.expect("replay_buffer", session_id=sid)["payload"]
        assert buffer["complete"] is True
        replayed = stream(buffer["messages"], sid)
        again = [message for message in replayed if message in seen]
        assert again == seen[len(seen) - len(again) :], "D27: at least once, what was not acked"
        assert len(replayed) > len(again), "and what was said in the tunnel"
        seen += replayed[len(again) :]
        phone.untaken.clear()
    phone.send("session_interrupt", {"session_id": sid})
    phone.collect(lambda: bool(of(phone, "stream_end", sid)), "its end")
    look()
    said = words(seen)
    assert said == "".join(f"t-{number} " for number in range(said.count(" ")))
    assert seen[-1]["type"] == "stream_end" and stream(log_of(phone, sid), sid) == seen
    end(phone, sid)
    watcher.close()


def after(phone: Phone, session_id: str, id_: str) -> list[str]:
    """The ids of what came live after that message."""
    ids = [message["id"] for message in stream(phone.messages, session_id)]
    return ids[ids.index(id_) + 1 :] if id_ in ids else []


# -- how whole and in which order words reach the phones; how soon: `make bench ARGS=streams` ------


@pytest.mark.spec("ws.stream_start", "ws.stream_chunk", "ws.stream_end")
def test_ten_sessions_to_two_phones(quick: Bridge) -> None:
    """Issue, Shown by: ten sessions at once, 100 chunks a second each, two phones: nothing lost, in
    order, the same rows for both; a heartbeat is answered meanwhile.
    """
    with quick.phones(3) as (first, second, pulse):
        sessions = [begin(quick, first, agent="plain") for _ in range(SESSIONS)]
        for sid in sessions:
            second.join(sid)
        for number, sid in enumerate(sessions):
            say(first, sid, f"/rate s{number} {COUNT} {PER_SECOND}")
        pulse.ping()
        rows = 0
        for number, sid in enumerate(sessions):
            for phone in (first, second):
                phone.collect(
                    lambda phone=phone, sid=sid: bool(of(phone, "stream_end", sid)),  # type: ignore[misc]
                    "its end",
                )
            begun, *chunks, ended = seen = stream(first.messages, sid)
            assert stream(second.messages, sid) == seen, f"other rows of session {number}"
            assert (begun["type"], ended["type"]) == ("stream_start", "stream_end")
            assert words(chunks) == "".join(f"s{number}-{chunk} " for chunk in range(COUNT))
            assert ended["payload"]["finish_reason"] == "stop"
            rows += len(seen)
        for sid in sessions:
            end(first, sid)
    assert rows < SESSIONS * COUNT / 2, "what is said within 50 ms is one row"


def test_a_phone_that_does_not_read_slows_nobody(quick: Bridge, script: Script) -> None:
    """D30; issue: a slow phone never slows the agent: 4 MB said at full speed are with the other
    phone at once, and the slow one gets all of it later. One that comes then gets the last of it.
    """
    with quick.phones(2) as (reads, slow):
        sid = begin(quick, reads, agent="plain")
        slow.join(sid)
        label, count = "x" * 2000, 2000
        messages = ask(reads, sid, f"/rate {label} {count} 1000000")
        assert script.lines("said")[-1]["label"] == label, "the agent has said it all"
        assert words(messages) == "".join(f"{label}-{number} " for number in range(count))
        slow.collect(lambda: bool(of(slow, "stream_end", sid)), "the end, at last")
        assert stream(slow.messages, sid) == stream(reads.messages, sid)
        with quick.phones(1) as (late,):
            late.join(sid)
            buffer = late.expect("replay_buffer", session_id=sid)["payload"]
            assert buffer["complete"] is False, "D29: what was cut is said"
            assert len(json.dumps(buffer["messages"])) < 110_000, "D30"
            assert buffer["messages"][-1] == messages[-1]
        end(reads, sid)
    script.assert_gone()
