"""Run shell commands for an agent, and classify their failures (SPEC Limits).

The bridge never runs a failed command again: half of it may have happened. How often the spec's
retry policy allows it goes to the client in ``tool_error``.
"""

import asyncio
import contextlib
import errno
import re
import shlex
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import LAST_OUTPUT_SECONDS, Output
from bridge_project.kernel.errors import TOOL_RETRIES
from bridge_project.protocol.resources import ToolErrorDetails
from sessions_app.agents.events import ToolFailed, ToolSucceeded
from sessions_app.agents.process import groups as process_groups
from sessions_app.approvals.tool_call import Call
from sessions_app.approvals.tool_result import Failure

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


async def run(
    call: Call, command: str, directory: Path, groups: process_groups.Groups
) -> ToolSucceeded | ToolFailed:
    """Run ``command`` with ``sh``, as one of ``groups``, and return how it ended.

    It and all it started are ended after TOOL_TIMEOUT_BASH_SECONDS, and when this is cancelled.
    What it leaves running when it has ended by itself goes on until ``groups`` are ended. What
    could not be started is a failure too, not an exception.
    """
    began = time.monotonic()
    try:
        group = await process_groups.start(["/bin/sh", "-c", command], directory)
    except (OSError, ValueError) as error:  # ValueError: a NUL, or half of a character
        unfit = "it holds what no command can"
        why = error.strerror or error if isinstance(error, OSError) else unfit
        words = f"The command could not be started: {why}."
        return ToolFailed(call, Failure(words, retries=retries_of_error(error)))
    groups.add(group)
    out, err = Output(), Output()
    in_time = await finished(group, out.read(group.stdout), err.read(group.stderr))
    took = round((time.monotonic() - began) * 1000)
    if in_time and group.returncode == 0:
        return ToolSucceeded(call, str(out) or str(err), None, {"exit_code": 0}, took)
    code = group.returncode if in_time else None
    return ToolFailed(call, failure_of(code, took, str(out), str(err)))


def failure_of(code: int | None, took_ms: int, stdout: str, stderr: str | None = None) -> Failure:
    """Describe a command that failed; ``code`` is None when it took too long.

    Without ``stderr``, ``stdout`` holds both.
    """
    details = ToolErrorDetails(stdout=stdout, stderr=stderr, execution_time_ms=took_ms)
    if code is None:
        long = f"took longer than {limits.TOOL_TIMEOUT_BASH_SECONDS:g} seconds and was ended"
        return Failure(f"The command {long}.", "TOOL_TIMEOUT", details)
    details.exit_code = code if code >= 0 else None
    tail = (stdout if stderr is None else stderr)[-_TAIL_CHARS:]
    said = (kind for kind, words in _BY_WORDS.items() if re.search(words, tail, re.IGNORECASE))
    retries = TOOL_RETRIES.get(next(said, _BY_CODE.get(code, "")), 0)
    return Failure(f"The command {ending(code)}.", details=details, retries=retries)


async def finished(group: process_groups.Group, *reading: Coroutine[Any, Any, None]) -> bool:
    """Wait until a command has ended and is read; False when it takes too long.

    In that case, and when this is cancelled, it is ended with all it started. Else what it has left
    running goes on, and its output is read on.
    """
    readers = asyncio.gather(*reading)
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(group.exited.wait(), limits.TOOL_TIMEOUT_BASH_SECONDS)
        in_time = group.exited.is_set()
    except asyncio.CancelledError:
        await asyncio.shield(process_groups.end_group(group, patience=0))
        raise
    if not in_time:
        await asyncio.shield(process_groups.end_group(group, patience=0))
    await asyncio.wait({readers}, timeout=LAST_OUTPUT_SECONDS)
    return in_time


def retries_of_error(error: Exception) -> int:
    """Return how often to retry after an error; 0 for the bridge's own time limit."""
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
