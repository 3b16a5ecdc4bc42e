"""What runs on the agent's machine: the hook command, the translation of the agent's JSON, and the
forwarder that sends it (D47).

One file, Python 3.8 or newer, standard library only, so that it can be copied beside an agent on
another machine and run alone:

    python3 producer.py --spool DIR --print-hooks                                       # what to add to the agent's settings file
    python3 producer.py --spool DIR --url https://HOST:8443 --token-file F --pin HEX    # forwards until it is stopped

The hook command writes the agent's JSON to a file of the spool and returns. That file is complete
when it parses: no proper prefix of a JSON object is a JSON object, so nothing has to be renamed or
marked, and a command killed half-way leaves what never parses.
"""

from __future__ import annotations

import argparse
import ctypes
import email.utils
import errno
import fcntl
import hashlib
import hmac
import http.client
import json
import logging
import os
import random
import re
import select
import signal
import ssl
import stat
import sys
import threading
import time
import urllib.parse
import uuid
from collections import deque
from datetime import UTC, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

VERSION = "1.0.0"  # X-Hook-Version
SPOOL_MAX_BYTES = 200 * 2**20
EVENT_MAX_BYTES = 2**20
FILE_MAX_BYTES = 64 * 2**20  # more than this is not read at all
REJECTED_MAX_BYTES = 10 * 2**20
BATCH_MAX_EVENTS = 500
BATCH_MAX_BYTES = 8 * 2**20  # the bridge takes 10
BATCH_GAP_SECONDS = 6.5  # ten small batches a minute fit the bridge's rate; full ones go at once
FRESH_SECONDS = 240.0  # the bridge takes 300 either side; the rest is for the way there
GRACE_SECONDS = 10.0  # a file that neither parses nor grows for this long was cut short
BACKOFF_SECONDS = (0.2, 30.0)
POLL_SECONDS = 0.25
LOOK_SECONDS = 2.0  # how often the spool is read although nothing announced a change
STALE_RETRIES = 5
HOOK_SCRIPT = "hook.sh"
RESERVED = frozenset({"lock", "id", "full", "lost", "rejected", HOOK_SCRIPT})
# the session of a notice about something whose own session cannot be known
NOBODY = "hook-producer"

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Translated = tuple[str, dict[str, Any]]

log = logging.getLogger("hooks_app.producer.program")

# -- the hook command ------------------------------------------------------------------------------

# Event of the agent's settings file → matcher (None: the event takes none).
HOOK_EVENTS: dict[str, str | None] = {
    "SessionStart": None,
    "SessionEnd": None,
    "PreToolUse": "*",
    "PostToolUse": "*",
    "PostToolUseFailure": "*",
    "PermissionRequest": "*",
    "UserPromptSubmit": None,
    "Stop": None,
    "StopFailure": None,
    "SubagentStop": None,
    "PreCompact": None,
    "Notification": None,
}
HOOK_TIMEOUT_SECONDS = 10  # SPEC Hook producer configuration; SessionEnd would otherwise have 1.5
HOOK_MARK = " #bridge-hook"


def quoted(path: str) -> str:
    """Quote a path for the shell."""
    return "'" + path.replace("'", "'\\''") + "'"


def hook_command(spool: str) -> str:
    """Return the shell command of an agent's settings: source the script of ``spool``.

    It prints nothing and exits 0, whatever the script's state: without the trap dash would leave
    with 2 on a broken file, and 2 blocks the agent. The script ends the shell; where it does not,
    cat reads what the agent writes, or the agent would meet a broken pipe.
    """
    script = quoted(f"{spool}/{HOOK_SCRIPT}")
    return f"exec >/dev/null 2>&1;trap 'exit 0' 0;test -r {script}&&. {script};cat{HOOK_MARK}"


def hook_script(spool: str) -> str:
    """Return the script that `hook_command` sources: standard input goes into a new spool file.

    One process besides the shell, cat: the shell's own ``read`` takes a byte at a time.
    """
    return f"""\
# The bridge's hook: copies the event on standard input into a new file of the spool.
# Written by the bridge, which replaces it when it changes. It prints nothing and never fails.
umask 077
set -C # a redirection never overwrites a file that waits
written=
if cd {quoted(spool)} && [ ! -e full ]; then
  # The process id names the file; one that comes round again finds the name taken.
  for name in $$ $$.1 $$.2 $$.3 $$.4 $$.5 $$.6 $$.7 $$.8 $$.9; do
    {{
      written=1
      # LC_ALL=C spares cat the reading of locale files. On a full disk leave a mark.
      LC_ALL=C cat || {{ rm -f $name; echo >lost; cat >/dev/null; }}
    }} >$name
    [ $written ] && break
  done
  # Without a forwarder nobody empties the spool: one call in 257 measures it. A prime,
  # so that no rhythm of process ids avoids it.
  if [ $(($$ % 257)) = 0 ]; then
    set -- $(du -sk .)
    [ $1 -gt {SPOOL_MAX_BYTES // 1024 - 4800} ] && echo >full
  fi
fi
[ $written ] || cat # what is not written is read all the same
exit 0
"""


def write_hook_script(spool: Path) -> None:
    """Bring the script in ``spool`` up to date, renamed into place. Raises OSError."""
    path, text = spool / HOOK_SCRIPT, hook_script(str(spool)).encode()
    try:
        if _read_own(path) == text:
            return
    except OSError:
        pass  # it is not there, or no file: the rename says what is wrong
    write_whole(path, text)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of the spool, renamed into place. Raises OSError, and then nothing is left."""
    draft = path.with_name(f".draft-{uuid.uuid4()}")
    try:
        with open(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        ) as opened:
            opened.write(data)
        os.replace(draft, path)
    except OSError:
        try:
            draft.unlink()
        except OSError:
            pass  # it never came to be
        raise


def hook_entry(event: str, spool: str) -> dict[str, Any]:
    """One entry of the settings file's list for ``event`` (SPEC Hook producer configuration)."""
    matcher = HOOK_EVENTS[event]
    hook = {"type": "command", "command": hook_command(spool), "timeout": HOOK_TIMEOUT_SECONDS}
    return {"hooks": [hook]} if matcher is None else {"matcher": matcher, "hooks": [hook]}


