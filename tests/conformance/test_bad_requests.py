"""Requests that nobody should make (D7, D10 to D12), and each message in each phase in which
it may not come (D21): the right code, `recoverable` right, the connection alive, nothing changed.
"""

import json
from typing import Any

import pytest

from bridge_project.protocol.base import Phase
from bridge_project.protocol.catalogue import CATALOGUE, HEARTBEATS
from tests.conformance.approvals import assert_refused, decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.repositories import Repository, Work, digest
from tests.conformance.samples import hook, new_session, now, prompt
from tests.conformance.test_violations import EXAMPLES

pytestmark = pytest.mark.spec("error.recoverable", "wscode.PROTO_SEQUENCE_ERROR")

# the documented examples (`session_id` is put in) that name a session; those that must have joined
OF_SESSIONS = {type_: said for type_, (_, said) in EXAMPLES.items() if "session_id" in said}
IN_A_SESSION = {type_ for type_, model in CATALOGUE.items() if model.needs_joined}
PHASES = {type_: model.phase for type_, model in CATALOGUE.items() if model.from_client}
# what only a session that the bridge runs can take
AGENTS = {"message", "session_interrupt", "session_set"}

DENIED, INVALID, MISSING = "FILE_ACCESS_DENIED", "FILE_INVALID_PATH", "FILE_NOT_FOUND"
LISTED = {"/etc": DENIED, "../../..": DENIED, "a.txt": INVALID, "missing": MISSING, "": INVALID}
READ = {"/etc/passwd": DENIED, "sub": INVALID, "sub/missing": MISSING, "a.txt/x": INVALID}
COMMITTED: list[tuple[str, list[str] | None, str]] = [
    ("nothing that has changed", ["same.txt"], "GIT_ERROR"),
    ("no files", [], "GIT_ERROR"),
    ("outside", ["a.txt", "/etc/passwd"], DENIED),
    ("above", ["../x", "a.txt"], DENIED),
    ("what is missing", ["a.txt", "missing"], "GIT_ERROR"),
    ("10,000 names", ["a.txt", *(f"missing {number}" for number in range(10_000))], "GIT_ERROR"),
    ("an option for a name", ["--all"], "GIT_ERROR"),
    ("options for names", ["--amend", "--no-edit"], "GIT_ERROR"),
    ("a pattern", ["*.txt"], "GIT_ERROR"),
    ("pathspec magic", [":/"], "GIT_ERROR"),
    ("an exclusion", [":!a.txt"], "GIT_ERROR"),
    ("the git directory", [".git/config"], "GIT_ERROR"),
    ("the empty name", ["a.txt", ""], INVALID),
    ("", ["a.txt"], "GIT_ERROR"),  # without words
    (" \n\t", None, "GIT_ERROR"),
    ("a\x00b", ["a.txt"], "GIT_ERROR"),
]
# the message, its fields besides the session, and the one code that answers it (D10, D12)
REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    *[("file_list", {"path": path}, code) for path, code in LISTED.items()],
    *[("file_read", {"path": path}, code) for path, code in READ.items()],
    ("file_read", {"path": "a.txt", "offset": -1, "limit": 1}, "PROTO_INVALID_MESSAGE"),
    ("git_diff", {"files": ["/etc/passwd"], "cached": False}, DENIED),
    ("git_diff", {"files": ["a.txt", "../x"], "cached": True}, DENIED),
    ("git_diff", {"files": ["a\x00"], "cached": False}, INVALID),
    ("git_diff", {"files": ["a" * 5000], "cached": False}, INVALID),
    ("git_diff", {"files": [5], "cached": False}, "PROTO_INVALID_MESSAGE"),
    *[("git_commit", {"message": text, "files": files}, code) for text, files, code in COMMITTED],
]


def ask_in(phone: Phone, session_id: str, type_: str) -> Message:
    """The answer to the documented example, about this session if it is about one."""
    said = EXAMPLES[type_][1] if type_ in EXAMPLES else {}
    return phone.request(type_, said | ({"session_id": session_id} if "session_id" in said else {}))


@pytest.fixture(scope="module")
def crime_scene(shared: Bridge) -> Repository:
    """A repository that all these requests leave as it is."""
    repository = Repository(shared.root / f"bad requests {new_session()[-6:]}")
    tracked = ("a.txt", "same.txt", "sub/b.txt", "staged.txt")
    repository.commit_files(dict.fromkeys(tracked, "1\n"))
    repository.write("staged.txt", "2\n")
    repository.git("add", "staged.txt")
    repository.write_files({"a.txt": "2\n", "untracked.txt": "1\n"})
    return repository


