"""Carry codex's messages by lines of a process (D75), or a WebSocket (D80)."""

import asyncio
import json
from pathlib import Path
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from sessions_app.agents.host import sockets
from sessions_app.agents.process.groups import Group
from sessions_app.agents.process.json_lines import JsonLines, Message


class Transport(Protocol):
    """Carry the messages of one connection, in their order."""

    async def receive(self) -> Message | None:
        """Return the next message, None at the end.

        It lets other tasks run before, so that what a message has caused comes before the next.
        """

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises ConnectionError when nobody reads it any more."""


class Lines(JsonLines):
    """Carry them by lines on the standard input and output of a process."""

    def __init__(self, group: Group) -> None:
        super().__init__(group, "that of codex's app-server", _message)

    async def send(self, message: dict[str, Any]) -> None:
        await self.write_line(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class Frames:
    """Carry them by text frames of a WebSocket on a Unix socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    @classmethod
    async def open(cls, path: Path) -> "Frames":
        """Connect to who listens there. Raises ConnectionError; also for another user's."""
        try:
            socket = await connect(
                "ws://localhost/",
                sock=sockets.connect(path),
                compression=None,
                max_size=limits.AGENT_MESSAGE_BYTES,
                open_timeout=limits.JOIN_SECONDS,
                ping_interval=None,
                proxy=None,
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            raise ConnectionError(str(error)) from error
        return cls(socket)

    async def receive(self) -> Message | None:
        while True:
            await asyncio.sleep(0)
            try:
                frame = await self._socket.recv(decode=False)
            except ConnectionClosed:
                return None
            if (message := _message(frame)) is not None:
                return message

    async def send(self, message: dict[str, Any]) -> None:
        try:
            await self._socket.send(json.dumps(message, separators=(",", ":")))
        except ConnectionClosed as error:
            raise ConnectionResetError("codex has ended") from error

    async def close(self) -> None:
        await self._socket.close()


def _message(line: bytes) -> Message | None:
    """Return the message of a line or a frame, None for one that has none."""
    try:
        found = jsontext.loads_lenient(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("id"), str | int | None):
        return None
    return found if isinstance(found.get("method"), str) or "id" in found else None
