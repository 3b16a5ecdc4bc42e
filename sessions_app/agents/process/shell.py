"""Runs a command that an agent wants run by the bridge, with a time limit and bounded output (SPEC
Limits, Tool retry policy).

The bridge itself never runs a failed command again: half of it may have happened. What the retry
table says goes to the client in ``tool_error``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import shlex
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.errors import TOOL_RETRIES
from bridge_project.protocol.types import ToolErrorCode
from sessions_app.agents.process import groups as process_groups

_CHUNK = 64 * 1024
_BY_CODE = {
    126: "permission_denied",
    127: "file_not_found",
    137: "out_of_memory",
    -9: "out_of_memory",
}
_BY_ERRNO = {
    errno.ENOENT: "file_not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ENOMEM: "out_of_memory",
    errno.ETIMEDOUT: "network_timeout",
}
# What programs say, at the end of their standard error, by the kinds of the spec's retry table. The
# first that fits counts.
_BY_WORDS = (
    (
        "network_timeout",
        re.compile(
            r"connection timed out|operation timed out|timeout was reached|ETIMEDOUT|network is unreachable",
            re.IGNORECASE,
        ),
    ),
    ("rate_limited", re.compile(r"too many requests|rate.?limit|\b429\b", re.IGNORECASE)),
    (
        "out_of_memory",
        re.compile(r"cannot allocate memory|out of memory|MemoryError", re.IGNORECASE),
    ),
    ("permission_denied", re.compile(r"permission denied|operation not permitted", re.IGNORECASE)),
    ("file_not_found", re.compile(r"no such file or directory|not found", re.IGNORECASE)),
)
_TAIL_CHARS = 2000
# for what a command has printed when it has ended; what it left running may print for ever
_LAST_WORDS_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Ran:
    """``failure``: why it failed, empty if it did not; ``retries``: how often the spec lets it be
    tried again.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    failure: str = ""
    code: ToolErrorCode = "TOOL_EXECUTION_FAILED"
    retries: int = 0


class Output:
    """What a stream has said: of more than ``limit`` bytes the beginning, or, with ``tail``, the
    end.
    """

    def __init__(self, limit: int = limits.TOOL_OUTPUT_BYTES, *, tail: bool = False) -> None:
        self._kept = bytearray()
        self._limit = limit
        self._tail = tail
        self.total = 0

    @property
    def cut(self) -> bool:
        return self.total > self._limit

    async def read(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(_CHUNK):
            self.total += len(data)
            self._kept += data if self._tail else data[: max(0, self._limit - len(self._kept))]
            del self._kept[: max(0, len(self._kept) - self._limit)]

    @property
    def text(self) -> str:
        """Without half a character at the cut, nor NULs, which no database holds."""
        return self._kept.decode("utf-8", "ignore" if self.cut else "replace").replace(
            "\x00", "\ufffd"
        )

    def __str__(self) -> str:
        return f"{self.text}\n[cut: {self.total} bytes in all]" if self.cut else self.text


async def run(
    command: str,
    directory: Path,
    groups: process_groups.Groups,
    *,
    seconds: float = limits.TOOL_TIMEOUT_BASH_SECONDS,
) -> Ran:
    """Run ``command`` with ``sh`` in ``directory``, as one of ``groups``.

    It and all it started are ended after ``seconds``, and when this is cancelled. What it leaves
    running when it has ended by itself goes on until ``groups`` are ended. What could not be
    started is a failure too, not an exception.
    """
    try:
        group = await process_groups.start(["/bin/sh", "-c", command], directory)
    except OSError as error:
        return Ran(
            "",
            "",
            None,
            f"The command could not be started: {error.strerror or error}.",
            retries=retries_of_error(error),
        )
    except ValueError:  # a NUL, or half of a character
        return Ran("", "", None, "The command could not be started: it holds what no command can.")
    groups.add(group)
    stdout, stderr = Output(), Output()
    in_time = await finished(group, seconds, stdout.read(group.stdout), stderr.read(group.stderr))
    code = group.returncode
    if not in_time:
        return Ran(
            str(stdout),
            str(stderr),
            None,
            f"The command took longer than {seconds:g} seconds and was ended.",
            "TOOL_TIMEOUT",
        )
    if code == 0:
        return Ran(str(stdout), str(stderr), 0)
    return Ran(
        str(stdout),
        str(stderr),
        code,
        f"The command {ending(code)}.",
        retries=retries_of(code, stderr.text),
    )


async def finished(
    group: process_groups.Group, seconds: float, *reading: Coroutine[Any, Any, None]
) -> bool:
    """Wait until a command has ended and what it printed is read; False when it took longer than
    ``seconds``.

    In that case, and when this is cancelled, it is ended with all it started. Else what it has left
    running goes on, and its output is read on.
    """
    readers = asyncio.gather(*reading)
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(group.exited.wait(), seconds)
        in_time = group.exited.is_set()
    except asyncio.CancelledError:
        await asyncio.shield(process_groups.end_group(group, patience=0))
        raise
    if not in_time:
        await asyncio.shield(process_groups.end_group(group, patience=0))
    await asyncio.wait({readers}, timeout=_LAST_WORDS_SECONDS)
    return in_time


def retries_of(code: int | None, stderr: str) -> int:
    """How often the spec's table lets a command be tried again that failed like this."""
    return TOOL_RETRIES.get(kind_of_failure(code, stderr), 0)


def kind_of_failure(code: int | None, stderr: str) -> str:
    """The kind of the retry table by what a program says, else by its exit code; empty for none of
    them.
    """
    tail = stderr[-_TAIL_CHARS:]
    return next(
        (kind for kind, words in _BY_WORDS if words.search(tail)),
        _BY_CODE.get(code, "") if code is not None else "",
    )


def retries_of_error(error: Exception) -> int:
    """How often the spec's table lets be tried again what an error of the operating system has
    ended.
    """
    return TOOL_RETRIES.get(kind_of_error(error), 0) if isinstance(error, OSError) else 0


def kind_of_error(error: OSError) -> str:
    """The kind of the retry table of an error of the operating system; empty for the bridge's own
    time limit, which has no number of the system's.
    """
    return _BY_ERRNO.get(error.errno or 0, "")


def ending(code: int | None) -> str:
    return (
        f"was ended by signal {-code}"
        if code is not None and code < 0
        else f"ended with code {code}"
    )


def quoted(command: str, arguments: Sequence[str]) -> str:
    """A command and its arguments as one line that a person can read."""
    return shlex.join([command, *arguments]) if arguments else command
