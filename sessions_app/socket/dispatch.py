"""Find the handler of a client message; each is registered by `@handles`."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.base import ClientPayload
from bridge_project.protocol.parse import ClientMessage

Handler = Callable[[Any, ClientMessage], Awaitable[BaseModel | None]]

# every client message of the catalogue has one
HANDLERS: dict[str, Handler] = {}


class Refused(BridgeError):
    """End the connection: `connection_error`, then the row's close code (D21)."""


def handles(model: type[ClientPayload]) -> Callable[[Handler], Handler]:
    """Register `async def handler(socket, message)` for payloads of `model`.

    A handler returns the payload that answers, or None when it has answered through the socket or
    nothing does. It raises BridgeError for an `error`, Refused for a `connection_error`.
    """

    def register(handler: Handler) -> Handler:
        if model.type in HANDLERS:
            raise ValueError(f"{model.type} is handled twice")
        HANDLERS[model.type] = handler
        return handler

    return register


def invalid_message(message: str, field: str, constraint: str, received: str) -> BridgeError:
    """Make the error of a field that breaks a rule outside its model."""
    violation = {"field": field, "constraint": constraint, "received": received}
    return BridgeError("PROTO_INVALID_MESSAGE", message, violations=[violation])