# -- translation: the agent's JSON → a hook event of the contract ----------------------------------

RISK_OF_TOOL = {
    **dict.fromkeys(
        (
            "Read",
            "Glob",
            "Grep",
            "LS",
            "NotebookRead",
            "TodoWrite",
            "ToolSearch",
            "AskUserQuestion",
            "ExitPlanMode",
            "BashOutput",
            "TaskOutput",
        ),
        "low",
    ),
    **dict.fromkeys(("Bash", "PowerShell", "Monitor"), "high"),
}  # any other tool: medium
# What makes a shell command critical: it cannot be taken back, takes rights, or runs what nobody
# has read.
CRITICAL_COMMAND = re.compile(
    r"""\brm\s+(?:-\S+\s+){0,9}(?:-[a-zA-Z]*[rRf]|--recursive|--force)          # rm -rf, -r -f, -f
    |\b(?:sudo|doas|pkexec|mkfs(?:\.\w+)?|shutdown|reboot|wipefs)\b
    |\b(?:curl|wget)\b[^|;\n]{0,300}\|\s*(?:sudo\s+)?(?:\S{0,100}/)?(?:env\s+)?(?:ba|z|da|k)?(?:sh|python[\d.]*|perl|node|ruby)\b
    |\b(?:eval|sh|bash|zsh|source)\b[^;\n]{0,40}[$<]\(\s*(?:curl|wget)\b
    |\bgit\s+(?:\S+\s+){0,9}?push\b[^;&|\n]{0,200}\s(?:--force\S*|-[a-zA-Z]*f[a-zA-Z]*|--mirror|--delete|\+\S+)(?:\s|$)
    |\bgit\s+(?:reset\s+(?:\S+\s+){0,5}?--hard|clean\s+(?:\S+\s+){0,5}?-[a-zA-Z]*f)
    |\bdd\b[^;|\n]{0,200}\bof=/dev/|>\s*/dev/(?:sd|nvme|vd|hd|mmcblk|disk)
    |\bchmod\s+(?:-\S+\s+){0,5}(?:-R|--recursive)\b|\bchown\s+(?:-\S+\s+){0,5}(?:-R|--recursive)\b
    |:\s*\(\)\s*\{|\bterraform\s+destroy\b|\bkubectl\s+delete\b|\bdrop\s+(?:table|database|schema)\b""",
    re.VERBOSE | re.IGNORECASE,
)
COMMAND_READABLE_CHARS = 100_000  # a longer one has been read by nobody
SENSITIVE_PATH = re.compile(
    r"^/(?:etc|usr|boot|bin|sbin|lib)/|/\.(?:ssh|gnupg|aws|kube)/|/\.git/hooks/|/\.(?:bashrc|zshrc|profile|bash_profile)$|(?:^|/)\.env(?:\.|$)"
)

EXIT_REASONS = {
    "clear": "user_exit",
    "logout": "user_exit",
    "prompt_input_exit": "user_exit",
    "resume": "user_exit",
    "bypass_permissions_disabled": "error",
}
LEVELS = {"permission_prompt": "warning"}
SURROGATES = re.compile("[\ud800-\udfff]")


class Refused(ValueError):
    """Why a file of the spool can never be sent."""


def risk_level(tool: str, params: dict[str, Any]) -> str:
    """``low``: only reads; ``medium``: writes, asks the network, or is unknown; ``high``: a shell,
    or a sensitive path; ``critical``: CRITICAL_COMMAND.
    """
    risk = RISK_OF_TOOL.get(tool, "medium")
    command = str(params.get("command", ""))
    if risk == "high" and (
        len(command) > COMMAND_READABLE_CHARS or CRITICAL_COMMAND.search(command)
    ):
        return "critical"
    path = params.get("file_path") or params.get("notebook_path") or ""
    return (
        "high"
        if risk == "medium" and isinstance(path, str) and SENSITIVE_PATH.search(path)
        else risk
    )


def _tool(raw: dict[str, Any]) -> dict[str, Any]:
    params = raw.get("tool_input")
    params = params if isinstance(params, dict) else {} if params is None else {"input": params}
    call = raw.get("tool_use_id")
    return {
        "tool": str(raw.get("tool_name") or "unknown"),
        "params": params,
        **({"tool_call_id": call} if isinstance(call, str) and call else {}),
    }


def _took(raw: dict[str, Any]) -> dict[str, Any]:
    took = raw.get("duration_ms")
    return (
        {"execution_time_ms": took}
        if isinstance(took, (int, float)) and not isinstance(took, bool)
        else {}
    )


def _some(raw: dict[str, Any], **names: str) -> dict[str, Any]:
    """The fields of ``raw`` that are there and not null: new name → old name."""
    return {new: raw[old] for new, old in names.items() if raw.get(old) is not None}


def _work(raw: dict[str, Any]) -> dict[str, Any]:
    return _some(
        raw,
        background_tasks="background_tasks",
        session_crons="session_crons",
        stop_hook_active="stop_hook_active",
    )


def _session_start(raw: dict[str, Any]) -> Translated:
    # goes on in the same session, so it must not read as a new one
    if raw.get("source") == "compact":
        text = {
            "message": "The conversation was compacted.",
            "level": "info",
            "notification_type": "context_compacted",
        }
        return "Notification", {**text, **_some(raw, source="source", model="model")}
    return "SessionStart", {
        "working_directory": str(raw.get("cwd") or ""),
        "environment": _some(raw, source="source", model="model"),
    }


def _pre_tool(raw: dict[str, Any]) -> Translated:
    tool = _tool(raw)
    return "PreToolUse", {
        **tool,
        "risk_level": risk_level(tool["tool"], tool["params"]),
        "requires_approval": False,
    }


def _permission(raw: dict[str, Any]) -> Translated:
    return "PreToolUse", {
        **_pre_tool(raw)[1],
        "requires_approval": True,
        "permission_request": True,
    }


def _post_tool(raw: dict[str, Any]) -> Translated:
    return "PostToolUse", {
        **_tool(raw),
        "result": raw.get("tool_response"),
        "success": True,
        **_took(raw),
    }


