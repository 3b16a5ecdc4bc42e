"""Real repositories made with git, and what phones see of them and of files in their sessions."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_types
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook, new_id, new_session

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
}
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
CHANGE_STATUSES = {"modified", "added", "deleted", "untracked", "renamed"}


def owner() -> dict[str, str]:
    """The environment in which a repository's owner runs git, with nothing of this machine's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return own | IDENTITY | ALONE | {"GIT_TERMINAL_PROMPT": "0"}


class Repository:
    """A work tree below an allowed root, without anybody's configuration but its own."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", *options)
        with (path / self.git("rev-parse", "--git-path", "config").strip()).open("a") as config:
            config.write("[user]\nname = Ada\nemail = ada@example.com\n[commit]\ngpgsign = false\n")

    def git(self, *arguments: str, check: bool = True, cwd: Path | None = None) -> str:
        """What git prints; AssertionError when it fails."""
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments],
            cwd=cwd or self.path,
            env=owner(),
            capture_output=True,
            timeout=180,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, f"git {arguments}: {done.stderr!r}"
        return done.stdout.decode(errors="surrogateescape")

    def write(self, name: str | bytes, content: str | bytes) -> Path:
        path = self.path / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def write_files(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            self.write(name, content)

    def commit(self, message: str = "A commit") -> str:
        """Commit everything; the hash."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head()

    def commit_files(self, files: Mapping[str, str | bytes], message: str = "A commit") -> str:
        self.write_files(files)
        return self.commit(message)

    def add_submodule(self, name: str) -> None:
        """Commit a submodule, which holds the file `a`."""
        inner = Repository(self.path.with_name(f"{self.path.name} {name}"))
        inner.commit_files({"a": "1\n"})
        self.git("submodule", "--quiet", "add", str(inner.path), name)
        self.commit("submodule")

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").strip()

    def staged(self) -> list[str]:
        """Names staged against HEAD, or against nothing before the first commit."""
        names = self.git("diff", "--cached", "--name-only", "--no-renames", "-z")
        return names.split("\0")[:-1]

    def hook(self, name: str, script: str) -> Path:
        path = self.write(f".git/hooks/{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def index(self) -> bytes:
        return (self.path / ".git/index").read_bytes()

    def committed(self) -> list[str]:
        """The names in the last commit."""
        shown = self.git("show", "--name-only", "--no-renames", "--format=", "-z")
        return sorted(name for name in shown.strip("\n").split("\0") if name)

    def porcelain(self) -> str:
        return self.git("status", "--porcelain=v2", "--untracked-files=all", "-z")


def digest(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below: mode, time and content."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(directory))] = (stat.st_mode, stat.st_mtime_ns, content)
    return found


def session_in(bridge: Bridge, phone: Phone, directory: Path) -> str:
    """An observed session that works in that directory, joined by the phone."""
    session_id = new_session()
    bridge.accept(hook("SessionStart", session_id, {"working_directory": str(directory)}))
    phone.join(session_id)
    return session_id


def assert_status(answer: Message, session_id: str) -> dict[str, Any]:
    assert answer["type"] == "git_status_response", answer
    payload = dict(answer["payload"])
    assert_types(payload, branch=str, ahead=int, behind=int, is_clean=bool, changes=list)
    assert payload["session_id"] == session_id
    for change in payload["changes"]:
        assert_types(change, path=str, status=str, additions=int, deletions=int)
        assert change["status"] in CHANGE_STATUSES, change
        assert change["additions"] >= 0 <= change["deletions"], change
    return payload


def changes(payload: dict[str, Any]) -> dict[str, tuple[str, int, int]]:
    """path → (status, additions, deletions); each path once."""
    listed = payload["changes"]
    found = {one["path"]: (one["status"], one["additions"], one["deletions"]) for one in listed}
    assert len(found) == len(listed), listed
    return found


def assert_diff_file(file: dict[str, Any]) -> None:
    assert set(file) >= {"path", "old_path", "new_path"} and file["status"] in CHANGE_STATUSES, file
    assert_types(file, additions=int, deletions=int, hunks=list)
    for hunk in file["hunks"]:
        assert_types(hunk, header=str, old_start=int, old_lines=int, new_start=int, new_lines=int)
        assert hunk["header"].startswith("@@ "), hunk
        assert all(isinstance(line["content"], str) for line in hunk["lines"]), hunk
        kinds = [line["type"] for line in hunk["lines"]]
        context, removed, added = map(kinds.count, ("context", "removed", "added"))
        assert context + removed + added == len(kinds), hunk
        assert (context + removed, context + added) == (hunk["old_lines"], hunk["new_lines"]), hunk


def lines(file: dict[str, Any], kind: str) -> list[str]:
    """The contents of a diff file's lines of that type."""
    every = [line for hunk in file["hunks"] for line in hunk["lines"]]
    return [line["content"] for line in every if line["type"] == kind]


def committed(answer: Message, session_id: str) -> dict[str, Any]:
    """The summary of the commit in the fresh status that answers git_commit (D10)."""
    summary = assert_status(answer, session_id)["commit"]
    fields = {"hash", "summary", "files_changed", "additions", "deletions"}
    assert fields <= set(summary) <= fields | {"also", "note"}, summary
    return dict(summary)


class Work:
    """A session in a directory, joined by a phone, and what that sees of its repository."""

    def __init__(self, bridge: Bridge, phone: Phone, directory: Path) -> None:
        self.phone, self.sid = phone, session_in(bridge, phone, directory)

    def ask(self, type_: str, **fields: Any) -> Message:
        return self.phone.request(type_, {"session_id": self.sid} | fields)

    def ask_diff(self, *files: str, cached: bool = False) -> Message:
        """Of all files, or of those that are named; the answer, whichever it is."""
        return self.ask("git_diff", files=list(files) or None, cached=cached)

    def status(self) -> dict[str, Any]:
        """git_status_response with the spec's fields and their types."""
        return assert_status(self.ask("git_status_request"), self.sid)

    def changes(self) -> dict[str, tuple[str, int, int]]:
        return changes(self.status())

    def diff(self, *files: str, cached: bool = False) -> list[dict[str, Any]]:
        """The files of git_diff_response, each with the spec's fields and their types."""
        answer = self.ask_diff(*files, cached=cached)
        assert answer["type"] == "git_diff_response", str(answer)[:2000]
        assert answer["payload"]["session_id"] == self.sid
        for file in answer["payload"]["files"]:
            assert_diff_file(file)
        return list(answer["payload"]["files"])

    def commit(self, message: str, files: list[str] | None = None, **more: Any) -> Message:
        """Commit, and trust the repository's programs when they are asked about (D63)."""
        answer = self.ask("git_commit", message=message, files=files, **more)
        if answer["payload"].get("code") != "GIT_TRUST_REQUIRED":
            return answer
        digest = answer["payload"]["details"]["digest"]
        return self.ask("git_commit", message=message, files=files, trust=digest, **more)

    def committed(self, message: str, files: list[str] | None = None) -> dict[str, Any]:
        return committed(self.commit(message, files), self.sid)


class Reader:
    """A joined session in a directory of this test alone, and what its phone reads there."""

    def __init__(self, bridge: Bridge, phone: Phone) -> None:
        self.place = bridge.root / f"place ü {new_id()[:8]}"
        self.place.mkdir()
        self.phone, self.sid = phone, session_in(bridge, phone, self.place)

    def write(self, name: str, data: bytes) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def ask(self, type_: str, path: Any, **more: Any) -> Message:
        """Ask for all lines of a file, unless `more` says which; `...` leaves a field out."""
        fields = {"session_id": self.sid, "path": str(path)}
        whole = {"offset": 0, "limit": 10_000_000} if type_ == "file_read" else {}
        asked = {name: value for name, value in (fields | whole | more).items() if value is not ...}
        return self.phone.request(type_, asked)

    def read(self, path: Any, **more: Any) -> dict[str, Any]:
        answer = self.ask("file_read", path, **more)
        assert answer["type"] == "file_read_response", str(answer)[:1000]
        payload = dict(answer["payload"])
        assert_types(payload, session_id=str, path=str, content=str, size=int, lines=int)
        assert payload["session_id"] == self.sid
        return payload

    def list(self, path: Any) -> dict[str, dict[str, Any]]:
        answer = self.ask("file_list", path)
        assert answer["type"] == "file_list_response", answer
        payload = answer["payload"]
        assert payload["session_id"] == self.sid and isinstance(payload["path"], str)
        entries = {entry["name"]: entry for entry in payload["entries"]}
        assert len(entries) == len(payload["entries"])
        return entries

    def refused(self, type_: str, path: Any, *codes: str) -> None:
        """An error with one of these codes, recoverable (D12)."""
        answer = self.ask(type_, path)
        assert answer["payload"].get("code") in codes, str(answer)[:1000]
        assert_refused(answer, answer["payload"]["code"], True, self.sid)
