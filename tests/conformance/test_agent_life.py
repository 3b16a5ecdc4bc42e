"""What becomes of a session and of its agent: started slowly, left, come back to, resumed; and how
its words reach the phones (D26, D28 to D30, D34 to D38; issue, The session's life).
"""

import json
import os
import signal
import time

import pytest

from tests.conformance.agent_tools import (
    Script,
    begun,
    bridge_of,
    http_say,
    later,
    script_of,
    stream,
    wait_status,
)
from tests.conformance.agents import ask, begin, end, log_of, resume, say, send_start, start, words
from tests.conformance.approvals import assert_refused, decide, of
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import with_limits
from tests.servers import wait_until

GRACE = 4
SESSIONS, PER_SECOND, COUNT = 10, 100, 200

script = script_of("plain", "told", "no-load", "forgets", "hangs", "stuck")
# a phone that does not read is left alone
PATIENT = with_limits(SLOW_SOCKET_SECONDS=300, LIVENESS_SECONDS=300)
bridge = bridge_of(first=PATIENT, BRIDGE_SESSION_GRACE_SECONDS=str(GRACE), BRIDGE_MAX_SESSIONS="50")


def listed(bridge: Bridge, session_id: str) -> tuple[str, bool]:
    """The session's state, and whether it can be resumed, in GET /sessions."""
    sessions = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    (found,) = [one for one in sessions if one["id"] == session_id]
    return found["status"], found["resumable"]


def test_agents_that_are_not_waited_for(bridge: Bridge, script: Script, phone: Phone) -> None:
    """A bridge that ends while an agent starts; D39: what was accepted is said when it runs."""
    sessions = {how: new_session() for how in ("stop", "kill")}
    for how, sid in sessions.items():
        send_start(phone, bridge.root, sid, "told")
        wait_until(lambda sid=sid: bridge.knows(sid) and script.processes())
        early = http_say(bridge, sid, {"type": "user_message", "content": f"before the {how}"})
        assert early.json()["accepted"] is True
        assert bridge.session(sid)["status"] == "created"
        bridge.restart(how)
        script.assert_gone()
        assert bridge.session(sid)["status"] == "paused"
        phone.ready()
    script.go.touch()
    for how, sid in sessions.items():
        assert resume(bridge, phone, sid)["type"] == "session_ready"
        say(phone, sid, "and now")
        said = [f"before the {how}", "and now"]
        wait_until(lambda said=said: script.prompts()[-2:] == said)
        end(phone, sid)


@pytest.mark.spec("client.repeat")
def test_a_creation_that_a_crash_cut_off(bridge: Bridge, script: Script, phone: Phone) -> None:
    """D31: with `session_id: null`, sent again after the restart: that session, and no other."""
    script.go.unlink(missing_ok=True)
    body = {"agent": "told", "session_id": None, "resume": False}
    body["working_directory"] = str(bridge.root)

    def known() -> set[str]:
        listing = bridge.get("/api/v1/sessions", bridge.admin_token).json()
        return {one["id"] for one in listing["sessions"]}

    before = known()
    id_ = phone.send("session_start", body)
    wait_until(script.processes)
    bridge.restart("kill")
    script.go.touch()
    answer = send(phone.ready(), "session_start", id_, body)
    made = known() - before
    assert made == {answer["payload"]["session_id"]} and answer["type"] == "session_ready"
    end(phone, *made)


@pytest.mark.spec("ws.session_interrupt")
def test_an_agent_that_does_not_yield(bridge: Bridge, script: Script, phone: Phone) -> None:
    """D40: stream_end with stop; it is killed after five seconds, and the session paused."""
    sid = begun(bridge, phone, "/deaf")
    began = time.monotonic()
    phone.send("session_interrupt", {"session_id": sid})
    phone.expect("stream_end", session_id=sid, finish_reason="stop", interrupted=True)
    wait_until(lambda: bridge.session(sid)["status"] == "paused")
    assert time.monotonic() - began > 4
    script.assert_gone()
    assert resume(bridge, phone, sid)["type"] == "session_ready"
    assert "2 characters" in words(ask(phone, sid, "hi")) and script.prompts().count("/deaf") == 1
    end(phone, sid)


