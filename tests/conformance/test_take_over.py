"""A session of a terminal goes on under the bridge, and back (D67): the table, row by row."""

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conformance.agents import ask, say, words
from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge
from tests.conformance.desk import (
    Desk,
    Place,
    bridge_beside,
    give_back,
    place_of_module,
    refused,
    take,
)
from tests.conformance.phone import Phone
from tests.conformance.samples import hook
from tests.conformance.terminal import heard, until
from tests.servers import wait_until

pytestmark = pytest.mark.spec("ws.session_start ws.session_end")

Sit = Callable[..., Desk]


place, bridge = place_of_module(), bridge_beside()


@pytest.fixture
def sit_down(place: Place, bridge: Bridge, phone: Phone) -> Iterator[Sit]:
    """The program in a terminal, whose session the phone has joined; it ends with the test."""
    with ExitStack() as ending:

        def open_(**how: Any) -> Desk:
            desk = Desk(place, how.pop("bridge", bridge), **how)
            ending.callback(desk.kill)
            until(phone, desk.session_id, kind="observed", turn="working")
            phone.join(desk.session_id)
            return desk

        yield open_
        for session in bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]:
            if session["kind"] == "bridge" and session["status"] in ("active", "paused"):
                phone.join(session["id"])
                phone.request(
                    "session_end", {"session_id": session["id"], "reason": "user_request"}
                )


@pytest.fixture
def desk(sit_down: Sit) -> Desk:
    """One that is idle."""
    return sit_idle(sit_down)


def sit_idle(sit_down: Sit, **how: Any) -> Desk:
    desk = sit_down(**how)
    desk.stop()
    return desk


def continued(phone: Phone, session_id: str) -> dict[str, Any]:
    phone.collect(lambda: any(one["session_id"] == session_id for one in phone.updates), "a view")
    found: dict[str, Any] = [one for one in phone.updates if one["session_id"] == session_id][-1]
    return dict(found["continue"])


def agents_of(place: Place) -> list[int]:
    """The processes of the scripted program that run under a bridge."""
    found = psutil.process_iter(["cmdline"])
    return [one.pid for one in found if str(place.agent) in (one.info["cmdline"] or ())]


# taking over


def test_a_program_that_is_gone(place: Place, phone: Phone, desk: Desk) -> None:
    """Same id, same rows, one branch; what has to be typed at the desk is said."""
    desk.leave()
    until(phone, desk.session_id, session_status="closed")
    until(phone, desk.session_id, **{"continue": {"how": "take_over", "reason": "", "ends": False}})
    ready = take(phone, desk.session_id)["payload"]
    assert ready["session_id"] == desk.session_id and ready["agent"] == "claude-code"
    assert ready["session_status"] == "active" and ready["asks"] is True
    assert ready["resume_command"] == f"claude --resume {desk.session_id}"
    until(phone, desk.session_id, kind="bridge", session_status="active", resumable=False)
    assert continued(phone, desk.session_id)["how"] == "join"
    assert words(ask(phone, desk.session_id, "on the phone")) == "bridge: on the phone"
    said = ["from the desk", "desk: done", "on the phone", "bridge: on the phone"]
    assert place.said(desk.session_id, desk.directory) == said
    prompts = [one["payload"]["payload"].get("prompt") for one in phone.events(desk.session_id)]
    assert [one for one in prompts if one] == ["from the desk", "on the phone"]


def test_an_idle_program_is_ended_on_the_word_only(phone: Phone, desk: Desk) -> None:
    desk.register("idle")
    until(phone, desk.session_id, **{"continue": {"how": "take_over", "reason": "", "ends": True}})
    error = refused(take(phone, desk.session_id), "SESS_AT_THE_DESK")
    assert error["recoverable"] and error["details"] == {"status": "idle"}
    assert desk.process.poll() is None
    assert take(phone, desk.session_id, "end_terminal")["type"] == "session_ready"
    assert desk.process.wait(60) == 143
    until(phone, desk.session_id, kind="bridge", session_status="active")
    phone.collect(lambda: "Taken over from the machine" in heard(phone, desk.session_id), "said")
    assert not of(phone, "session_end", desk.session_id)


