"""Requests that nobody should make (issue, Bad input; D7, D10 to D12, D38, D51): the right code,
`recoverable` right, the connection alive, nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.approvals import ask, assert_refused, pending
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, changes, session_in, status
from tests.conformance.samples import hook, new_session, prompt
from tests.conformance.test_sequence_errors import AGENTS, SERVED
from tests.files.repositories import digest

pytestmark = pytest.mark.spec("error.recoverable")

# code → what the error table says of its recoverability (docs/errors.md)
RECOVERABLE = {
    "SESSION_NOT_FOUND": False,
    "SESS_NOT_FOUND": False,
    "SESS_CLOSED": False,
    "TOOL_CALL_NOT_FOUND": False,
    "TOOL_ALREADY_DECIDED": False,
    "PROTO_SEQUENCE_ERROR": True,
    "PROTO_INVALID_MESSAGE": True,
    "GIT_ERROR": True,
    "FILE_INVALID_PATH": True,
    "FILE_ACCESS_DENIED": True,
    "FILE_NOT_FOUND": True,
}
# name → the message, its fields besides the session, and the one code that answers it (D10, D12)
REQUESTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "list outside": ("file_list", {"path": "/etc"}, "FILE_ACCESS_DENIED"),
    "list above": ("file_list", {"path": "../../.."}, "FILE_ACCESS_DENIED"),
    "list a file": ("file_list", {"path": "a.txt"}, "FILE_INVALID_PATH"),
    "list nothing": ("file_list", {"path": "missing"}, "FILE_NOT_FOUND"),
    "list the empty path": ("file_list", {"path": ""}, "FILE_INVALID_PATH"),
    "read outside": ("file_read", {"path": "/etc/passwd"}, "FILE_ACCESS_DENIED"),
    "read a directory": ("file_read", {"path": "sub"}, "FILE_INVALID_PATH"),
    "read nothing": ("file_read", {"path": "sub/missing"}, "FILE_NOT_FOUND"),
    "read below a file": ("file_read", {"path": "a.txt/x"}, "FILE_INVALID_PATH"),
    "read from before the beginning": (
        "file_read",
        {"path": "a.txt", "offset": -1, "limit": 1},
        "PROTO_INVALID_MESSAGE",
    ),
    "diff outside": ("git_diff", {"files": ["/etc/passwd"], "cached": False}, "FILE_ACCESS_DENIED"),
    "diff above": ("git_diff", {"files": ["a.txt", "../x"], "cached": True}, "FILE_ACCESS_DENIED"),
    "diff with a NUL": ("git_diff", {"files": ["a\x00"], "cached": False}, "FILE_INVALID_PATH"),
    "diff of an endless name": (
        "git_diff",
        {"files": ["a" * 5000], "cached": False},
        "FILE_INVALID_PATH",
    ),
    "diff of a number": ("git_diff", {"files": [5], "cached": False}, "PROTO_INVALID_MESSAGE"),
    "commit nothing": ("git_commit", {"message": "m", "files": ["same.txt"]}, "GIT_ERROR"),
    "commit no files": ("git_commit", {"message": "m", "files": []}, "GIT_ERROR"),
    "commit outside": (
        "git_commit",
        {"message": "m", "files": ["a.txt", "/etc/passwd"]},
        "FILE_ACCESS_DENIED",
    ),
    "commit above": (
        "git_commit",
        {"message": "m", "files": ["../x", "a.txt"]},
        "FILE_ACCESS_DENIED",
    ),
    "commit what is missing": (
        "git_commit",
        {"message": "m", "files": ["a.txt", "missing"]},
        "GIT_ERROR",
    ),
    "commit with an option for a name": (
        "git_commit",
        {"message": "m", "files": ["--all"]},
        "GIT_ERROR",
    ),
    "commit with --amend for a name": (
        "git_commit",
        {"message": "m", "files": ["--amend", "--no-edit"]},
        "GIT_ERROR",
    ),
    "commit with a pattern": ("git_commit", {"message": "m", "files": ["*.txt"]}, "GIT_ERROR"),
    "commit with pathspec magic": ("git_commit", {"message": "m", "files": [":/"]}, "GIT_ERROR"),
    "commit with an exclusion": ("git_commit", {"message": "m", "files": [":!a.txt"]}, "GIT_ERROR"),
    "commit the git directory": (
        "git_commit",
        {"message": "m", "files": [".git/config"]},
        "GIT_ERROR",
    ),
    "commit the empty name": (
        "git_commit",
        {"message": "m", "files": ["a.txt", ""]},
        "FILE_INVALID_PATH",
    ),
    "commit without words": ("git_commit", {"message": "", "files": ["a.txt"]}, "GIT_ERROR"),
    "commit what is staged without words": (
        "git_commit",
        {"message": " \n\t", "files": None},
        "GIT_ERROR",
    ),
    "commit a NUL": ("git_commit", {"message": "a\x00b", "files": ["a.txt"]}, "GIT_ERROR"),
    "commit 10,000 names": (
        "git_commit",
        {"message": "m", "files": ["a.txt", *(f"missing {number}" for number in range(10_000))]},
        "GIT_ERROR",
    ),
}


@pytest.fixture(scope="module")
def crime_scene(shared: Bridge) -> Repository:
    """A repository with something staged, something changed and something untracked, that all these
    requests leave as it is.
    """
    repository = Repository(shared.root / f"bad requests {new_session()[-6:]}")
    repository.commit_files(
        {"a.txt": "1\n", "same.txt": "1\n", "sub/b.txt": "1\n", "staged.txt": "1\n"}
    )
    repository.write("staged.txt", "2\n")
    repository.git("add", "staged.txt")
    repository.write("a.txt", "2\n")
    repository.write("untracked.txt", "1\n")
    return repository


def test_bad_requests(shared: Bridge, crime_scene: Repository, phone: Phone) -> None:
    """Issue, Bad input: one connection survives them all; the repository is as it was after each,
    to the last byte of its git directory.
    """
    sid = session_in(shared, phone, crime_scene.path)
    crime_scene.porcelain()  # git refreshes its index now, not later
    before = digest(crime_scene.path)
    for name, (type_, fields, code) in REQUESTS.items():
        answer = phone.request(type_, {"session_id": sid} | fields)
        assert answer["type"] == "error" and answer["payload"]["code"] == code, (
            f"{name}: {str(answer)[:1000]}"
        )
        assert_refused(
            answer, code, RECOVERABLE[code], None if code == "PROTO_INVALID_MESSAGE" else sid
        )
        assert digest(crime_scene.path) == before, name
        phone.ping()
    assert changes(status(phone, sid))["a.txt"] == ("modified", 1, 1)


def test_unknown_sessions(phone: Phone) -> None:
    """D7: any message but session_start: SESSION_NOT_FOUND, not recoverable, naming the session."""
    for type_, fields in (
        SERVED
        | {
            "approval_response": {
                "tool_call_id": "x",
                "decision": "approved",
                "modifications": None,
            }
        }
    ).items():
        for unknown in (new_session(), "x" * 256, "%s", "../x", "ü 会"):
            assert_refused(
                phone.request(type_, {"session_id": unknown} | fields),
                "SESSION_NOT_FOUND",
                False,
                unknown,
            )
            phone.ping()


def test_closed_sessions(shared: Bridge, crime_scene: Repository, phone: Phone) -> None:
    """D7: an observed one that is closed: joining it is what is missing; joined, replay, git and
    file requests work there, and nothing can be decided.
    """
    sid = new_session()
    shared.accept(
        hook("SessionStart", sid, {"working_directory": str(crime_scene.path)}),
        hook("SessionEnd", sid),
    )
    for type_, fields in SERVED.items():
        assert_refused(
            phone.request(type_, {"session_id": sid} | fields), "PROTO_SEQUENCE_ERROR", True, sid
        )
        phone.ping()
    phone.join(sid)
    for type_ in ("git_status_request", "git_diff", "file_list", "replay_request"):
        assert phone.request(type_, {"session_id": sid} | SERVED[type_])["type"] != "error", type_
    answer = phone.request(
        "approval_response",
        {"session_id": sid, "tool_call_id": "x", "decision": "approved", "modifications": None},
    )
    assert_refused(answer, "SESS_CLOSED", False, sid)


@pytest.mark.parametrize("type_", AGENTS)
def test_the_agent_of_a_closed_session(shared: Bridge, sid: str, phone: Phone, type_: str) -> None:
    """D7: message and session_interrupt get SESS_CLOSED."""
    shared.accept(prompt(sid, 0), hook("SessionEnd", sid))
    phone.join(sid)
    assert_refused(
        phone.request(type_, {"session_id": sid, "content": "hi", "role": "user"}),
        "SESS_CLOSED",
        False,
        sid,
    )


BAD_DECISIONS: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "modified without modifications": (
        "PROTO_INVALID_MESSAGE",
        lambda body: body | {"decision": "modified", "modifications": None},
    ),
    "pending": ("PROTO_INVALID_MESSAGE", lambda body: body | {"decision": "pending"}),
    "no decision": (
        "PROTO_INVALID_MESSAGE",
        lambda body: {name: value for name, value in body.items() if name != "decision"},
    ),
    "no call": (
        "PROTO_INVALID_MESSAGE",
        lambda body: {name: value for name, value in body.items() if name != "tool_call_id"},
    ),
    "an unknown call": ("TOOL_CALL_NOT_FOUND", lambda body: body | {"tool_call_id": "unknown"}),
    "another case": (
        "TOOL_CALL_NOT_FOUND",
        lambda body: body | {"tool_call_id": body["tool_call_id"].upper()},
    ),
    "with spaces": (
        "TOOL_CALL_NOT_FOUND",
        lambda body: body | {"tool_call_id": f" {body['tool_call_id']} "},
    ),
    "in another session": ("SESSION_NOT_FOUND", lambda body: body | {"session_id": new_session()}),
}


def test_bad_decisions(shared: Bridge, sid: str, joined: Phone) -> None:
    """D38; issue: decisions without modifications, unknown calls: nothing is decided by any of
    them.
    """
    call_id = ask(shared, joined, sid, tool_call_id="the call")
    body = {
        "session_id": sid,
        "tool_call_id": call_id,
        "decision": "approved",
        "modifications": None,
    }
    for code, change in BAD_DECISIONS.values():
        assert_refused(joined.request("approval_response", change(body)), code, RECOVERABLE[code])
        joined.ping()
    assert pending(shared, sid) == [call_id]
