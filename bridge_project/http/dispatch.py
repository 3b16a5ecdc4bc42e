"""The registry of message handlers, and the one place where a failure becomes a WebSocket message
(SPEC WebSocket errors).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from bridge_project.kernel import failure_alerts, metrics
from bridge_project.kernel.errors import BridgeError, documentation_path
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.base import ClientPayload
from bridge_project.protocol.parse import ClientMessage

Handler = Callable[[Any, ClientMessage], Awaitable[BaseModel | None]]

HANDLERS: dict[str, Handler] = {}


class Refused(BridgeError):
    """The connection cannot go on: ``connection_error`` with this code, then the row's close code
    (D21).
    """


def handles(model: type[ClientPayload]) -> Callable[[Handler], Handler]:
    """Register the handler of a client message: ``async def handler(socket, message)``, where
    ``message.payload`` is a ``model``.

    A handler returns the payload that answers, or None when it has answered through the socket or
    nothing does. It raises BridgeError for an ``error``, Refused for a ``connection_error``.
    """

    def register(handler: Handler) -> Handler:
        if model.type in HANDLERS:
            raise ValueError(f"{model.type} is handled twice")
        HANDLERS[model.type] = handler
        return handler

    return register


def handler_of(message: ClientMessage) -> Handler:
    """The message's handler. Raises BridgeError PROTO_INVALID_MESSAGE for one that this version
    does not serve.
    """
    if message.type not in HANDLERS:
        violation = {
            "field": "type",
            "constraint": "a message that this version serves",
            "received": message.type,
        }
        raise BridgeError(
            "PROTO_INVALID_MESSAGE",
            f"This bridge does not serve {message.type} yet.",
            violations=[violation],
        )
    return HANDLERS[message.type]


def error_payload(
    error: BridgeError, session_id: str | None = None, *, reference: str = ""
) -> s.Error_:
    """The ``error`` payload of a failure, which is counted; ``reference``: what the log has it
    under.
    """
    _count(error, reference)
    fields = {
        name: error.fields[name] for name in ("violations", "details") if name in error.fields
    }
    recoverable = True if error.row.recoverable is None else error.row.recoverable
    return s.Error_(
        code=error.code,
        message=error.message,
        session_id=error.fields.get("session_id", session_id),
        recoverable=recoverable,
        **fields,
    )


def connection_error_payload(error: BridgeError, base_url: str) -> s.ConnectionError_:
    """The ``connection_error`` payload of a failure; ``base_url`` is where its documentation is
    served.
    """
    _count(error)
    url = base_url + documentation_path(error.code)
    details = error.fields.get("details")
    return s.ConnectionError_(
        code=error.code,
        message=error.message,
        documentation_url=url,
        remediation=error.row.remedy,
        details=details,
    )


def _count(error: BridgeError, reference: str = "") -> None:
    metrics.socket_errors.labels(error.code).inc()
    failure_alerts.report(error.code, reference, error.fields.get("session_id"))
