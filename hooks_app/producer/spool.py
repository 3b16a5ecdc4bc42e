"""Keep each hook event as a file, from the hook command to the forwarder (D47)."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import stat
import time
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from bridge_project.kernel.private_files import make_real_dir, write_private_file
from bridge_project.kernel.process_note import ProcessNote, split_note
from hooks_app.producer.agents import as_common, repeated_id
from hooks_app.producer.shell_command import (
    ANSWER_SCRIPT,
    ANSWERS,
    AWAY,
    HOOK_SCRIPT,
    write_hook_scripts,
)
from hooks_app.producer.translate import EVENT_MAX_BYTES, NeverAnEvent, dump, iso

FILE_MAX_BYTES = 64 * 2**20  # more than this is not read at all
REJECTED_MAX_BYTES = 10 * 2**20
RESERVED = frozenset(
    {"lock", "id", "full", "lost", "rejected", HOOK_SCRIPT, ANSWER_SCRIPT, ANSWERS, AWAY}
)
NOTICE = "notice-"  # begins the names of the forwarder's own files
_NAME = re.compile(r"(\d+)([.-]\d+)?|notice-[\w-]+", re.ASCII)
# the session of a notice when the real session is unknown
NOBODY = "hook-producer"

log = logging.getLogger("hooks_app.producer.spool")


class File(NamedTuple):
    """Describe a waiting file; they sort by time.

    ``pid``: of the hook's shell; process ids rise, which orders files of one tick of the file
    system's clock. ``odd``: why it cannot be a hook's and must not be opened; "" if it can.
    """

    mtime_ns: int
    pid: int
    name: str
    size: int
    odd: str


def _file(name: str, status: os.stat_result) -> File:
    found, odd = _NAME.fullmatch(name), ""
    size = max(status.st_size, status.st_blocks * 512)
    if not found:
        odd = "its name is not one that a hook gives"
    elif not stat.S_ISREG(status.st_mode):
        odd = "not a regular file"
    elif status.st_uid != os.geteuid():
        odd = "it belongs to another user"
    elif size > FILE_MAX_BYTES:
        odd = f"over {FILE_MAX_BYTES} bytes"
    pid = int(found[1][:10]) if found and found[1] else 0
    return File(status.st_mtime_ns, pid, name, size, odd)


class Spool:
    """Read and remove the spool's files; set bad ones aside, report lost ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rejected = path / "rejected"
        self._id = ""
        self.stuck: set[str] = set()  # names of what could not be moved away

    def make_directory(self) -> None:
        """Make the spool (0700), but not the data directory around it. Raises OSError."""
        make_real_dir(self.path)
        if self.path.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(self.path))

    def make(self) -> None:
        """Make its own files, after `make_directory`; only its forwarder does."""
        for directory in (self.rejected, self.path / ANSWERS):
            make_real_dir(directory)
        for draft in (*self.path.glob(".*"), *self.rejected.glob(".*")):
            with contextlib.suppress(OSError):  # of a forwarder that was killed
                draft.unlink()
        identity = self.path / "id"
        if not identity.exists():
            write_private_file(identity, uuid.uuid4().hex.encode())
        self._id = identity.read_text().strip()
        write_hook_scripts(self.path)

    def files(self, known: Collection[str] = ()) -> list[File]:
        """Return waiting files that are not ``known``, oldest first. Raises OSError."""
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                name = entry.name
                if name in RESERVED or name in known or name.startswith("."):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    found.append(_file(name, entry.stat(follow_symlinks=False)))
        return sorted(found)

    def read(self, name: str) -> tuple[File, dict[str, Any], ProcessNote | None]:
        """Return a whole file, its JSON in common names, and the agent's process.

        Raises NeverAnEvent, ValueError when it is not (or not yet) an event, OSError.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(self.path / name, flags), "rb") as opened:
            data, file = opened.read(FILE_MAX_BYTES + 1), _file(name, os.fstat(opened.fileno()))
        if file.odd:
            raise NeverAnEvent(file.odd)
        try:
            note, data = split_note(data)
            raw = json.loads(data.decode("utf-8-sig", "replace"), strict=False)
        except RecursionError:
            raise NeverAnEvent("nested too deeply") from None
        if not isinstance(raw, dict):
            raise NeverAnEvent("not a JSON object")
        raw, agent = as_common(raw, note.agent if note else "", waits=bool(note and note.nonce))
        return file, raw, note and note._replace(agent=agent)

    def event_id(self, file: File, raw: dict[str, Any], note: ProcessNote | None) -> str:
        """Make an id, the same after a restart: of what may come twice from what it says."""
        same = repeated_id(raw, note.agent if note else "")
        return same or str(
            uuid.uuid5(uuid.NAMESPACE_URL, f"spool:{self._id}/{file.name}/{file.mtime_ns}")
        )

    def drop(self, name: str) -> None:
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            self.stuck.add(name)
            log.error("cannot remove %s from the spool: %s", name, error)

    def set_aside(self, file: File, reason: str) -> None:
        """Move a file to ``rejected/``, shortened if huge, with a ``.why`` beside it."""
        log.warning("set aside %s: %s", file.name, reason)
        target = self.rejected / f"{file.name[:100]}-{file.mtime_ns}"
        try:
            os.rename(self.path / file.name, target)
        except FileNotFoundError:
            return
        except OSError as error:
            self.stuck.add(file.name)
            log.error("cannot set %s aside: %s", file.name, error)
            return
        why = {"reason": reason, "file": file.name, "bytes": file.size, "at": iso(time.time())}
        if file.size > EVENT_MAX_BYTES:
            with contextlib.suppress(OSError):  # it is a directory
                os.truncate(target, EVENT_MAX_BYTES)
        with contextlib.suppress(OSError):  # the disk is full: then nobody learns why
            write_private_file(target.with_name(target.name + ".why"), dump(why))
            self._trim_rejected()

    def _trim_rejected(self) -> None:
        kept = [(path.lstat(), path) for path in self.rejected.iterdir()]
        room = REJECTED_MAX_BYTES
        for status, path in sorted(kept, key=lambda one: one[0].st_ctime_ns, reverse=True):
            room -= status.st_size
            if room < 0 and not stat.S_ISDIR(status.st_mode):
                path.unlink()

    def notice(self, session: str, kind: str, message: str) -> bool:
        """Write a Notification of the forwarder's own; False on a full disk."""
        raw = {
            "session_id": session,
            "hook_event_name": "Notification",
            "notification_type": kind,
            "level": "error",
            "message": message,
            "source": "hook-producer",
        }
        try:
            write_private_file(self.path / f"{NOTICE}{uuid.uuid4()}", dump(raw))
        except OSError:  # a full disk must not keep the spool from being emptied
            return False
        return True

    def report_unwritten(self, session: str) -> None:
        """Report the times in which hooks could not write, and delete their marks."""
        for name, why in (
            ("full", "the spool was full"),
            ("lost", "the disk was full, or no name was left"),
        ):
            try:
                since = (self.path / name).lstat().st_mtime
            except OSError:
                continue
            when = f"from {iso(since)} to {iso(time.time())}"
            if self.notice(session, "gap", f"Hook events {when} were not recorded: {why}."):
                (self.path / name).unlink(missing_ok=True)


def spool_status(path: Path) -> dict[str, Any]:
    """Describe a spool for `doctor` and the metrics; a missing one is empty.

    ``waiting`` files, ``oldest_age_seconds`` (None: nothing waits), ``bytes``, ``rejected`` files
    with the newest ``reasons``, and ``full`` (the hook command writes nothing until a forwarder
    runs).
    """
    try:
        files = Spool(path).files()
    except OSError:
        files = []
    try:
        why = sorted((path / "rejected").glob("*.why"), key=lambda p: p.lstat().st_mtime_ns)
        reasons = [json.loads(one.read_bytes()) for one in why[-5:]]
    except (OSError, ValueError):
        why, reasons = [], []
    return {
        "waiting": len(files),
        "oldest_age_seconds": max(0.0, time.time() - files[0].mtime_ns / 1e9) if files else None,
        "bytes": sum(file.size for file in files),
        "rejected": len(why),
        "reasons": reasons,
        "full": (path / "full").exists(),
    }
