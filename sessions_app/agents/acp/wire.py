"""The pipe to an ACP agent: JSON-RPC messages, one a line, from a process that may say anything,
and that is not read faster than it is listened to.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, get_args

from acp import schema
from acp.meta import CLIENT_METHODS

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import Output
from sessions_app.agents.process.groups import Group
from sessions_app.agents.process.shell import ending

_TERMINAL_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_UPDATES = frozenset(
    kind
    for model in get_args(schema.SessionNotification.model_fields["update"].annotation)
    for kind in get_args(model.model_fields["session_update"].annotation)
)
INTERNAL_ERROR = -32603  # JSON-RPC's own
# for standard error, once the process has ended; what it started may hold it open for ever
_LAST_WORDS_SECONDS = 0.5


class Wire:
    """The message transport of one agent's process, as the ACP library wants it
    (``acp.connection.Connection``).

    Lines that are no message are passed over: npm's wrappers and debuggers print where they like.
    After ``limits.AGENT_NOISE_LINES`` of them in a row, or a message over
    ``limits.AGENT_MESSAGE_BYTES``, the agent counts as gone and ``fault`` says why. ``ended`` is
    set when nothing more comes.
    """

    def __init__(self, group: Group, room: Callable[[], Awaitable[None]]) -> None:
        self.group = group
        self.fault = ""
        self.ended = asyncio.Event()
        self._room = room
        self._noise = 0
        # first come, first sent: a cancel never overtakes its prompt
        self._writing = asyncio.Lock()
        self._stderr = Output(4 * limits.AGENT_STDERR_CHARS, tail=True)
        self._reading = asyncio.create_task(self._stderr.read(group.stderr))

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when there is none any more."""
        await self._room()
        while not self.fault and (line := await self._line()):
            await asyncio.sleep(0)  # of what has been read already there may be thousands of lines
            if message := _message(line):
                self._noise = 0
                if _is_news(message):
                    continue
                return message
            self._noise += bool(line.strip())
            if self._noise > limits.AGENT_NOISE_LINES:
                self.fault = "what it prints are no messages of the Agent Client Protocol"
        self.ended.set()
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Raises ConnectionError when the process takes nothing any more."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._writing:
            if self.group.stdin.is_closing():
                raise ConnectionResetError("the agent's input is closed")
            self.group.stdin.write(data)
            await self.group.stdin.drain()

    async def close(self) -> None:
        """Tell the process that nothing more comes."""
        self.group.stdin.close()

    async def last_words(self) -> str:
        """How the process ended, and the end of what it printed as an error, in a line or some."""
        if self.group.exited.is_set():
            await asyncio.wait({self._reading}, timeout=_LAST_WORDS_SECONDS)
        said = _TERMINAL_CODES.sub("", self._stderr.text).strip()[-limits.AGENT_STDERR_CHARS :]
        how = self.fault or (
            f"it {ending(self.group.returncode)}"
            if self.group.exited.is_set()
            else "it closed its output"
        )
        return f"{how}: {said}" if said else how

    def stop(self) -> None:
        self._reading.cancel()

    async def _line(self) -> bytes:
        """The next line with its end, empty at the end of the stream or after a fault."""
        pieces: list[bytes] = []
        size = 0
        while size <= limits.AGENT_MESSAGE_BYTES:
            try:
                piece = await self.group.stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                piece = await self.group.stdout.readexactly(overrun.consumed)
                pieces.append(piece)
                size += len(piece)
            except asyncio.IncompleteReadError as end:
                return b"".join([*pieces, end.partial])
            else:
                return b"".join([*pieces, piece])
        self.fault = f"it sent a message of more than {limits.AGENT_MESSAGE_BYTES} bytes"
        return b""


def _message(line: bytes) -> dict[str, Any] | None:
    """A line as a JSON-RPC message, if it is one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return (
        _sane(found) if isinstance(found, dict) and ("method" in found or "id" in found) else None
    )


def _sane(message: dict[str, Any]) -> dict[str, Any] | None:
    """A message whose frame the library can read, which else would listen no more; an error that is
    none of the protocol's is said in its words.
    """
    if not isinstance(message.get("id"), str | int | None) or not isinstance(
        message.get("method", ""), str
    ):
        return None
    if message.get("error") is not None and not isinstance(message["error"], dict):
        message["error"] = {"code": INTERNAL_ERROR, "message": str(message["error"])}
    return message


def _is_news(message: dict[str, Any]) -> bool:
    """An update of a kind that the protocol got later than the library: not for us, and the library
    would log a fault for each.
    """
    if message.get("method") != CLIENT_METHODS["session_update"]:
        return False
    params = message.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    return not isinstance(update, dict) or update.get("sessionUpdate") not in _UPDATES
