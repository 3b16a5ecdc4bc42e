"""Carry codex's messages as lines of its process (D75).

Another carrier, such as a WebSocket, has the same two methods.
"""

import json
from typing import Any, Protocol

from bridge_project.protocol import jsontext
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


def _message(line: bytes) -> Message | None:
    """Return a line's message, None for a line that is none."""
    try:
        found = jsontext.loads_lenient(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("id"), str | int | None):
        return None
    return found if isinstance(found.get("method"), str) or "id" in found else None