def test_bad_requests(shared: Bridge, crime_scene: Repository, phone: Phone) -> None:
    """One connection survives them all; the repository is as it was, to the last byte."""
    work = Work(shared, phone, crime_scene.path)
    crime_scene.porcelain()  # git refreshes its index now, not later
    before = digest(crime_scene.path)
    for type_, fields, code in REQUESTS:
        answer = work.ask(type_, **fields)
        about = None if code == "PROTO_INVALID_MESSAGE" else work.sid
        assert_refused(answer, code, True, about)
        assert digest(crime_scene.path) == before, str(fields)[:100]
        phone.ping()
    assert work.changes()["a.txt"] == ("modified", 1, 1)


def test_closed_sessions(shared: Bridge, crime_scene: Repository, phone: Phone) -> None:
    """D7: an observed one can be joined, replayed and read; nothing is decided, no agent hears."""
    sid, started = new_session(), {"working_directory": str(crime_scene.path)}
    shared.accept(hook("SessionStart", sid, started), hook("SessionEnd", sid))
    for type_ in IN_A_SESSION - AGENTS:
        assert_refused(ask_in(phone, sid, type_), "PROTO_SEQUENCE_ERROR", True, sid)
        phone.ping()
    phone.join(sid)
    for type_ in AGENTS:
        assert_refused(ask_in(phone, sid, type_), "SESS_CLOSED", False, sid)
    for type_ in ("git_status_request", "git_diff", "file_list"):
        assert ask_in(phone, sid, type_)["type"] != "error", type_
    assert phone.request("replay_request", {"session_id": sid})["type"] == "replay_buffer"
    assert_refused(decide(phone, sid, "x", "approved"), "SESS_CLOSED", False, sid)


def assert_sequence(answer: Message, received: str, phase: str, expected: str) -> None:
    details = assert_refused(answer, "PROTO_SEQUENCE_ERROR", True)["details"]
    assert set(details) == {"expected", "received", "currentPhase"}, details
    assert (details["received"], details["currentPhase"]) == (received, phase), details
    assert expected in json.dumps(details["expected"]), details


def assert_not_joined(phone: Phone, session_id: str) -> None:
    for type_ in IN_A_SESSION:
        answer = ask_in(phone, session_id, type_)
        assert_sequence(answer, type_, "ready", "session_start")
        assert answer["payload"]["session_id"] == session_id


@pytest.mark.spec("auth.first")
def test_before_auth(device: Phone, sid: str) -> None:
    """Not even heartbeats; auth still works afterwards."""
    device.connect()
    for type_ in PHASES.keys() - HEARTBEATS - {"auth"}:
        assert_sequence(ask_in(device, sid, type_), type_, "open", "auth")
    device.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
    assert_sequence(device.receive(), "heartbeat_ping", "open", "auth")
    assert device.auth()["type"] == "connection_ack"


def test_before_ready(shared: Bridge, sid: str, device: Phone) -> None:
    """Only health_check, acknowledge_warning, notification_ack and heartbeats."""
    shared.accept(prompt(sid, 0))
    only_ready = [type_ for type_, phase in PHASES.items() if phase == Phase.READY]
    device.connect().auth()
    for session_id in (sid, new_session()):
        for type_ in ("auth", *only_ready):
            answer = ask_in(device, session_id, type_)
            assert_sequence(answer, type_, "authenticated", "health_check")
    device.send("notification_ack", EXAMPLES["notification_ack"][1])
    device.ping()
    assert device.health_check()["payload"]["ready"] is True


def test_before_joining(shared: Bridge, sid: str, phone: Phone) -> None:
    """D7: after unknown and closed, and only then. Nobody says twice who he is."""
    assert_sequence(ask_in(phone, sid, "auth"), "auth", "ready", "")
    shared.accept(prompt(sid, 0))
    assert_not_joined(phone, sid)
    for type_ in OF_SESSIONS.keys() - {"session_start"}:
        for unknown in (new_session(), "x" * 256, "%s", "../x", "ü 会"):
            assert_refused(ask_in(phone, unknown, type_), "SESSION_NOT_FOUND", False, unknown)
    answer = ask_in(phone, sid, "approval_response")
    assert answer["payload"]["code"] == "TOOL_CALL_NOT_FOUND"
    phone.join(sid)
    assert phone.request("replay_request", {"session_id": sid})["type"] == "replay_buffer"


def test_after_leaving_or_on_a_new_connection(sid: str, joined: Phone) -> None:
    """D22, D28: a session that was left is not joined; joins are a connection's own."""
    joined.leave(sid)
    assert_not_joined(joined, sid)
    joined.join(sid)
    assert_not_joined(joined.again(), sid)
