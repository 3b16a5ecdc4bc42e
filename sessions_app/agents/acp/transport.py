"""Carry JSON-RPC messages between the ACP library and an agent's process."""

import json
from collections.abc import Awaitable, Callable
from typing import get_args

from acp import schema
from acp.meta import CLIENT_METHODS

from bridge_project.protocol import jsontext
from sessions_app.agents.acp import choices, lenient
from sessions_app.agents.process.groups import Group
from sessions_app.agents.process.json_lines import JsonLines, Message

_UPDATES = frozenset(
    kind
    for model in get_args(schema.SessionNotification.model_fields["update"].annotation)
    for kind in get_args(model.model_fields["session_update"].annotation)
)
INTERNAL_ERROR = -32603  # JSON-RPC's own


class AcpTransport(JsonLines):
    """Implement the library's transport; read nothing before ``wait_for_room`` ends."""

    def __init__(self, group: Group, wait_for_room: Callable[[], Awaitable[None]]) -> None:
        super().__init__(group, "the Agent Client Protocol", _message)
        self._wait_for_room = wait_for_room

    async def receive(self) -> Message | None:
        await self._wait_for_room()
        return await super().receive()

    async def send(self, message: Message) -> None:
        """Send a message. Raises ConnectionError when the process reads no more."""
        await self.write_line(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def close(self) -> None:
        self.group.stdin.close()


def _message(line: bytes) -> Message | None:
    """Return a line's message; None for one at which the library would stop reading."""
    try:
        found = jsontext.loads_lenient(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not ("method" in found or "id" in found):
        return None
    id_, method = found.get("id"), found.get("method", "")
    if not isinstance(id_, str | int | None) or not isinstance(method, str):
        return None
    if found.get("error") is not None and not isinstance(found["error"], dict):
        # no error of the protocol's: say it in its words
        found["error"] = {"code": INTERNAL_ERROR, "message": str(found["error"])}
    if isinstance(result := found.get("result"), dict):
        choices.keep_models(result)
    if method == CLIENT_METHODS["session_update"]:
        params = found.get("params")
        update = params.get("update") if isinstance(params, dict) else None
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        if not isinstance(update, dict) or not isinstance(kind, str) or kind not in _UPDATES:
            return {}  # the library does not know this update, and would log a fault
        lenient.fit_update(update)
    asks = method == CLIENT_METHODS["session_request_permission"]
    if asks and isinstance(found.get("params"), dict):
        lenient.fit_request(found["params"])
    if method == CLIENT_METHODS["elicitation_create"] and isinstance(found.get("params"), dict):
        lenient.fit_form(found["params"])
    return found