def _failed_tool(raw: dict[str, Any]) -> Translated:
    result = {"error": raw.get("error"), "interrupted": bool(raw.get("is_interrupt"))}
    return "PostToolUse", {**_tool(raw), "result": result, "success": False, **_took(raw)}


def _prompt(raw: dict[str, Any]) -> Translated:
    prompt = str(raw.get("prompt") or "")
    # written by the agent to itself, not by a person
    synthetic = prompt.lstrip().startswith("<task-notification>")
    return "UserPromptSubmit", {
        "prompt": prompt,
        **({"context": {"synthetic": True}} if synthetic else {}),
    }


def _stop(raw: dict[str, Any]) -> Translated:
    return "Stop", {
        "reason": "task_completed",
        **_some(raw, message="last_assistant_message"),
        "context": _work(raw),
    }


def _failed_stop(raw: dict[str, Any]) -> Translated:
    reason = "max_tokens" if re.search("max.*token", str(raw.get("error"))) else "error"
    return "Stop", {
        "reason": reason,
        **_some(raw, message="last_assistant_message", error="error"),
        "context": _work(raw),
    }


def _session_end(raw: dict[str, Any]) -> Translated:
    reason = str(raw.get("reason") or "other")
    return "SessionEnd", {
        "exit_reason": EXIT_REASONS.get(reason, "error" if "error" in reason else "completion"),
        "reason": reason,
    }


def _subagent_stop(raw: dict[str, Any]) -> Translated:
    context = {
        **_some(
            raw,
            agent_id="agent_id",
            agent_type="agent_type",
            agent_transcript_path="agent_transcript_path",
        ),
        **_work(raw),
    }
    return "SubagentStop", {"result": raw.get("last_assistant_message"), "context": context}


def _notification(raw: dict[str, Any]) -> Translated:
    kind = str(raw.get("notification_type") or "")
    level = raw.get("level") or LEVELS.get(kind, "error" if "error" in kind else "info")
    return "Notification", {"message": str(raw.get("message") or ""), "level": level}


# The agent's event → what makes (event, payload) of it, and the fields of the agent's that this
# uses up. An event that is not here (MessageDisplay, PostToolBatch, SubagentStart, PostCompact,
# model switches, and whatever comes later) is not sent. All other fields stay in the payload (D3).
_TOOL_FIELDS = ("tool_name", "tool_input", "tool_use_id", "duration_ms")
_STOP_FIELDS = ("last_assistant_message", "background_tasks", "session_crons", "stop_hook_active")
TRANSLATIONS: dict[str, tuple[Callable[[dict[str, Any]], Translated], tuple[str, ...]]] = {
    "SessionStart": (_session_start, ("source", "model")),
    "PreToolUse": (_pre_tool, _TOOL_FIELDS),
    "PermissionRequest": (_permission, _TOOL_FIELDS),
    "PostToolUse": (_post_tool, (*_TOOL_FIELDS, "tool_response")),
    "PostToolUseFailure": (_failed_tool, (*_TOOL_FIELDS, "error", "is_interrupt")),
    "UserPromptSubmit": (_prompt, ("prompt",)),
    "Stop": (_stop, _STOP_FIELDS),
    "StopFailure": (_failed_stop, _STOP_FIELDS),
    "SessionEnd": (_session_end, ()),
    "SubagentStop": (_subagent_stop, _STOP_FIELDS),
    "PreCompact": (lambda raw: ("PreCompact", {"trigger": raw.get("trigger")}), ()),
    "Notification": (_notification, ()),
}


def translate(
    raw: dict[str, Any],
    *,
    now: float,
    mtime: float,
    event_id: str | None = None,
    offset: float = 0.0,
    limit: int = EVENT_MAX_BYTES,
) -> dict[str, Any] | None:
    """A hook's JSON as an event of the contract (SPEC Hook event, D37, D47), or None when the
    bridge has no use for it.

    ``mtime``: when the hook ran; ``now``: this machine's time, both seconds since 1970. A hook that
    ran long ago, or on a clock that is ``offset`` seconds from the server's, gets the server's
    time, and its own in ``occurred_at``. Over ``limit`` bytes it is cut and says so. Raises Refused
    when it can never be an event.
    """
    kind, session = raw.get("hook_event_name"), raw.get("session_id")
    if not isinstance(kind, str) or not kind:
        raise Refused("no hook_event_name")
    if kind not in TRANSLATIONS:
        return None
    if not isinstance(session, str) or not session:
        raise Refused("no session_id")
    make, used = TRANSLATIONS[kind]
    event, fields = make(raw)
    payload = {
        **fields,
        **{
            k: v
            for k, v in raw.items()
            if k not in used and k not in fields and k not in ("hook_event_name", "session_id")
        },
    }
    late = bool(offset) or abs(now - mtime) > FRESH_SECONDS
    body = {
        "event": event,
        **({"event_id": event_id} if event_id else {}),
        "timestamp": iso(now + offset if late else mtime),
        "session_id": session,
        "payload": payload,
    }
    if late:
        body["occurred_at"] = iso(mtime)
    try:
        return _fit(_clean(body), limit)
    except RecursionError:
        raise Refused("nested too deeply") from None


def iso(seconds: float) -> str:
    """ISO 8601 UTC; what no date can say becomes the nearest that one can."""
    seconds = min(max(seconds, 0.0), 253402300799.0)
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z")
    )


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _clean(value: Any) -> Any:
    """Lone surrogates, which UTF-8 cannot carry, become U+FFFD."""
    if isinstance(value, str):
        return SURROGATES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, list) else value


def _fit(event: dict[str, Any], limit: int) -> dict[str, Any]:
    """The event in at most ``limit`` bytes: its longest strings (and lists) are cut, and the
    payload says so.
    """
    size = len(dump(event))
    if size <= limit:
        return event
    keep = limit
    while keep >= 8:
        keep //= 2
        event["payload"] = {
            **_cut(event["payload"], keep),
            "truncated": True,
            "original_bytes": size,
        }
        if len(dump(event)) <= limit:
            return event
    raise Refused(f"cannot be cut to {limit} bytes")