ASKS_LATE = later(
    "call = {'title': 'touch late', 'kind': 'execute', 'rawInput': {'command': 'touch late'}}\n"
    "outcome = answer(ask('late', **call)).get('outcome', {})\n"
    "journal('decided', outcome=outcome)\n"
    "if 'optionId' in outcome:\n"
    "    update('tool_call_update', toolCallId='late', status='completed')"
)


def acts_late(bridge: Bridge, phone: Phone) -> tuple[str, str]:
    """A session in which the agent asks when its turn is over, and the call."""
    sid = begin(bridge, phone, agent="plain")
    ask(phone, sid, ASKS_LATE)
    (bridge.root / "go").touch()
    asked = phone.expect("approval_required", session_id=sid)["payload"]
    (bridge.root / "go").unlink()
    assert bridge.session(sid)["turn"] == "waiting"
    return sid, asked["tool_call_id"]


@pytest.mark.parametrize("how", ["approved", "interrupted", "prompted", "died"])
def test_what_an_agent_does_outside_a_turn(
    bridge: Bridge, script: Script, phone: Phone, how: str
) -> None:
    """D54, D40: the session is at rest when the call is over; it has no stream of its own."""
    sid, call_id = acts_late(bridge, phone)
    if how == "approved":
        decide(phone, sid, call_id, how)
    elif how != "died":
        if how == "prompted":  # the call is one of the turn that begins
            say(phone, sid, "/do agent.cancelled.wait()")
            phone.until(lambda message: "cancelled.wait" in str(message), "it was taken")
            shown = bridge.session(sid)
            assert (shown["turn"], bool(shown["doing"])) == ("waiting", True)
        phone.send("session_interrupt", {"session_id": sid})
    else:
        os.kill(script.lines("new")[-1]["pid"], signal.SIGKILL)
        wait_status(bridge, sid, "error")
    told = phone.expect("tool_result", session_id=sid, tool_call_id=call_id)["payload"]
    assert told["result"]["success"] is (how == "approved")
    wait_until(lambda: bridge.session(sid)["turn"] == "idle")
    if how != "died":
        chosen = "allow_once" if how == "approved" else None
        wait_until(lambda: script.lines("decided")[-1]["outcome"].get("optionId") == chosen)
        phone.ping()  # behind what the turn before has left
        phone.untaken.clear()
        shown = ask(phone, sid, "hello")[0]["payload"]["payload"]
        assert (shown["prompt"], shown["queued"]) == ("hello", False)
        end(phone, sid)
    assert len(of(phone, "stream_end", sid)) == {"died": 1, "prompted": 3}.get(how, 2)


@pytest.mark.parametrize("then", ["silence", "a prompt"])
def test_what_an_agent_says_outside_a_turn(bridge: Bridge, phone: Phone, then: str) -> None:
    """D76: it is a turn of its own, with its calls; a prompt that comes ends that, and begins."""
    sid = begin(bridge, phone, agent="plain")
    call = "'tool_call', toolCallId='b', title='make', kind='execute', status='completed'"
    ask(phone, sid, later(f"update({call}, rawInput={{'command': 'make'}})\nsay('3 tests fail')"))
    phone.untaken.clear()
    (bridge.root / "go").touch()
    phone.expect("tool_result", session_id=sid, tool="Bash")
    begun = phone.expect("stream_start", session_id=sid)["payload"]["message_id"]
    phone.expect("stream_chunk", session_id=sid, content="3 tests fail", message_id=begun)
    (bridge.root / "go").unlink()
    assert bridge.session(sid)["turn"] == "working"
    if then == "a prompt":
        say(phone, sid, "hello")
    phone.expect("stream_end", session_id=sid, finish_reason="stop", message_id=begun)
    if then == "a prompt":
        phone.expect("stream_end", session_id=sid, finish_reason="stop")
        assert "5 characters" in words(phone.messages)
    wait_until(lambda: bridge.session(sid)["turn"] == "idle")
    assert words(ask(phone, sid, "and")).endswith("and")
    end(phone, sid)
    starts, ends = (of(phone, f"stream_{which}", sid) for which in ("start", "end"))
    ids = [[one["payload"]["message_id"] for one in each] for each in (starts, ends)]
    assert ids[0] == ids[1] and len(set(ids[0])) == (3 if then == "silence" else 4)


