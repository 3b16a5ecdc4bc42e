"""Exchange JSON messages, one a line, with a process that may print anything."""

import asyncio
from collections.abc import Callable
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import LAST_OUTPUT_SECONDS, Output
from bridge_project.kernel.logging import redact
from bridge_project.kernel.terminal_output import shown_output
from sessions_app.agents.process.groups import Group, within
from sessions_app.agents.process.shell import ending

Message = dict[str, Any]


class JsonLines:
    """Read and write the messages of one process.

    ``parse`` returns a line's message, None for a line that is none, and {} for a message to pass
    over; it raises ValueError, with the reason for a person, for a line that ends the conversation.
    After AGENT_NOISE_LINES lines in a row that are no message, or a message over
    AGENT_MESSAGE_BYTES, the agent counts as gone. ``ended`` is set when nothing more comes.
    """

    def __init__(
        self, group: Group, protocol: str, parse: Callable[[bytes], Message | None]
    ) -> None:
        self.group = group
        self.ended = asyncio.Event()
        self._protocol = protocol
        self._parse = parse
        self._fault = ""
        self._noise = 0
        # first come, first sent: a cancel never overtakes its prompt
        self._writing = asyncio.Lock()
        self._stderr = Output(4 * limits.AGENT_STDERR_CHARS, tail=True)
        self._reading = asyncio.create_task(self._stderr.read(group.stderr))

    async def receive(self) -> Message | None:
        """Return the next message; None at the end."""
        while not self._fault and (line := await self._line()):
            await asyncio.sleep(0)  # of what has been read already there may be thousands of lines
            try:
                message = self._parse(line)
            except ValueError as error:
                self._fault = str(error)
                break
            if message:
                self._noise = 0
                return message
            self._noise = 0 if message is not None else self._noise + bool(line.strip())
            if self._noise > limits.AGENT_NOISE_LINES:
                self._fault = f"its output is not {self._protocol}"
        self.ended.set()
        return None

    async def write_line(self, data: bytes) -> None:
        """Send a line. Raises ConnectionError when the process reads no more."""
        async with self._writing:
            if self.group.stdin.is_closing():
                raise ConnectionResetError("the agent's input is closed")
            self.group.stdin.write(data)
            await self.group.stdin.drain()

    async def wait_ended(self) -> None:
        """Wait until the process has ended or closed its output."""
        waiting = [asyncio.create_task(one.wait()) for one in (self.group.exited, self.ended)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            # What it had written is read first, and how it ended; something that it started may
            # hold its output open for ever.
            await asyncio.wait(waiting, timeout=limits.AGENT_END_SECONDS)
        finally:
            for task in waiting:
                task.cancel()

    @property
    def error_output(self) -> str:
        """Return the end of its error output, without secrets."""
        text = redact(shown_output(self._stderr.text), self.group.secrets)
        return text.strip()[-limits.AGENT_STDERR_CHARS :]

    async def describe_end(self) -> str:
        """Return how the process ended, with the end of its error output."""
        if not self._fault:
            await within(limits.AGENT_END_SECONDS, self.group.exited.wait())
        exited = self.group.exited.is_set()
        if exited:
            await asyncio.wait({self._reading}, timeout=LAST_OUTPUT_SECONDS)
        output = self.error_output
        ended = f"it {ending(self.group.returncode)}" if exited else "it closed its output"
        return f"{self._fault or ended}: {output}" if output else self._fault or ended

    def stop_reading(self) -> None:
        """Stop reading the program's error output."""
        self._reading.cancel()

    async def _line(self) -> bytes:
        """Return the next line; empty at the end of the stream or after a fault."""
        pieces: list[bytes] = []
        size = 0
        while size <= limits.AGENT_MESSAGE_BYTES:
            try:
                piece = await self.group.stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                pieces.append(await self.group.stdout.readexactly(overrun.consumed))
                size += overrun.consumed
            except asyncio.IncompleteReadError as end:
                return b"".join([*pieces, end.partial])
            else:
                return b"".join([*pieces, piece])
        self._fault = f"it sent a message of more than {limits.AGENT_MESSAGE_BYTES} bytes"
        return b""
