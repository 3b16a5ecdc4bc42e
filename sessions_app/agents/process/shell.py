"""Run shell commands for an agent, and classify their failures (SPEC Limits).

The bridge never runs a failed command again: half of it may have happened. How often the spec's
retry policy allows it goes to the client in ``tool_error``.
"""

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
from bridge_project.kernel.child_process import LAST_OUTPUT_SECONDS, Output
from bridge_project.kernel.errors import TOOL_RETRIES
from bridge_project.protocol.types import ToolErrorCode
from sessions_app.agents.process import groups as process_groups

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
# What programs say at the end of their standard error; the first that fits counts.
_BY_WORDS = {
    "network_timeout": r"connection timed out|operation timed out|timeout was reached|ETIMEDOUT"
    r"|network is unreachable",
    "rate_limited": r"too many requests|rate.?limit|\b429\b",
    "out_of_memory": r"cannot allocate memory|out of memory|MemoryError",
    "permission_denied": r"permission denied|operation not permitted",
    "file_not_found": r"no such file or directory|not found",
}
_TAIL_CHARS = 2000
_NAMES = ("sh", "bash", "zsh", "dash")
_SHELLS = frozenset(f"{where}{name}" for where in ("", "/bin/", "/usr/bin/") for name in _NAMES)
# with others, what is run is not only what the last argument says
_FLAGS = frozenset({"-c", "-lc"})


@dataclass(frozen=True, slots=True)
class Ran:
    """Hold how a command ended; ``failure`` is empty if it succeeded.

    ``retries``: how often the spec lets it be tried again.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    failure: str = ""
    code: ToolErrorCode = "TOOL_EXECUTION_FAILED"
    retries: int = 0


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
        failure = f"The command could not be started: {error.strerror or error}."
        return Ran("", "", None, failure, retries=retries_of_error(error))
    except ValueError:  # a NUL, or half of a character
        return Ran("", "", None, "The command could not be started: it holds what no command can.")
    groups.add(group)
    out, err = Output(), Output()
    in_time = await finished(group, seconds, out.read(group.stdout), err.read(group.stderr))
    code = group.returncode
    if not in_time:
        failure = f"The command took longer than {seconds:g} seconds and was ended."
        return Ran(str(out), str(err), None, failure, "TOOL_TIMEOUT")
    if code == 0:
        return Ran(str(out), str(err), 0)
    failure = f"The command {ending(code)}."
    return Ran(str(out), str(err), code, failure, retries=retries_of(code, err.text))


async def finished(
    group: process_groups.Group, seconds: float, *reading: Coroutine[Any, Any, None]
) -> bool:
    """Wait until a command has ended and is read; False after ``seconds``.

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
    await asyncio.wait({readers}, timeout=LAST_OUTPUT_SECONDS)
    return in_time


def retries_of(code: int | None, stderr: str) -> int:
    """Return how often to retry a command that failed with this text or code."""
    tail = stderr[-_TAIL_CHARS:]
    for kind, words in _BY_WORDS.items():
        if re.search(words, tail, re.IGNORECASE):
            return TOOL_RETRIES.get(kind, 0)
    return TOOL_RETRIES.get(_BY_CODE.get(code or 0, ""), 0)


def retries_of_error(error: Exception) -> int:
    """Return how often to retry a command that failed with a Python exception.

    0 for the bridge's own time limit, which has no number of the system's.
    """
    number = error.errno if isinstance(error, OSError) else None
    return TOOL_RETRIES.get(_BY_ERRNO.get(number or 0, ""), 0)


def ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code}"
    return f"ended with code {code}"


def quoted(command: str, arguments: Sequence[str]) -> str:
    """Write a command and its arguments as one readable line."""
    return shlex.join([command, *arguments]) if arguments else command


def script(command: str, arguments: Sequence[str]) -> str:
    """Return the script in a ``sh -c`` command; any other command as one line."""
    if command in _SHELLS and len(arguments) == 2 and arguments[0] in _FLAGS:
        return arguments[1]
    return quoted(command, arguments)