def test_a_start_that_hangs(bridge: Bridge, script: Script, phone: Phone, sid: str) -> None:
    """Issue: whoever wants to ends it, without having joined; its process is gone at once."""
    asked = send_start(phone, bridge.root, sid, "hangs")
    wait_until(lambda: bridge.knows(sid) and script.processes())
    phone.ping()
    with bridge.phones(1) as (other,):
        assert end(other, sid)["type"] == "session_end"
        assert_refused(phone.answer_to(asked), "SESS_CLOSED", False, sid)
        script.assert_gone()
        assert listed(bridge, sid) == ("closed", False)
        assert_refused(start(other, bridge.root, sid), "SESS_CLOSED", False, sid)


def test_a_resume_that_hangs_is_interrupted(bridge: Bridge, script: Script, phone: Phone) -> None:
    """Also when another phone resumes it at that moment: there are never two agents of it."""
    sid = begin(bridge, phone, agent="stuck")
    ask(phone, sid, "hello")
    bridge.restart("kill")
    phone.ready()
    with bridge.phones(1) as (other,):
        for at_once in (False, True):
            loads = len(script.lines("load"))
            asked = send_start(phone, "", sid, "", resume=True)
            wait_until(lambda loads=loads: len(script.lines("load")) > loads)
            phone.send("session_interrupt", {"session_id": sid})
            again = send_start(other, "", sid, "", resume=True) if at_once else ""
            assert_refused(phone.answer_to(asked), "SESS_NOT_ACTIVE", True, sid)
            if not at_once:
                assert listed(bridge, sid) == ("paused", True)
                script.assert_gone()
        wait_until(lambda: len(script.processes()) <= 1)
        phone.join(sid)
        end(phone, sid)
        other.answer_to(again)
        script.assert_gone()


@pytest.mark.slow
@pytest.mark.spec("state.grace", "state.grace_over", "limit.grace")
def test_what_the_grace_timer_closed(bridge: Bridge, script: Script, phone: Phone) -> None:
    """D60: it can be resumed, also after a restart; not what a person has ended for good since, nor
    what its agent cannot load.
    """
    script.assert_gone()
    with bridge.phones(2) as (leaves, other):
        kept = begin(bridge, leaves, agent="plain")
        (pid,) = script.processes()
        agents = ("plain", "no-load", "forgets")
        ended, *lost = sessions = [begin(bridge, leaves, agent=agent) for agent in agents]
        for sid in (kept, *sessions):
            ask(leaves, sid, "hello")
        unasked = begin(bridge, leaves, agent="no-load")
        gone = time.monotonic()
        leaves.vanish()
        for sid in (kept, *sessions, unasked):
            other.expect("session_end", session_id=sid, reason="timeout")
            assert time.monotonic() - gone >= GRACE
        script.assert_gone()
        bridge.restart("kill")
        states = [listed(bridge, sid) for sid in (kept, *sessions, unasked)]
        assert states == [("closed", resumable) for resumable in (True, True, False, True, True)]

        open_ones = leaves.connect().auth()["payload"]["active_sessions"]
        assert kept not in [one["session_id"] for one in open_ones], "D25"
        leaves.health_check()
        refused = assert_refused(start(leaves, bridge.root, kept), "SESS_CLOSED", False, kept)
        assert "Resume it" in refused["message"]
        assert resume(bridge, leaves, kept)["payload"]["session_status"] == "active"
        assert script.lines("load")[-1]["session"] == f"scripted-{pid}"
        assert listed(bridge, kept) == ("active", False)
        other.ready().expect("session_started", session_id=kept)
        about = [one for one in other.messages if one.get("payload", {}).get("session_id") == kept]
        # the end comes again unless it was acknowledged meanwhile
        assert about[-1]["type"] == "session_started", "who was away ends up with the truth"
        assert "5 characters" in words(ask(leaves, kept, "again"))
        end(leaves, kept)

        assert end(phone.ready(), ended)["type"] == "session_end"
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