def test_what_it_asks_is_rejected(phone: Phone, sit_down: Sit) -> None:
    desk = sit_down()
    desk.tool("PreToolUse", "make deploy", "t1")
    desk.tool("PermissionRequest", "make deploy")
    until(phone, desk.session_id, turn="waiting")
    assert take(phone, desk.session_id, "end_terminal")["type"] == "session_ready"
    data = phone.expect("notification", notification_type="approval_decided")["payload"]["data"]
    assert (data["decision"], data["decided_by"]) == ("rejected", "bridge")
    assert data["reason"] == "taken_over"
    until(phone, desk.session_id, kind="bridge", turn="idle", pending_approvals=0)


@pytest.mark.parametrize("registered", [True, False])
def test_a_busy_program(phone: Phone, sit_down: Sit, registered: bool) -> None:
    desk = sit_down()
    if registered:
        desk.stop()
        until(phone, desk.session_id, turn="idle")
        desk.register("busy")
    else:
        assert continued(phone, desk.session_id)["how"] is None
    error = refused(take(phone, desk.session_id, "end_terminal"), "SESS_AT_THE_DESK")
    assert error["details"] == {"status": "busy"} and desk.process.poll() is None
    until(phone, desk.session_id, kind="observed", session_status="active")


def test_by_two_phones_at_once(bridge: Bridge, place: Place, phone: Phone, desk: Desk) -> None:
    desk.leave()
    with bridge.phones(1) as (other,):
        other.ready()
        about = {"session_id": desk.session_id, "agent": "primary-agent", "resume": True}
        about |= {"working_directory": "/", "take_over": True}
        sent = [(one, one.send("session_start", about)) for one in (phone, other)]
        answers = [one.answer_to(id_) for one, id_ in sent]
    assert [one["type"] for one in answers] == ["session_ready"] * 2
    assert len(agents_of(place)) == 1
    assert take(phone, desk.session_id)["type"] == "session_ready", "and once more"


# giving back, and being left


def test_given_back(place: Place, phone: Phone, desk: Desk) -> None:
    """The agent is stopped, nothing has ended; the desk goes on, or the phone does."""
    desk.leave()
    assert take(phone, desk.session_id)["type"] == "session_ready"
    give_back(phone, desk.session_id)
    view = until(phone, desk.session_id, kind="observed", session_status="paused")
    assert view["continue"] == {"how": "take_over", "reason": "", "ends": False}
    wait_until(lambda: not agents_of(place))
    assert len(of(phone, "session_end", desk.session_id)) == 1, "the desk's own"
    assert take(phone, desk.session_id)["type"] == "session_ready"
    give_back(phone, desk.session_id)
    until(phone, desk.session_id, kind="observed", session_status="paused")


def test_given_back_the_desk_goes_on(
    place: Place, bridge: Bridge, phone: Phone, desk: Desk, sit_down: Sit
) -> None:
    desk.leave()
    assert take(phone, desk.session_id)["type"] == "session_ready"
    say(phone, desk.session_id, "wait")
    until(phone, desk.session_id, turn="working")
    give_back(phone, desk.session_id)
    until(phone, desk.session_id, kind="observed", session_status="paused", turn="idle")
    again = sit_down(session_id=desk.session_id)
    again.stop()
    until(phone, desk.session_id, kind="observed", session_status="active", turn="idle")
    assert continued(phone, desk.session_id) == {"how": "take_over", "reason": "", "ends": True}