def _cut(value: Any, keep: int) -> Any:
    if isinstance(value, str):
        return (
            value
            if len(value) <= keep + 64
            else f"{value[:keep]}… [{len(value) - keep} characters cut]"
        )
    if isinstance(value, dict):
        return {k: _cut(v, keep) for k, v in list(value.items())[: max(keep, 32)]}
    return [_cut(v, keep) for v in value[:keep]] if isinstance(value, list) else value


# -- the spool -------------------------------------------------------------------------------------


class File(NamedTuple):
    """A file of the spool that waits."""

    mtime_ns: int
    # of the hook's shell: process ids rise, which orders files of one tick of the file system's
    # clock
    pid: int
    name: str
    size: int
    mode: int
    uid: int


class Item(NamedTuple):
    """A file that was read: what the hook said, and the id that its event has for ever."""

    file: File
    raw: dict[str, Any]
    event_id: str

    @property
    def edge(self) -> int:
        return {"SessionStart": -1, "SessionEnd": 1}.get(str(self.raw.get("hook_event_name")), 0)


def _number(text: str) -> Any:
    """Numbers that other JSON readers, or Python's own writer, would choke on go as text."""
    if text.lstrip("-").isdigit():
        return int(text) if len(text) <= 18 else text
    value = float(text)
    return text if value in (float("inf"), float("-inf")) else value


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_JSON = json.JSONDecoder(
    parse_int=_number, parse_float=_number, parse_constant=_no_constant, strict=False
)


def own_directory(path: Path) -> None:
    """Make a directory with mode 0700, or bring it back to that. Raises OSError for a link, or for
    another user's.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
        if status.st_mode & 0o077:
            os.fchmod(directory, 0o700)
    finally:
        os.close(directory)


def _read_own(path: Path, most: int = 2**16) -> bytes:
    """The beginning of a file that is no link; a FIFO is not waited for."""
    with open(
        os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
    ) as opened:
        return opened.read(most) or b""


class Spool:
    """The directory between the hook command and the forwarder; nothing here raises for what one
    file does.
    """

    def __init__(self, path: Path, max_bytes: int = SPOOL_MAX_BYTES) -> None:
        self.path = path
        self.rejected = path / "rejected"
        self.max_bytes = max_bytes
        self._id = ""
        self._stuck: dict[str, str] = {}  # what could not be moved away: not looked at again
        # that notices cannot be written was said; they are tried again and again
        self._mute = False

    def make(self) -> None:
        """The directories, 0700, for the forwarder that holds the lock. A data directory that was
        removed does not come back. Raises OSError.
        """
        for path in (self.path, self.rejected):
            own_directory(path)
        identity = self.path / "id"
        try:
            self._id = _read_own(identity).decode().strip()
        except FileNotFoundError:
            self._id = uuid.uuid4().hex
            write_whole(identity, self._id.encode())
        for directory in (self.path, self.rejected):
            for draft in directory.glob(".draft-*"):  # of a forwarder that was killed
                draft.unlink()
        write_hook_script(self.path)

    def files(self) -> list[File]:
        """What waits, oldest first. Raises OSError when the directory is gone."""
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if (
                    entry.name in RESERVED
                    or entry.name in self._stuck
                    or entry.name.startswith(".draft")
                ):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                pid = re.match(r"\d{1,10}", entry.name)
                size = max(status.st_size, status.st_blocks * 512)
                number = int(pid.group()) if pid else 0
                found.append(
                    File(
                        status.st_mtime_ns, number, entry.name, size, status.st_mode, status.st_uid
                    )
                )
        found.sort()
        return found

    @staticmethod
    def strange(file: File) -> str:
        """Why a file is not even opened, else an empty string: no hook wrote it."""
        if not stat.S_ISREG(file.mode):
            return "not a regular file"
        if file.uid != os.geteuid():
            return "it belongs to another user"
        return f"over {FILE_MAX_BYTES} bytes" if file.size > FILE_MAX_BYTES else ""

    def event_id(self, file: File) -> str:
        """Made of what stays when the forwarder dies: this spool, the file's name and its time."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"spool:{self._id}/{file.name}/{file.mtime_ns}"))

    def read(self, file: File) -> Item:
        """Reads a file that is not ``strange``. Raises Refused when it can never be an event,
        ValueError when it is not (or not yet) one, OSError.
        """
        text = _read_own(self.path / file.name, FILE_MAX_BYTES + 1).decode("utf-8-sig", "replace")
        try:
            raw = _JSON.decode(text)
        except RecursionError:
            raise Refused("nested too deeply") from None
        if not isinstance(raw, dict):
            raise Refused("not a JSON object")
        return Item(file, raw, self.event_id(file))

    def drop(self, file: File) -> None:
        try:
            os.unlink(self.path / file.name)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._stuck[file.name] = str(error)
            log.error("cannot remove %s from the spool: %s", file.name, error)

    def set_aside(self, file: File, reason: str) -> None:
        """Move a file to ``rejected/``, with a ``.why`` beside it; what is huge is shortened, so
        that the spool stays bounded.
        """
        target = self.rejected / f"{file.name[:100]}-{file.mtime_ns}"
        try:
            os.rename(self.path / file.name, target)
        except FileNotFoundError:
            return
        except OSError as error:
            self._stuck[file.name] = str(error)
            log.error("cannot set %s aside: %s", file.name, error)
            return
        try:
            if stat.S_ISREG(file.mode) and file.size > EVENT_MAX_BYTES:
                os.truncate(target, EVENT_MAX_BYTES)
            write_whole(
                target.with_name(target.name + ".why"),
                dump(
                    {
                        "reason": reason,
                        "file": file.name,
                        "bytes": file.size,
                        "at": iso(time.time()),
                    }
                ),
            )
            self._trim_rejected()
        except OSError as error:
            # the disk is full; the name is free again all the same, for the next hook that has this
            # process id
            log.error("cannot write why %s was set aside: %s", file.name, error)

    def _trim_rejected(self) -> None:
        with os.scandir(self.rejected) as entries:
            known = sorted(
                (
                    e.stat(follow_symlinks=False).st_ctime_ns,
                    e.path,
                    e.stat(follow_symlinks=False).st_size,
                )
                for e in entries
                if e.is_file(follow_symlinks=False)
            )
        over = sum(size for _, _, size in known) - REJECTED_MAX_BYTES
        for _, path, size in known:
            if over <= 0:
                break
            os.unlink(path)
            over -= size

    def session_of(self, file: File) -> str:
        """The session id near the beginning of a file that need not parse, else NOBODY."""
        try:
            found = re.search(
                rb'"session_id"\s*:\s*"([\w.:-]{1,256})"', _read_own(self.path / file.name, 4096)
            )
        except OSError:
            return NOBODY
        return found.group(1).decode() if found else NOBODY

    def notice(self, session: str, kind: str, message: str) -> bool:
        """A Notification of the producer's own, spooled like a hook's, so that it survives what a
        hook's event survives. False: the disk is full.
        """
        raw = {
            "session_id": session,
            "hook_event_name": "Notification",
            "notification_type": kind,
            "level": "error",
            "message": message,
            "source": "hook-producer",
        }
        try:
            write_whole(self.path / f"notice-{uuid.uuid4()}", dump(raw))
        except OSError as error:  # a full disk must not keep the spool from being emptied
            if not self._mute:
                log.error("cannot write a notice: %s: %s", error, message)
            self._mute = True
            return False
        self._mute = False
        return True

    def bound(self, files: list[File]) -> list[File]:
        """Drop the oldest files until the spool is under its bound, say the gap to every session
        concerned, and return what is left.
        """
        total, dropped = sum(f.size for f in files), []
        if total > self.max_bytes * 19 // 20:
            while files and total > self.max_bytes * 9 // 10:
                total -= files[0].size
                dropped.append(files.pop(0))
        gaps: dict[str, list[File]] = {}
        for file in dropped:
            gaps.setdefault(self.session_of(file), []).append(file)
        told = [(session, _dropped(lost)) for session, lost in list(gaps.items())[:50]]
        told = [(session, text) for session, text in told if not self.notice(session, "gap", text)]
        for file in dropped:
            self.drop(file)
        for session, text in told:  # there is room now
            self.notice(session, "gap", text)
        self._say_what_was_lost(files)
        return files

    def _say_what_was_lost(self, files: list[File]) -> None:
        """Take away what hooks left when they could not write, once the gap is said."""
        for name, why in (("full", "the spool was full"), ("lost", "the disk was full")):
            try:
                since = (self.path / name).stat().st_mtime
            except OSError:
                continue
            newest = next((f for f in reversed(files) if stat.S_ISREG(f.mode)), None)
            session = self.session_of(newest) if newest else NOBODY
            if self.notice(
                session,
                "gap",
                f"Hook events from {iso(since)} to {iso(time.time())} were not recorded: {why}.",
            ):
                (self.path / name).unlink(missing_ok=True)


