"""Read Claude Code's own store: a file of lines of JSON for each session (D67).

A transcript may have 300 MB. Only its beginning and its end are read, and what was found is kept
until the file changes.
"""

import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from bridge_project.kernel import processes
from bridge_project.kernel.text import printable
from bridge_project.kernel.threads import disk
from bridge_project.protocol.agent_text import made_prompt
from sessions_app.agents.claude import program
from sessions_app.agents.past.store import PastSession, Store

PART_BYTES: Final = 64 * 1024  # read of the beginning, and of the end
TITLE_CHARS: Final = 120
_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VALUE = re.compile(rb': ?"((?:[^"\\]|\\.)*)"')
_COMMAND = re.compile(r"<command-name>([^<]*)</command-name>")
# what the program itself writes as a person's message
_NOT_SAID = re.compile(r"<local-command|<session-start-hook>|<ide_|\[Request interrupted by user")
_INTERPRETERS = ("node", "bun")

Known = tuple[int, int, PastSession | None]  # mtime, size, and what was found
_known: dict[str, Known] = {}


class ClaudeStore(Store):
    """Read ``projects`` and ``sessions`` of Claude Code's settings directory."""

    @property
    def _place(self) -> str:
        return os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")

    async def sessions(self, places: Sequence[str]) -> Sequence[PastSession]:
        return await disk.run(self._place, lambda: [*self._sessions()])

    async def find(self, own_id: str, place: str) -> PastSession | None:
        return await disk.run(self._place, self._find, own_id)

    async def programs(self) -> Collection[tuple[str, int]]:
        return await disk.run(self._place, self._programs)

    def _sessions(self) -> Iterator[PastSession]:
        seen: dict[str, Known] = {}
        for project in self._projects():
            for name in _names(project):
                path = os.path.join(project, name)
                if name.endswith(".jsonl") and (found := _read(path, name[:-6], seen)):
                    yield found
        _known.clear()  # also of what is there no more
        _known.update(seen)

    def _find(self, own_id: str) -> PastSession | None:
        if not _ID.fullmatch(own_id):
            return None
        paths = (os.path.join(project, f"{own_id}.jsonl") for project in self._projects())
        found = (_read(path, own_id, {}) for path in paths)
        return max(filter(None, found), key=lambda one: one.active_at, default=None)

    def _projects(self) -> Iterator[str]:
        top = os.path.join(self._place, "projects")
        return (os.path.join(top, name) for name in _names(top))

    def _programs(self) -> Collection[tuple[str, int]]:
        place, found = os.path.join(self._place, "sessions"), []
        for name in _names(place):
            if name.endswith(".json"):
                said = processes.read_own(os.path.join(place, name))
                if (pid := self._living(said)) is not None:
                    found.append((str(said.get("sessionId")), pid))
        return found

    def _living(self, said: dict[str, Any]) -> int | None:
        """Return the process id that a file of the registry names, None if it is gone.

        One in a container has another process id here, and the same start.
        """
        pid, start = said.get("pid"), said.get("procStart")
        if not isinstance(pid, int) or pid <= 0:
            return None
        began = processes.start_of(pid)
        if not str(start).isdecimal():
            return pid if began is not None else None
        if began == int(str(start)):
            return pid
        same = (one for one in psutil.pids() if processes.start_of(one) == int(str(start)))
        return 0 if any(map(self.is_program, same)) else None

    def is_program(self, pid: int) -> bool:
        try:
            exe, words = processes.command_of(pid)
        except OSError:
            return False
        if os.path.basename(exe) in _INTERPRETERS:
            script = next((word for word in words if not word.startswith("-")), "")
            parts = Path(os.path.realpath(script)).parts
            return bool(script) and not {"claude-code", program.PROGRAM.name}.isdisjoint(parts)
        own = program.program()
        return (
            os.path.basename(exe) == program.PROGRAM.name
            or Path(exe).parts[-3:-1] == (program.PROGRAM.name, "versions")
            or (own is not None and os.path.realpath(own) == exe)
        )

    def resume_command(self, own_id: str) -> str:
        return f"claude --resume {own_id}"


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _read(path: str, own_id: str, seen: dict[str, Known]) -> PastSession | None:
    """Return what a transcript's beginning and end say; None if it is none."""
    if not _ID.fullmatch(own_id):
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        about = os.lstat(path)
        before = _known.get(path)
        if before is None or before[:2] != (about.st_mtime_ns, about.st_size):
            with open(os.open(path, flags), "rb") as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                    return None
                head = file.read(PART_BYTES)
                file.seek(max(len(head), about.st_size - PART_BYTES))
                tail = file.read(PART_BYTES)
            found = _session_of(own_id, head, tail, about.st_mtime)
            before = (about.st_mtime_ns, about.st_size, found)
    except OSError:
        return None
    _known[path] = seen[path] = before
    return before[2]


def _session_of(own_id: str, head: bytes, tail: bytes, active_at: float) -> PastSession | None:
    both = head + tail
    first, _, _ = head.partition(b"\n")
    if own_id.encode() not in both or b'"isSidechain":true' in first:
        return None
    titles = (_string(both, name, last=True) for name in (b'"customTitle"', b'"aiTitle"'))
    title = next(filter(None, titles), "") or _first_prompt(head)
    directory = _string(both, b'"cwd"')
    name = printable(title, keep="\N{ZERO WIDTH JOINER}").strip()[:TITLE_CHARS]
    if not directory.startswith("/") or not name:
        return None
    return PastSession(own_id, name, directory, active_at)


def _string(text: bytes, key: bytes, *, last: bool = False) -> str:
    """Return the first or last string of a key, "" without one."""
    at = text.rfind(key) if last else text.find(key)  # fifty times as fast as a pattern
    value = _VALUE.match(text, at + len(key)) if at >= 0 else None
    try:
        found = json.loads(b'"' + value[1] + b'"', strict=False) if value else ""
    except ValueError:  # bytes that are no text
        return ""
    return str(found).encode("utf-8", "replace").decode().replace("\0", "")


def _first_prompt(head: bytes) -> str:
    """Return the first line that a person has said, else the first command."""
    command = ""
    for line in head.split(b"\n"):
        if b'"user"' not in line or b'"tool_result"' in line:
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for text in _said(entry):
            if found := _COMMAND.search(text):
                command = command or found[1]
            elif not _NOT_SAID.match(text) and made_prompt(text) is None:
                return text.splitlines()[0]
    return command


def _said(entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict) or entry.get("type") != "user" or entry.get("isMeta"):
        return
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and text.strip():
            yield text.strip()