def test_the_desk_goes_on_in_a_turn_of_the_bridge(
    place: Place, bridge: Bridge, phone: Phone, desk: Desk, sit_down: Sit
) -> None:
    """The bridge leaves at once: its turn is over, its question rejected, its agent gone."""
    desk.leave()
    assert take(phone, desk.session_id)["type"] == "session_ready"
    say(phone, desk.session_id, "ask")
    phone.expect("approval_required", session_id=desk.session_id)
    again = sit_down(session_id=desk.session_id)
    until(phone, desk.session_id, kind="observed", session_status="active", pending_approvals=0)
    phone.collect(lambda: "Continued at the machine" in heard(phone, desk.session_id), "it is said")
    decided = [
        one["payload"]["data"]["reason"]
        for one in of(phone, "notification", desk.session_id)
        if one["payload"]["notification_type"] == "approval_decided"
    ]
    assert decided == ["at_the_desk"]
    wait_until(lambda: not agents_of(place))
    again.stop()
    until(phone, desk.session_id, turn="idle")


def test_a_session_that_was_begun_here_goes_on_at_the_desk(
    place: Place, bridge: Bridge, phone: Phone, sit_down: Sit
) -> None:
    """The agent has another id for it, which is what is typed there, and what its hooks name."""
    about = {"agent": "claude-code", "session_id": None, "resume": False}
    ready = phone.request("session_start", about | {"working_directory": str(bridge.root)})
    sid = ready["payload"]["session_id"]
    ask(phone, sid, "begun here")
    ready = phone.join(sid)["payload"]
    own = ready["resume_command"].removeprefix("claude --resume ")
    assert own != sid
    desk = Desk(place, bridge, session_id=own)
    try:
        until(phone, sid, kind="observed", session_status="active", turn="working")
        desk.stop()
        until(phone, sid, turn="idle")
        assert "404" in str(bridge.get(f"/api/v1/sessions/{own}", bridge.admin_token).status)
        assert take(phone, sid, "end_terminal")["type"] == "session_ready"
        assert words(ask(phone, sid, "and here")) == "bridge: and here"
        assert place.said(own, bridge.root.resolve())[-2:] == ["and here", "bridge: and here"]
    finally:
        desk.kill()


def test_closed_by_its_grace_timer_the_desk_opens_it(place: Place, tmp_path: Path) -> None:
    short = {"BRIDGE_SESSION_GRACE_SECONDS": "1"}
    with place.bridge(tmp_path / "b", **short) as bridge, bridge.phones(2) as (phone, watching):
        phone.ready()
        watching.ready()
        about = {"agent": "claude-code", "session_id": None, "resume": False}
        ready = phone.request("session_start", about | {"working_directory": str(bridge.root)})
        sid = ready["payload"]["session_id"]
        ask(phone, sid, "hello")
        own = phone.join(sid)["payload"]["resume_command"].split()[-1]
        phone.close()
        watching.expect("session_end", session_id=sid)
        desk = Desk(place, bridge, session_id=own)
        try:
            watching.expect("session_started", session_id=sid)
            until(watching, sid, kind="observed", session_status="active")
        finally:
            desk.kill()


# what is not done


def test_a_program_that_does_not_end(phone: Phone, sit_down: Sit) -> None:
    desk = sit_idle(sit_down, how="stubborn")
    until(phone, desk.session_id, turn="idle")
    began = time.monotonic()
    error = refused(take(phone, desk.session_id, "end_terminal"), "SESS_AT_THE_DESK")
    assert "has not within 2 seconds" in error["message"] and time.monotonic() - began < 30
    assert desk.process.poll() is None
    until(phone, desk.session_id, kind="observed", session_status="active")


def test_a_program_that_was_stopped_by_a_key(phone: Phone, desk: Desk) -> None:
    """Ctrl-Z: it is told nothing that would end it at `fg`, when the phone has gone elsewhere."""
    until(phone, desk.session_id, turn="idle")
    desk.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: psutil.Process(desk.process.pid).status() == psutil.STATUS_STOPPED)
    error = refused(take(phone, desk.session_id, "end_terminal"), "SESS_AT_THE_DESK")
    assert "Type fg in its terminal" in error["message"]
    desk.process.send_signal(signal.SIGCONT)
    desk.hook("Notification", message="on again")
    assert desk.process.poll() is None
    assert take(phone, desk.session_id, "end_terminal")["type"] == "session_ready"
    assert desk.process.wait(60) == 143