@pytest.mark.slow
@pytest.mark.spec("state.grace", "state.reconnect")
def test_what_keeps_a_session(bridge: Bridge) -> None:
    """Coming back, who watches, and (D35) a turn in progress, which is waited for."""
    with bridge.phones(4) as (phone, returning, watcher, other):

        def comes_back() -> str | None:
            """The session that it had left for less than the grace time."""
            sid = begin(bridge, returning)
            returning.vanish()
            wait_until(lambda: not bridge.session(sid)["websocket_connected"])
            return sid if returning.ready().start(sid)["type"] == "session_ready" else None

        back = wait_until(comes_back)
        watched, deciding, left = (begin(bridge, phone) for _ in range(3))
        late, late_call = acts_late(bridge, phone)
        watcher.join(watched)
        say(phone, deciding, '/tool Bash {"command": "make"}')
        asked = phone.expect("approval_required", session_id=deciding)["payload"]
        phone.vanish()
        gone = time.monotonic()
        other.expect("session_end", session_id=left, reason="timeout")
        other.stay(gone + 2 * GRACE + 1 - time.monotonic())
        for sid in (back, watched, deciding, late):
            assert bridge.session(sid)["status"] == "active"
        for sid, call_id in ((deciding, asked["tool_call_id"]), (late, late_call)):
            assert decide(other, sid, call_id, "approved")["payload"]["forwarded"] is True
            other.expect("session_end", session_id=sid, reason="timeout")
        returning.vanish()
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
    phone.expect("stream_end", session_id=sid)
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
            first.expect("stream_end", session_id=sid)
            second.expect("stream_end", session_id=sid)
            _, *chunks, ended = seen = stream(first.messages, sid)
            assert stream(second.messages, sid) == seen, f"other rows of session {number}"
            assert words(chunks) == "".join(f"s{number}-{chunk} " for chunk in range(COUNT))
            assert ended["payload"]["finish_reason"] == "stop"
            rows += len(seen)
            end(first, sid)
    assert rows < SESSIONS * COUNT / 2, "what is said within 50 ms is one row"


@pytest.mark.spec("delivery.slow")
def test_answers_that_a_phone_does_not_read(bridge: Bridge, phone: Phone, sid: str) -> None:
    """D30: each is made when those before it have been read; nobody else waits."""
    bridge.accept(prompt(sid, "first"))
    (bridge.root / "large").write_text("x" * 4_000_000)
    slow = RawSocket(bridge.port, receive_buffer=65536).ready(bridge.device_token())
    joining = {"agent": "a", "session_id": sid, "working_directory": "/", "resume": False}
    slow.read_until(slow.send("session_start", joining))
    phone.join(sid)
    large, before = {"session_id": sid, "path": str(bridge.root / "large")}, bridge.memory()
    asked = [slow.send("file_read", large) for _ in range(25)]
    for _ in asked:  # each takes as long as one of the other's
        phone.request("file_read", large)
    assert bridge.memory() - before < 64 * 1024 * 1024, "100 MB must not pile up in memory"
    for one in asked:
        assert len(slow.read_until(one)["payload"]["content"]) == 4_000_000
    slow.close()


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
        slow.expect("stream_end", session_id=sid)
        assert stream(slow.messages, sid) == stream(reads.messages, sid)
        with bridge.phones(1) as (late,):
            late.join(sid)
            buffer = late.expect("replay_buffer", session_id=sid)["payload"]
            assert buffer["complete"] is False, "D29: what was cut is said"
            assert len(json.dumps(buffer["messages"])) < 110_000, "D30"
            assert buffer["messages"][-1] == messages[-1]
        end(reads, sid)
    script.assert_gone()