def _dropped(lost: list[File]) -> str:
    return f"{len(lost)} hook events from {iso(lost[0].mtime_ns / 1e9)} to {iso(lost[-1].mtime_ns / 1e9)} were dropped: the spool was full."


def spool_status(spool: Path) -> dict[str, Any]:
    """For `doctor` and the metrics: files ``waiting``, ``oldest_age_seconds`` (None: nothing
    waits), ``bytes``, ``rejected`` files with the newest ``reasons``, and ``full`` (the hook
    command writes nothing until a forwarder runs). A spool that is not there is empty."""
    try:
        files = Spool(spool).files()
    except OSError:
        files = []
    try:
        why = sorted((spool / "rejected").glob("*.why"), key=lambda p: p.lstat().st_mtime_ns)
        reasons = [json.loads(_read_own(path)) for path in why[-5:]]
    except (OSError, ValueError):
        why, reasons = [], []
    oldest = max(0.0, time.time() - files[0].mtime_ns / 1e9) if files else None
    return {
        "waiting": len(files),
        "oldest_age_seconds": oldest,
        "bytes": sum(f.size for f in files),
        "rejected": len(why),
        "reasons": reasons,
        "full": (spool / "full").exists(),
    }


# -- the way to the bridge -------------------------------------------------------------------------


class Unreachable(OSError):
    """No answer came: nobody there, a broken connection, a certificate with another key."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: dict[str, Any]  # {} when the body is no JSON object


class Transport(Protocol):
    """Posts a JSON body to a path of the bridge. Raises Unreachable when no whole answer came."""

    def __call__(self, path: str, body: bytes) -> Answer: ...


def spki_sha256(certificate: bytes) -> str:
    """SHA-256, in hex, of the SubjectPublicKeyInfo of a DER certificate: the pin (D43). Raises
    ValueError when it is no certificate.
    """

    def content(at: int) -> tuple[int, int]:
        if at + 2 > len(certificate):
            raise ValueError("not a certificate")
        length, at = certificate[at + 1], at + 2
        if length & 0x80:
            octets = length & 0x7F
            length, at = int.from_bytes(certificate[at : at + octets], "big"), at + octets
        return at, at + length

    at = content(content(0)[0])[0]  # into Certificate, into TBSCertificate
    if certificate[at : at + 1] == b"\xa0":  # version, absent in v1
        at = content(at)[1]
    for _ in ("serialNumber", "signature", "issuer", "validity", "subject"):
        at = content(at)[1]
    return hashlib.sha256(certificate[at : content(at)[1]]).hexdigest()


class HttpsTransport:
    """One kept-alive HTTPS connection to the bridge.

    ``url``: https://HOST[:PORT]; ``token``: called for each request, so that a replaced token file
    is seen; ``pin``: the SPKI's SHA-256 in hex, compared after the handshake and before a byte of
    the request. Without a pin the certificate must satisfy the system's authorities.
    """

    def __init__(
        self, url: str, token: Callable[[], str], pin: str = "", timeout: float = 30.0
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the address must be https://HOST:PORT, not {url}")
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._pin = pin.lower().replace(":", "")
        if self._pin:
            # without the system's authorities, which take time and memory to read
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._connection = http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=timeout, context=context
        )

    def __call__(self, path: str, body: bytes) -> Answer:
        kept = self._connection.sock is not None
        try:
            return self._post(path, body)
        except Unreachable:
            if not kept:
                raise
        # the bridge had closed the idle connection; the event_id makes a repetition harmless
        return self._post(path, body)

    def _post(self, path: str, body: bytes) -> Answer:
        try:
            if self._connection.sock is None:
                self._connect()
            headers = {
                "Authorization": "Bearer " + self._token(),
                "Content-Type": "application/json",
                "X-Hook-Source": "primary-agent",
                "X-Hook-Version": VERSION,
            }
            self._connection.request("POST", self._prefix + path, body, headers)
            response = self._connection.getresponse()
            text = response.read(16 * 2**20)
            if response.will_close or not response.isclosed():
                self.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise (
                error
                if isinstance(error, Unreachable)
                else Unreachable(f"{type(error).__name__}: {error}")
            ) from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = {}
        return Answer(
            response.status,
            {k.lower(): v for k, v in response.getheaders()},
            answer if isinstance(answer, dict) else {},
        )

    def _connect(self) -> None:
        self._connection.connect()
        if self._pin:
            certificate = self._connection.sock.getpeercert(binary_form=True)
            if not certificate or not hmac.compare_digest(spki_sha256(certificate), self._pin):
                raise Unreachable("the certificate's key is not the pinned one")

    def close(self) -> None:
        self._connection.close()


class Watch:
    """Waits until something may have changed in a directory: inotify where there is one, else a
    poll.
    """

    _EVENTS = 0x8 | 0x80 | 0x400 | 0x800  # CLOSE_WRITE, MOVED_TO, DELETE_SELF, MOVE_SELF

    def __init__(self, path: Path) -> None:
        self._fd = -1
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if (
                self._fd >= 0
                and libc.inotify_add_watch(self._fd, os.fsencode(path), self._EVENTS) < 0
            ):
                self.close()
        except (OSError, AttributeError):  # no inotify here
            self.close()
        # select() takes no descriptor over 1023, of which a server may have many
        self._poll = select.poll()
        if self._fd >= 0:
            self._poll.register(self._fd, select.POLLIN)

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Return when something was written, when ``stop`` is set or when the time is over; the
        spool is read again in each case.
        """
        if self._fd < 0:
            stop.wait(min(seconds, POLL_SECONDS))
            return
        until = time.monotonic() + seconds
        while not stop.is_set() and time.monotonic() < until:
            if self._poll.poll(1000 * min(POLL_SECONDS, max(0.0, until - time.monotonic()))):
                os.read(self._fd, 65536)
                return

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


