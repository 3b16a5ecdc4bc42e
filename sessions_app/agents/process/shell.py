"""Run shell commands for an agent, and classify their failures (SPEC Limits).

The bridge never runs a failed command again: half of it may have happened. How often the spec's
retry policy allows it goes to the client in ``tool_error``.
"""

import asyncio
import errno
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

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
_BY_OUTPUT = {
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


class Command:
    """Read a command's output to its end; at the deadline end all it started.

    When it has ended by itself, what it has left running goes on, and its output is read on.
    """

    def __init__(self, group: process_groups.Group) -> None:
        self._group = group
        self._out, self._err = Output(), Output()
        self._timed_out = False
        self._duration_ms = 0
        self.over = asyncio.create_task(self._run())  # it has ended, and its output is read

    async def _run(self) -> None:
        began, group = time.monotonic(), self._group
        readers = asyncio.gather(self._out.read(group.stdout), self._err.read(group.stderr))
        try:
            await process_groups.within(limits.TOOL_TIMEOUT_BASH_SECONDS, group.exited.wait())
            self._timed_out = not group.exited.is_set()
        except asyncio.CancelledError:
            await asyncio.shield(process_groups.end_group(group, at_once=True))
            raise
        if self._timed_out:
            await asyncio.shield(process_groups.end_group(group, at_once=True))
        await asyncio.wait({readers}, timeout=LAST_OUTPUT_SECONDS)
        self._duration_ms = round((time.monotonic() - began) * 1000)

    @property
    def failure(self) -> Failure | None:
        """Return how it failed, if it did."""
        details = ToolErrorDetails(
            stdout=str(self._out), stderr=str(self._err), execution_time_ms=self._duration_ms
        )
        if self._timed_out:
            long = f"took longer than {limits.TOOL_TIMEOUT_BASH_SECONDS:g} seconds and was ended"
            return Failure(f"The command {long}.", "TOOL_TIMEOUT", details)
        code = self._group.returncode
        if not code:
            return None
        details.exit_code = code if code >= 0 else None
        tail = self._err.text[-_TAIL_CHARS:]
        hits = (kind for kind, words in _BY_OUTPUT.items() if re.search(words, tail, re.IGNORECASE))
        retries = TOOL_RETRIES.get(next(hits, _BY_CODE.get(code, "")), 0)
        how = f"The command {ending(code)}."
        return Failure(how, details=details, retries=retries)

    def outcome(self, call: Call) -> ToolSucceeded | ToolFailed:
        """Return how it ended, as the result of its call."""
        if failure := self.failure:
            return ToolFailed(call, failure)
        text = str(self._out) or str(self._err)
        return ToolSucceeded(call, text, None, {"exit_code": 0}, self._duration_ms)


async def run(
    call: Call, command: str, directory: Path, groups: process_groups.Groups
) -> ToolSucceeded | ToolFailed:
    """Run ``command`` with ``sh``, as one of ``groups``, and return how it ended.

    It is ended with all it started when this is cancelled. What could not be started is a failure
    too, not an exception.
    """
    try:
        group = await process_groups.start(["/bin/sh", "-c", command], directory)
    except (OSError, ValueError) as error:  # ValueError: a NUL, or half of a character
        unfit = "it has a NUL or broken text"
        why = error.strerror or error if isinstance(error, OSError) else unfit
        words = f"The command could not be started: {why}."
        return ToolFailed(call, Failure(words, retries=retries_of_error(error)))
    groups.add(group)
    running = Command(group)
    await running.over
    return running.outcome(call)


def retries_of_error(error: Exception) -> int:
    """Return how often to retry after an error; 0 for the bridge's own time limit."""
    number = error.errno if isinstance(error, OSError) else None
    return TOOL_RETRIES.get(_BY_ERRNO.get(number or 0, ""), 0)


def ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code}"
    return f"ended with code {code}"


def quoted(command: str, arguments: Sequence[str]) -> str:
    """Return a command and its arguments as one readable line."""
    return shlex.join([command, *arguments]) if arguments else command


def script(command: str, arguments: Sequence[str]) -> str:
    """Return the script in a ``sh -c`` command; any other command as one line."""
    if command in _SHELLS and len(arguments) == 2 and arguments[0] in _FLAGS:
        return arguments[1]
    return quoted(command, arguments)
