"""Real repositories made with git, and what their sessions answer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook, new_session

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
}
ALONE = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
CHANGE_STATUSES = {"modified", "added", "deleted", "untracked", "renamed"}


def owner() -> dict[str, str]:
    """The environment in which the owner of a repository runs git, without anything of this
    machine's.
    """
    return (
        {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        | IDENTITY
        | ALONE
    )


class Repository:
    """A work tree below an allowed root, as its owner uses it: without anybody's configuration but
    its own.
    """

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", *options)
        for name, value in (
            ("user.name", "Ada"),
            ("user.email", "ada@example.com"),
            ("commit.gpgsign", "false"),
        ):
            self.git("config", name, value)

    def git(self, *arguments: str, check: bool = True, cwd: Path | None = None) -> str:
        """What git prints; AssertionError when it fails."""
        command = ["git", "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(
            command,
            cwd=cwd or self.path,
            env=owner(),
            capture_output=True,
            timeout=180,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, (
            f"git {arguments}: {done.stderr.decode(errors='replace')}"
        )
        return done.stdout.decode(errors="surrogateescape")

    def write(self, name: str | bytes, content: str | bytes) -> Path:
        path = Path(os.fsdecode(os.path.join(os.fsencode(self.path), os.fsencode(name))))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def commit(self, message: str = "A commit", **files: str | bytes) -> str:
        """Write files, commit everything; the hash."""
        for name, content in files.items():
            self.write(name, content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head()

    def commit_files(self, files: dict[str, str | bytes], message: str = "A commit") -> str:
        return self.commit(message, **files)

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").strip()

    def staged(self) -> list[str]:
        """Names staged against HEAD, or against nothing before the first commit."""
        return [
            name
            for name in self.git("diff", "--cached", "--name-only", "--no-renames", "-z").split(
                "\0"
            )
            if name
        ]

    def porcelain(self) -> str:
        return self.git("status", "--porcelain=v2", "--untracked-files=all", "-z")


def session_in(bridge: Bridge, phone: Phone, directory: Path) -> str:
    """An observed session that works in that directory, joined by the phone."""
    session_id = new_session()
    bridge.accept(hook("SessionStart", session_id, {"working_directory": str(directory)}))
    phone.join(session_id)
    return session_id


def status(phone: Phone, session_id: str) -> dict[str, Any]:
    """git_status_response with the spec's fields and their types."""
    return assert_status(
        phone.request("git_status_request", {"session_id": session_id}), session_id
    )


def assert_status(answer: Message, session_id: str) -> dict[str, Any]:
    assert answer["type"] == "git_status_response", answer
    payload = dict(answer["payload"])
    assert (
        set(payload) >= {"session_id", "branch", "ahead", "behind", "is_clean", "changes"}
        and payload["session_id"] == session_id
    ), payload
    assert isinstance(payload["branch"], str)
    assert type(payload["ahead"]) is int
    assert type(payload["behind"]) is int
    assert isinstance(payload["is_clean"], bool)
    for change in payload["changes"]:
        assert (
            set(change) >= {"path", "status", "additions", "deletions"}
            and isinstance(change["path"], str)
            and change["status"] in CHANGE_STATUSES
        ), change
        assert (
            type(change["additions"]) is int
            and type(change["deletions"]) is int
            and change["additions"] >= 0 <= change["deletions"]
        ), change
    return payload


def changes(payload: dict[str, Any]) -> dict[str, tuple[str, int, int]]:
    """path → (status, additions, deletions); each path once."""
    found = {
        change["path"]: (change["status"], change["additions"], change["deletions"])
        for change in payload["changes"]
    }
    assert len(found) == len(payload["changes"]), payload["changes"]
    return found


def diff(
    phone: Phone, session_id: str, files: list[str] | None = None, *, cached: bool = False
) -> list[dict[str, Any]]:
    """The files of git_diff_response, each with the spec's fields and their types, its counts those
    of its lines.
    """
    answer = phone.request(
        "git_diff", {"session_id": session_id, "files": files, "cached": cached}, 30
    )
    assert (
        answer["type"] == "git_diff_response" and answer["payload"]["session_id"] == session_id
    ), str(answer)[:2000]
    for file in answer["payload"]["files"]:
        assert_diff_file(file)
    return list(answer["payload"]["files"])


def assert_diff_file(file: dict[str, Any]) -> None:
    assert (
        set(file) >= {"path", "old_path", "new_path", "status", "additions", "deletions", "hunks"}
        and file["status"] in CHANGE_STATUSES
    ), file
    for hunk in file["hunks"]:
        assert set(hunk) >= {
            "header",
            "old_start",
            "old_lines",
            "new_start",
            "new_lines",
            "lines",
        } and hunk["header"].startswith("@@ "), hunk
        assert all(
            type(hunk[name]) is int for name in ("old_start", "old_lines", "new_start", "new_lines")
        ), hunk
        kinds = [line["type"] for line in hunk["lines"]]
        assert set(kinds) <= {"context", "added", "removed"} and all(
            isinstance(line["content"], str) for line in hunk["lines"]
        ), hunk
        assert (
            kinds.count("context") + kinds.count("removed"),
            kinds.count("context") + kinds.count("added"),
        ) == (hunk["old_lines"], hunk["new_lines"]), hunk


def lines(file: dict[str, Any], kind: str) -> list[str]:
    """The contents of a diff file's lines of that type."""
    return [
        line["content"] for hunk in file["hunks"] for line in hunk["lines"] if line["type"] == kind
    ]


def commit(phone: Phone, session_id: str, message: str, files: list[str] | None = None) -> Message:
    return phone.request(
        "git_commit", {"session_id": session_id, "message": message, "files": files}, 60
    )


def committed(answer: Message, session_id: str) -> dict[str, Any]:
    """The summary of the commit in the fresh status that answers git_commit (D10)."""
    payload = assert_status(answer, session_id)
    summary = payload["commit"]
    assert set(summary) == {"hash", "summary", "files_changed", "additions", "deletions"}, summary
    return dict(summary)


class Work:
    """A session in a directory, joined by a phone, and what that sees of its repository."""

    def __init__(self, bridge: Bridge, phone: Phone, directory: Path) -> None:
        self.phone, self.sid = phone, session_in(bridge, phone, directory)

    def ask(self, type_: str, **fields: Any) -> Message:
        return self.phone.request(type_, {"session_id": self.sid} | fields)

    def status(self) -> dict[str, Any]:
        return status(self.phone, self.sid)

    def changes(self) -> dict[str, tuple[str, int, int]]:
        return changes(self.status())

    def diff(self, *files: str, cached: bool = False) -> list[dict[str, Any]]:
        """Of all files, or of those that are named."""
        return diff(self.phone, self.sid, list(files) or None, cached=cached)

    def commit(self, message: str, files: list[str] | None = None) -> Message:
        return commit(self.phone, self.sid, message, files)

    def committed(self, message: str, files: list[str] | None = None) -> dict[str, Any]:
        """Commit, which must succeed; its summary."""
        return committed(self.commit(message, files), self.sid)