def test_another_one_that_begins_while_the_first_is_ended(
    place: Place, bridge: Bridge, phone: Phone, sit_down: Sit, tmp_path: Path
) -> None:
    """It has the session: the bridge writes nothing beside it."""
    leave = tmp_path / "leave"
    desk = sit_idle(sit_down, how=str(leave))
    until(phone, desk.session_id, turn="idle")
    about = {"agent": "claude-code", "session_id": desk.session_id, "working_directory": "/"}
    asked = phone.send("session_start", about | {"resume": True, "take_over": "end_terminal"})
    wait_until(Path(f"{leave}.asked").exists, "the first is told to end")
    other = Desk(place, bridge, session_id=desk.session_id)
    try:
        until(phone, desk.session_id, turn="working")
        leave.touch()
        refused(phone.answer_to(asked), "SESS_AT_THE_DESK")
        assert desk.process.wait(60) == 143 and other.process.poll() is None
        until(phone, desk.session_id, kind="observed", session_status="active")
    finally:
        other.kill()


def test_a_program_that_has_gone_on_with_another_session(phone: Phone, desk: Desk) -> None:
    until(phone, desk.session_id, turn="idle")
    desk.register("busy", sessionId=str(uuid.uuid4()))
    refused(take(phone, desk.session_id, "end_terminal"), "SESS_AT_THE_DESK")
    assert desk.process.poll() is None


def test_checks_come_before_the_end(
    place: Place, bridge: Bridge, phone: Phone, sit_down: Sit, tmp_path: Path
) -> None:
    """No root, no transcript, a damaged one: the program lives on."""
    outside = sit_idle(sit_down, directory=str(tmp_path.resolve()))
    until(phone, outside.session_id, turn="idle")
    view = continued(phone, outside.session_id)
    assert view["how"] is None and "BRIDGE_ALLOWED_ROOTS" in view["reason"]
    refused(take(phone, outside.session_id, "end_terminal"), "FILE_ACCESS_DENIED")
    desk = sit_idle(sit_down)
    until(phone, desk.session_id, turn="idle")
    file = place.transcript(desk.session_id, desk.directory)
    whole = file.read_bytes()
    for damaged in (b"", b"\xff\x00" * 500, whole[:20]):
        file.write_bytes(damaged)
        refused(take(phone, desk.session_id, "end_terminal"), "SESS_NOT_RESUMABLE")
    file.unlink()
    refused(take(phone, desk.session_id, "end_terminal"), "SESS_NOT_RESUMABLE")
    refused(take(phone, desk.session_id, "end_terminal", agent="demo"), "SESS_NOT_RESUMABLE")
    assert outside.process.poll() is None and desk.process.poll() is None
    file.write_bytes(whole + b'{"cut')
    assert take(phone, desk.session_id, "end_terminal")["type"] == "session_ready"


def test_without_room_the_program_lives(place: Place, tmp_path: Path) -> None:
    room = {"BRIDGE_MAX_SESSIONS": "1"}
    with place.bridge(tmp_path / "b", **room) as bridge, bridge.phones(1) as (phone,):
        phone.ready()
        about = {"agent": "demo", "session_id": None, "resume": False}
        phone.request("session_start", about | {"working_directory": str(bridge.root)})
        desk = Desk(place, bridge)
        try:
            desk.stop()
            until(phone, desk.session_id, turn="idle")
            refused(take(phone, desk.session_id, "end_terminal"), "SESS_LIMIT_REACHED")
            assert desk.process.poll() is None
        finally:
            desk.kill()


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text()
FIRST = Path("/proc/1/stat").read_text()


def noted(bridge: Bridge, place: Place, phone: Phone, note: str) -> str:
    """An idle session of the process that a note names."""
    sid = str(uuid.uuid4())
    place.write(sid, bridge.root.resolve(), "x", "y")
    for event in ("UserPromptSubmit", "Stop"):
        body = {"hook_event_name": event, "session_id": sid, "cwd": str(bridge.root.resolve())}
        spooled = bridge.data / "spool" / str(os.getpid())
        draft = bridge.data / "spool" / f".{sid}"
        draft.write_text(note + json.dumps(body | {"prompt": "x"}))
        draft.rename(spooled)
        wait_until(lambda: not spooled.exists(), "it is stored")  # noqa: B023
    phone.expect("session_started", session_id=sid)
    return sid