# -- the forwarder ---------------------------------------------------------------------------------

EVENT, BATCH = "/api/v1/hooks/event", "/api/v1/hooks/batch"
# What another attempt with the same event may cure, besides 3xx and 5xx: the token, the address,
# the rate. Every other 4xx is the event's own fault.
WAIT_STATUS = frozenset({401, 403, 404, 405, 407, 408, 421, 425, 429})
WAIT_CODES = frozenset({"HOST_NOT_ALLOWED"})


class Blocked(Exception):
    """Nothing more can be sent before ``until`` (monotonic seconds)."""

    def __init__(self, until: float) -> None:
        super().__init__(until)
        self.until = until


class Forwarder:
    """Sends what the spool holds, in order of time, each file until the answer that covers it; two
    on one spool take turns by a lock file.

    ``run_once()`` sends what can be sent now; ``run_forever(stop)`` is for a thread. ``sent`` and
    ``refused`` count events, ``trouble`` says in one line why nothing goes out at present (empty:
    nothing is wrong).
    """

    def __init__(
        self,
        spool: Path,
        send: Transport,
        *,
        max_bytes: int = SPOOL_MAX_BYTES,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self.spool = Spool(Path(spool), max_bytes)
        self.sent = self.refused = 0
        self.trouble = ""
        self._send = send
        self._grace = grace
        self._lock: int | None = None
        self._watch: Watch | None = None
        self._queue: deque[File] = deque()  # not read yet
        self._ready: deque[Item] = deque()  # read, in order, not sent yet
        self._open_at = {EVENT: 0.0, BATCH: 0.0}  # monotonic: when the rate allows the next request
        self._retry_at = 0.0
        self._failures = 0
        self._last_batch = -BATCH_GAP_SECONDS
        # halved while batches are refused as a whole, until the culprit is alone
        self._batch_max = BATCH_MAX_EVENTS
        self._offset = 0.0  # the server's clock minus ours, once it called a timestamp stale
        self._limits: dict[str, int] = {}  # event_id → bytes, of what the bridge found too large
        self._stale: dict[str, int] = {}  # event_id → how often its time was refused
        # name → time, size, since when unchanged: not (yet) JSON
        self._young: dict[str, tuple[int, int, float]] = {}
        # (session, reason) → files set aside that no notice has told of
        self._told: dict[tuple[str, str], int] = {}

    # -- running

    def run_forever(self, stop: threading.Event) -> None:
        """Forward until ``stop`` is set. A spool whose parent directory is gone, or that another
        forwarder has, is waited for.
        """
        try:
            while not stop.is_set():
                try:
                    self.run_once()
                except OSError as error:
                    # the spool was removed, or the disk is full: not the forwarder's end
                    self._say(f"the spool cannot be used: {error}")
                    self.close()
                self._pause(stop)
        finally:
            self.close()

    def _pause(self, stop: threading.Event) -> None:
        wait = self._retry_at - time.monotonic()
        if self._watch is None:
            stop.wait(1.0)
        elif wait > 0:
            stop.wait(wait)
        else:
            self._watch.wait(stop, POLL_SECONDS if self._young else LOOK_SECONDS)

    def run_once(self) -> int:
        """Send what waits until nothing can be sent now; return how many events the bridge has
        taken. Raises OSError when the spool is unusable.
        """
        if not self._locked():
            return 0
        before = self.sent
        files = self.spool.files()
        for file in files:
            if reason := self.spool.strange(file):
                self._refuse(file, reason)
        self._queue, self._ready = (
            deque(self.spool.bound([file for file in files if not self.spool.strange(file)])),
            deque(),
        )
        try:
            if time.monotonic() >= self._retry_at:
                while self._fill():
                    self._round()
        except Blocked as blocked:
            self._retry_at = blocked.until
        self._tell()
        return self.sent - before

    def close(self) -> None:
        """Give the spool to the next forwarder."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _locked(self) -> bool:
        """True when this forwarder owns the spool. A lock file that was replaced (a new spool at
        the same place) is taken anew.
        """
        path = self.spool.path / "lock"
        own_directory(self.spool.path)
        if self._lock is not None:
            try:
                if os.fstat(self._lock).st_ino == path.stat().st_ino:
                    return True
            except FileNotFoundError:
                pass
            self.close()
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        self.spool.make()
        self._watch = Watch(self.spool.path)
        return True

    # -- reading

    def _fill(self) -> bool:
        """Read files, oldest first, until a batch is together; those that are not whole yet are
        passed over. False: nothing is left to send.
        """
        items = list(self._ready)
        while self._queue and (
            len(items) < BATCH_MAX_EVENTS or items[-1].file.mtime_ns == self._queue[0].mtime_ns
        ):
            file = self._queue.popleft()
            try:
                items.append(self.spool.read(file))
            except Refused as reason:
                self._refuse(file, str(reason))
            except FileNotFoundError:
                continue
            except (ValueError, OSError) as error:
                self._wait_for(file, "not JSON" if isinstance(error, ValueError) else str(error))
            else:
                self._young.pop(file.name, None)
        self._ready = deque(in_order(items))
        return bool(self._ready)

    def _wait_for(self, file: File, reason: str) -> None:
        """A file that is not JSON may still be written to; one that was not seen to grow for a
        while never will be. Its time says nothing: clocks are set.
        """
        mtime_ns, size, since = self._young.get(file.name, (0, 0, 0.0))
        now = time.monotonic()
        if (mtime_ns, size) != (file.mtime_ns, file.size):
            since = now
            self._young[file.name] = (file.mtime_ns, file.size, now)
        if now - since >= self._grace:
            del self._young[file.name]
            self._refuse(
                file, reason if file.size else "empty: the disk was full, or the hook was killed"
            )

    # -- one request

    def _round(self) -> None:
        size = sum(item.file.size for item in self._ready)
        full = len(self._ready) >= self._batch_max or size > BATCH_MAX_BYTES
        path = self._choose(
            len(self._ready),
            full,
            any(item.raw.get("hook_event_name") == "PermissionRequest" for item in self._ready),
        )
        chosen = self._next(1 if path == EVENT else self._batch_max)
        if not chosen:
            return
        items = [item for item, _ in chosen]
        if len(items) == 1 and self._open_at[EVENT] <= time.monotonic():
            path = EVENT
        if path == BATCH:
            self._last_batch = time.monotonic()
        body = (
            chosen[0][1]
            if path == EVENT
            else b'{"events":[' + b",".join(made for _, made in chosen) + b"]}"
        )
        try:
            answer = self._send(path, body)
        except Unreachable as error:
            self._back_off(str(error))
        else:
            self._ready.extendleft(reversed(self._judge(path, items, answer)))

    def _choose(self, count: int, full: bool, urgent: bool) -> str:
        """The endpoint for what waits: a backlog goes as a batch; between two small batches the
        rate of single events is used up first.
        """
        now = time.monotonic()
        gap_over = full or self._last_batch + BATCH_GAP_SECONDS <= now
        batch_at = (
            self._open_at[BATCH]
            if full or urgent
            else max(self._open_at[BATCH], self._last_batch + BATCH_GAP_SECONDS)
        )
        if count > 1 and self._batch_max > 1 and batch_at <= now and gap_over:
            return BATCH
        if self._open_at[EVENT] <= now:
            return EVENT
        if batch_at <= now:
            return BATCH
        raise Blocked(min(batch_at, self._open_at[EVENT]))

    def _next(self, most: int) -> list[tuple[Item, bytes]]:
        """The next events as JSON, at most ``most`` and under 8 MB together."""
        chosen: list[tuple[Item, bytes]] = []
        room, now = BATCH_MAX_BYTES, time.time()
        while self._ready and len(chosen) < most:
            body = self._body(self._ready[0], now)
            if body is not None and chosen and room < len(body):
                break
            item = self._ready.popleft()
            if body is not None:
                room -= len(body) + 1
                chosen.append((item, body))
        return chosen

    def _body(self, item: Item, now: float) -> bytes | None:
        """The event, or None when there is none to send; the file is then gone or set aside."""
        try:
            limit = self._limits.get(item.event_id, EVENT_MAX_BYTES)
            made = translate(
                item.raw,
                now=now,
                mtime=item.file.mtime_ns / 1e9,
                event_id=item.event_id,
                offset=self._offset,
                limit=limit,
            )
        except (ValueError, OverflowError, RecursionError) as reason:
            self._refuse(item.file, str(reason), item)
            return None
        if made is None:
            self.spool.drop(item.file)
            return None
        return dump(made)

    # -- the answer

    def _judge(self, path: str, items: list[Item], answer: Answer) -> list[Item]:
        """Act on the answer; return the items that it does not settle. Raises Blocked."""
        if answer.status == 200 and answer.body.get("received") is not None:
            self._failures = 0
            self._say("")
            self._batch_max = min(BATCH_MAX_EVENTS, self._batch_max * 2)
            return self._settle(items, {} if path == EVENT else _errors(answer.body), answer)
        if answer.status == 429:
            wait = retry_after(answer)
            self._open_at[path] = time.monotonic() + (1.0 if wait is None else wait)
            self._say("the bridge takes no more events this minute")
            return items
        if (
            answer.status in WAIT_STATUS
            or not 400 <= answer.status < 500
            or str(answer.body.get("code")) in WAIT_CODES
        ):
            self._back_off(
                f"the bridge answered {answer.status} {answer.body.get('code', '')}".rstrip(),
                retry_after(answer),
            )
        if len(items) > 1:
            self._batch_max = len(items) // 2
            return items
        if answer.status == 413 and self._limits.get(items[0].event_id, EVENT_MAX_BYTES) >= 4096:
            self._limits[items[0].event_id] = (
                self._limits.get(items[0].event_id, EVENT_MAX_BYTES) // 4
            )
            return items
        self._batch_max = min(BATCH_MAX_EVENTS, self._batch_max * 2)
        return self._settle(items, {0: _reason(answer.body, answer.status)}, answer)

    def _settle(
        self, items: list[Item], errors: dict[int, tuple[str, bool]], answer: Answer
    ) -> list[Item]:
        """The answer covers ``items``, but for those of ``errors``: index → (reason, stale).
        Returns what was only stale.
        """
        again: list[Item] = []
        for index, item in enumerate(items):
            reason, stale = errors.get(index, ("", False))
            tries = self._stale.pop(item.event_id, 0)
            if stale and tries < STALE_RETRIES:
                self._stale[item.event_id] = tries + 1
                again.append(item)
                continue
            self._limits.pop(item.event_id, None)
            if reason:
                self._refuse(item.file, reason, item)
            else:
                self.spool.drop(item.file)
                self.sent += 1
        if again:
            server = server_time(answer)
            if server is None:
                self._batch_max = 1  # the error for one event tells the server's time
            else:
                self._offset = server - time.time()
        return again

    def _back_off(self, why: str, wait: float | None = None) -> NoReturn:
        self._say(why)
        low, high = BACKOFF_SECONDS
        pause = min(high, low * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
        self._failures += 1
        raise Blocked(time.monotonic() + (pause if wait is None else wait))

    def _refuse(self, file: File, reason: str, item: Item | None = None) -> None:
        self.refused += 1
        session = item.raw.get("session_id") if item else None
        if not isinstance(session, str) or not 0 < len(session) <= 256:
            ours = stat.S_ISREG(file.mode) and file.uid == os.geteuid()
            session = self.spool.session_of(file) if ours else NOBODY
        self.spool.set_aside(file, reason)
        log.warning("set aside %s: %s", file.name, reason)
        if not file.name.startswith("notice-"):  # a notice about a notice would never end
            self._told[session, reason] = self._told.get((session, reason), 0) + 1

    def _tell(self) -> None:
        """One notice for each session and reason of this run, not one for each file."""
        for (session, reason), count in list(self._told.items()):
            what = "A hook event" if count == 1 else f"{count} hook events"
            if self.spool.notice(
                session, "hook_rejected", f"{what} could not be delivered: {reason}"
            ):
                del self._told[session, reason]

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("%s", trouble)
        elif self.trouble and not trouble:
            log.info("the bridge takes events again")
        self.trouble = trouble


def in_order(items: list[Item]) -> Iterator[Item]:
    """By time; at a tie SessionStart first and SessionEnd last, else by process id, which began
    anew if the range is wide.
    """
    start = 0
    while start < len(items):
        end = start
        while end < len(items) and items[end].file.mtime_ns == items[start].file.mtime_ns:
            end += 1
        tie = items[start:end]
        # sorted by process id: half of the usual range
        wrapped = tie[-1].file.pid - tie[0].file.pid > 16384
        yield from sorted(
            tie,
            key=lambda item: (
                item.edge,
                wrapped and item.file.pid < 16384,
                item.file.pid,
                item.file.name,
            ),
        )
        start = end


def _reason(body: dict[str, Any], status: int = 400) -> tuple[str, bool]:
    """(why, is it only the time) of an error body, or of one of a batch's errors."""
    found = body.get("validation_errors")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    rules = {str(row.get("rule")) for row in rows} | {str(body.get("code"))}
    text = "; ".join(f"{row.get('field')}: {row.get('message')}" for row in rows) or str(
        body.get("message") or f"the bridge answered {status}"
    )
    return text[:500], "HOOK_STALE_TIMESTAMP" in rules


def _errors(body: dict[str, Any]) -> dict[int, tuple[str, bool]]:
    rows = body.get("errors")
    return (
        {
            row["index"]: _reason(row)
            for row in rows
            if isinstance(row, dict) and isinstance(row.get("index"), int)
        }
        if isinstance(rows, list)
        else {}
    )


def _http_date(text: object) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(str(text)).timestamp()
    except (TypeError, ValueError):
        return None


def retry_after(answer: Answer) -> float | None:
    """Seconds, from ``Retry-After`` (a number or a date) or the body; at most ten minutes."""
    value = answer.headers.get("retry-after", answer.body.get("retry_after"))
    try:
        seconds = float(str(value))
    except ValueError:
        date = _http_date(value)
        seconds = float("nan") if date is None else date - time.time()
    return min(600.0, max(0.0, seconds)) if seconds == seconds else None


def server_time(answer: Answer) -> float | None:
    """The server's clock, from the body's ``timestamp``, else the ``Date`` header."""
    try:
        told = datetime.fromisoformat(str(answer.body.get("timestamp")).replace("Z", "+00:00"))  # noqa: FURB162 - Python 3.8 does not read Z
    except ValueError:
        return _http_date(answer.headers.get("date"))
    return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()  # noqa: UP017 - Python 3.8


# -- alone -----------------------------------------------------------------------------------------


def token_from(path: Path) -> Callable[[], str]:
    """Reads the token file anew each time. The returned function raises OSError when it cannot."""

    def read() -> str:
        return path.read_text().strip()

    return read


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Forwards an agent's hooks to a bridge.")
    parser.add_argument(
        "--spool", type=Path, required=True, help="directory that the hook command writes to"
    )
    parser.add_argument("--url", help="https://HOST:PORT of the bridge")
    parser.add_argument("--token-file", type=Path, help="file with the bridge's hook token")
    parser.add_argument(
        "--pin",
        default="",
        help="SHA-256 of the bridge's public key, in hex (without: the system's authorities decide)",
    )
    parser.add_argument(
        "--print-hooks",
        action="store_true",
        help="make the spool, print what belongs into the agent's settings file, and end",
    )
    parser.add_argument(
        "--status", action="store_true", help="print what waits in the spool, and end"
    )
    given = parser.parse_args(arguments)
    spool = Path(os.path.abspath(given.spool))
    if given.print_hooks:
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_hook_script(spool)
    if given.print_hooks or given.status:
        shown = (
            spool_status(spool)
            if given.status
            else {"hooks": {event: [hook_entry(event, str(spool))] for event in HOOK_EVENTS}}
        )
        sys.stdout.write(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
        return 0
    if not given.url or not given.token_file:
        parser.error("--url and --token-file are needed to forward")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        transport = HttpsTransport(given.url, token_from(given.token_file), given.pin)
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Forwarder(spool, transport).run_forever(stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
