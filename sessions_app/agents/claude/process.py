"""The program of claude-code as a process of ours: its command line, and its messages as lines of
JSON, by the SDK's own interface for it.

The SDK's transport would hand the bridge's whole environment on and leave the program in our
process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import CLIConnectionError, CLINotFoundError, ProcessError, Transport

from bridge_project.kernel import limits
from sessions_app.agents.process import groups

ENVIRONMENT = {
    # this one and the next as the SDK's own transport sets them
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_AGENT_SDK_VERSION": claude_agent_sdk.__version__,
    # Else a turn would end while its subagents go on: their approvals with it, and nobody would
    # wait for them before the session is paused or closed.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
}
_ALWAYS = (
    *(
        "--output-format",
        "stream-json",
        "--verbose",
        "--input-format",
        "stream-json",
        "--include-partial-messages",
    ),
    # whatever asks, asks us
    *("--permission-prompt-tool", "stdio", "--permission-mode", "default"),
    # nothing that a user or a repository has configured is started, allowed or told by hooks
    *("--setting-sources=", "--strict-mcp-config"),
)


def command(program: Path, resume_id: str | None) -> list[str]:
    """``resume_id``: the session to continue, else a new one. One argument with its value, which so
    can never be an option itself.
    """
    return [str(program), *_ALWAYS, *([f"--resume={resume_id}"] if resume_id else [])]


class Cli(Transport):
    """One run of the program. ``close`` ends it and everything that it started."""

    def __init__(self, arguments: Sequence[str], directory: Path) -> None:
        self._arguments, self._directory = arguments, directory
        self._group: groups.Group | None = None
        self._errors: asyncio.Task[None] | None = None
        self._last_words = ""
        self._writing = asyncio.Lock()
        self._open = False
        self._closing = self._closed = False

    @property
    def pid(self) -> int | None:
        return self._group.pid if self._group is not None else None

    @property
    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._last_words.strip()

    async def connect(self) -> None:
        try:
            self._group = await groups.start(
                self._arguments,
                self._directory,
                more=ENVIRONMENT,
                stdin=True,
                line_bytes=limits.AGENT_MESSAGE_BYTES,
            )
        except FileNotFoundError as error:
            raise CLINotFoundError(str(error)) from error
        except OSError as error:
            raise CLIConnectionError(str(error)) from error
        self._open = True
        self._errors = asyncio.create_task(self._listen(self._group.stderr))

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(limits.AGENT_STDERR_CHARS):
            self._last_words = (self._last_words + data.decode("utf-8", "replace"))[
                -limits.AGENT_STDERR_CHARS :
            ]

    def is_ready(self) -> bool:
        return self._open

    async def write(self, data: str) -> None:
        if self._group is None or not self._open:
            raise CLIConnectionError("The agent is not running.")
        async with self._writing:
            try:
                self._group.stdin.write(data.encode())
                await self._group.stdin.drain()
            except (ConnectionError, RuntimeError) as error:
                self._open = False
                raise CLIConnectionError("The agent takes no more input.") from error

    async def end_background(self) -> None:
        """End what its commands have left running."""
        if self._group is not None:
            await groups.end_background(self._group)

    async def end_input(self) -> None:
        """Nothing more is said to it. It then finishes what it does, and ends."""
        self._open = False
        if self._group is not None and self._group.process.stdin is not None:
            self._group.process.stdin.close()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Every message, until the program ends. Raises ProcessError when it does so unasked, or
        says what cannot be understood.
        """
        assert self._group is not None
        noise = 0
        while line := await self._line(self._group.stdout):
            message = _message(line)
            if message is not None:
                noise = 0
                yield message
            elif (noise := noise + 1) > limits.AGENT_NOISE_LINES:
                raise ProcessError("It wrote many lines that are no messages.")
        await self._group.exited.wait()
        if self._errors is not None:
            # longer only if something that it started has it open
            await asyncio.wait([self._errors], timeout=limits.AGENT_END_SECONDS)
        if not self._closing:
            raise ProcessError(
                "It ended by itself.", self._group.returncode, self.last_words or None
            )

    async def _line(self, stream: asyncio.StreamReader) -> bytes:
        try:
            return await stream.readline()
        except ValueError:
            raise ProcessError(
                f"It wrote a message of more than {limits.AGENT_MESSAGE_BYTES} bytes."
            ) from None

    async def close(self) -> None:
        """Bounded, and may be called twice: it is told by the end of its input, so that it can save
        its session, then made to end.
        """
        self._closing = True
        await self.end_input()
        group = self._group
        if group is None or self._closed:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(group.exited.wait(), limits.AGENT_END_SECONDS)
        await groups.end_group(group, patience=0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_drain(group.stdout), limits.AGENT_END_SECONDS)
        if self._errors is not None:
            await asyncio.wait([self._errors], timeout=limits.AGENT_END_SECONDS)
            self._errors.cancel()
            await asyncio.wait([self._errors])
        self._closed = True


async def _drain(stream: asyncio.StreamReader) -> None:
    """Read what nobody wants any more: a pipe that is not read to its end is never closed."""
    # the reader of messages is still at it, and reads to the end itself
    with contextlib.suppress(RuntimeError):
        while await stream.read(limits.AGENT_LINE_BYTES):
            pass


def _message(line: bytes) -> dict[str, Any] | None:
    """A line as a message; None for what some versions write beside them. Raises ProcessError for
    what is meant as one and is none.
    """
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        message = json.loads(line)
    except ValueError:
        raise ProcessError("It wrote a message that is no JSON.") from None
    return message if isinstance(message, dict) else None
