"""Keep events as files, from the hook command to the forwarder, one each (D47)."""

from __future__ import annotations

import contextlib
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

from hooks_app.producer.files import make_own_directory, read_own, write_whole
from hooks_app.producer.shell_command import HOOK_SCRIPT, write_hook_script
from hooks_app.producer.translate import EVENT_MAX_BYTES, Refused, dump, iso

FILE_MAX_BYTES = 64 * 2**20  # more than this is not read at all
REJECTED_MAX_BYTES = 10 * 2**20
RESERVED = frozenset({"lock", "id", "full", "lost", "rejected", HOOK_SCRIPT})
NOTICE = "notice-"  # begins the names of the forwarder's own files
_NAME = re.compile(r"(\d+)([.-]\d+)?|notice-[\w-]+", re.ASCII)
# the session of a notice when the real session is unknown
NOBODY = "hook-producer"

log = logging.getLogger("hooks_app.producer.spool")


class File(NamedTuple):
    """Describe a waiting file; they sort by time."""

    mtime_ns: int
    # of the hook's shell: process ids rise, which orders files of one tick of the file system's
    # clock
    pid: int
    name: str
    size: int
    mode: int
    uid: int

    @property
    def odd(self) -> str:
        """Return why a file cannot be a hook's and must not be opened; "" if it can."""
        if not _NAME.fullmatch(self.name):
            return "its name is not one that a hook gives"
        if not stat.S_ISREG(self.mode):
            return "not a regular file"
        if self.uid != os.geteuid():
            return "it belongs to another user"
        return f"over {FILE_MAX_BYTES} bytes" if self.size > FILE_MAX_BYTES else ""


def _file(name: str, status: os.stat_result) -> File:
    found = _NAME.fullmatch(name)
    pid = int(found[1][:10]) if found and found[1] else 0
    size = max(status.st_size, status.st_blocks * 512)
    return File(status.st_mtime_ns, pid, name, size, status.st_mode, status.st_uid)


class Spool:
    """Read and remove the spool's files; set bad ones aside, report lost ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rejected = path / "rejected"
        self._id = ""
        self.stuck: set[str] = set()  # names of what could not be moved away
        self._notices_fail = False  # that was logged; they are tried again and again

    def make(self) -> None:
        """Make the spool's directories, 0700.

        Only the forwarder with the lock calls it. It does not make a removed data directory again.
        Raises OSError.
        """
        for path in (self.path, self.rejected):
            make_own_directory(path)
            for draft in path.glob(".draft-*"):  # of a forwarder that was killed
                draft.unlink()
        identity = self.path / "id"
        try:
            self._id = read_own(identity)[0].decode().strip()
        except FileNotFoundError:
            self._id = uuid.uuid4().hex
            write_whole(identity, self._id.encode())
        write_hook_script(self.path)

    def files(self, known: Collection[str] = ()) -> list[File]:
        """Return waiting files that are not ``known``, oldest first. Raises OSError."""
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                name = entry.name
                if name in RESERVED or name in known or name.startswith(".draft-"):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    found.append(_file(name, entry.stat(follow_symlinks=False)))
        return sorted(found)

    def read(self, name: str) -> tuple[File, dict[str, Any]]:
        """Return a file once it is whole, and its JSON.

        Raises Refused when it can never be an event, ValueError when it is not (or not yet) one,
        OSError.
        """
        data, status = read_own(self.path / name, FILE_MAX_BYTES + 1)
        file = _file(name, status)
        if file.odd:
            raise Refused(file.odd)
        try:
            raw = json.loads(data.decode("utf-8-sig", "replace"), strict=False)
        except RecursionError:
            raise Refused("nested too deeply") from None
        if not isinstance(raw, dict):
            raise Refused("not a JSON object")
        return file, raw

    def event_id(self, file: File) -> str:
        """Make an id from spool, name and time, the same after a restart."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"spool:{self._id}/{file.name}/{file.mtime_ns}"))

    def drop(self, name: str) -> None:
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            self.stuck.add(name)
            log.error("cannot remove %s from the spool: %s", name, error)

    def set_aside(self, file: File, reason: str) -> None:
        """Move a file to ``rejected/``, shortened if huge, with a ``.why`` beside it."""
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
        try:
            if stat.S_ISREG(file.mode) and file.size > EVENT_MAX_BYTES:
                os.truncate(target, EVENT_MAX_BYTES)
            write_whole(target.with_name(target.name + ".why"), dump(why))
            self._trim_rejected()
        except OSError as error:
            # the disk is full; the name is free again all the same, for the next hook that has this
            # process id
            log.error("cannot write why %s was set aside: %s", file.name, error)

    def _trim_rejected(self) -> None:
        with os.scandir(self.rejected) as entries:
            found = [(e.stat(follow_symlinks=False), e.path) for e in entries]
        known = [(s.st_ctime_ns, path, s.st_size) for s, path in found if stat.S_ISREG(s.st_mode)]
        over = sum(size for _, _, size in known) - REJECTED_MAX_BYTES
        for _, path, size in sorted(known):
            if over <= 0:
                break
            os.unlink(path)
            over -= size

    def session_of(self, file: File) -> str:
        """Return the session id found near a file's start, even in broken JSON."""
        data = b""
        if stat.S_ISREG(file.mode) and file.uid == os.geteuid():
            with contextlib.suppress(OSError):
                data, _ = read_own(self.path / file.name, 4096)
        found = re.search(rb'"session_id"\s*:\s*"([\w.:-]{1,256})"', data)
        return found.group(1).decode() if found else NOBODY

    def notice(self, session: str, kind: str, message: str) -> bool:
        """Write a Notification of the forwarder's own; False when the disk is full."""
        raw = {
            "session_id": session,
            "hook_event_name": "Notification",
            "notification_type": kind,
            "level": "error",
            "message": message,
            "source": "hook-producer",
        }
        try:
            write_whole(self.path / f"{NOTICE}{uuid.uuid4()}", dump(raw))
        except OSError as error:  # a full disk must not keep the spool from being emptied
            if not self._notices_fail:
                log.error("cannot write a notice: %s: %s", error, message)
            self._notices_fail = True
            return False
        self._notices_fail = False
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
        reasons = [json.loads(read_own(one)[0]) for one in why[-5:]]
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