def note_of(pid: int, *, boot: str = BOOT, first: str = FIRST, earlier: int = 0) -> str:
    begin, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    fields = rest.split()
    fields[19] = str(int(fields[19]) - earlier)
    return f"#1 {pid} agent /nowhere\n{boot}{first}{begin}) {' '.join(fields)}\n"


def test_whom_it_does_not_end(bridge: Bridge, place: Place, phone: Phone) -> None:
    """The bridge's own parent, another program, one that cannot be compared."""
    phone.ready()
    parent = psutil.Process(bridge.running.pid).ppid()
    other = subprocess.Popen(["sleep", "900"])
    others = {
        "bridge itself": note_of(parent),
        "not sure": note_of(other.pid),
        "container": note_of(other.pid, boot="12345678-1234-1234-1234-123456789012\n"),
    }
    for why, note in others.items():
        sid = noted(bridge, place, phone, note)
        error = refused(take(phone, sid, "end_terminal"), "SESS_AT_THE_DESK")
        assert why in error["message"], error
    assert continued(phone, sid)["how"] is None
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_process_id_that_was_given_again_is_not_ended(
    bridge: Bridge, place: Place, phone: Phone
) -> None:
    """Another program has it now: the session's own is gone."""
    phone.ready()
    sid = noted(bridge, place, phone, note_of(os.getpid(), earlier=1))
    assert take(phone, sid, "end_terminal")["type"] == "session_ready"


def test_without_a_note_nobody_is_seen(bridge: Bridge, place: Place, phone: Phone) -> None:
    """As from another machine, by HTTP."""
    phone.ready()
    sid = "11111111-2222-3333-4444-555555555555"
    place.write(sid, bridge.root.resolve(), "x", "y")
    where = {"working_directory": str(bridge.root.resolve())}
    bridge.accept(hook("SessionStart", sid, where))
    phone.expect("session_started", session_id=sid)
    refused(take(phone, sid, "end_terminal"), "SESS_AT_THE_DESK")
    assert continued(phone, sid)["how"] is None


def test_a_program_without_hooks_is_seen_in_the_registry(
    bridge: Bridge, place: Place, phone: Phone, desk: Desk
) -> None:
    """It was opened on the same session: neither ended nor written beside."""
    desk.leave()
    until(phone, desk.session_id, session_status="closed")
    other = Desk(place, bridge, session_id=desk.session_id, spool=place.home)
    try:
        other.register("idle")
        refused(take(phone, desk.session_id, "end_terminal"), "SESS_AT_THE_DESK")
        assert other.process.poll() is None
    finally:
        other.kill()
    assert take(phone, desk.session_id)["type"] == "session_ready"
    give_back(phone, desk.session_id)


def test_of_two_programs_none_is_ended_unless_both_can_be(
    bridge: Bridge, place: Place, phone: Phone, desk: Desk, sit_down: Sit
) -> None:
    """Both run one session; the second is none of the agent's."""
    other = subprocess.Popen(["sleep", "900"])
    body = {"hook_event_name": "UserPromptSubmit", "session_id": desk.session_id, "prompt": "x"}
    spooled, draft = bridge.data / "spool" / str(other.pid), bridge.data / "spool" / ".two"
    draft.write_text(note_of(other.pid) + json.dumps(body | {"cwd": desk.directory}))
    draft.rename(spooled)
    wait_until(lambda: not spooled.exists(), "it is stored")
    desk.stop()
    until(phone, desk.session_id, turn="idle")
    error = refused(take(phone, desk.session_id, "end_terminal"), "SESS_AT_THE_DESK")
    assert "not sure" in error["message"] and desk.process.poll() is None
    other.kill()
    other.wait()
    assert take(phone, desk.session_id, "end_terminal")["type"] == "session_ready"
