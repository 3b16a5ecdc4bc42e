"""Find the handler of a client message, and check which may come when (D21, D22)."""

from collections.abc import Awaitable, Callable
from typing import Any

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.base import ClientPayload, Payload, Phase
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.parse import ClientMessage
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection

Handler = Callable[[Any, ClientMessage], Awaitable[Payload | None]]

# every client message of the catalogue has one
HANDLERS: dict[str, Handler] = {}


class Refused(BridgeError):
    """End the connection: `connection_error`, then the row's close code (D21)."""


def handles(model: type[ClientPayload]) -> Callable[[Handler], Handler]:
    """Register `async def handler(connection, message)` for payloads of `model`.

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
    """Make the error of a payload's field that breaks a rule outside its model."""
    violation = {"field": f"payload.{field}", "constraint": constraint, "received": received}
    return BridgeError("PROTO_INVALID_MESSAGE", message, violations=[violation])


# phase as PROTO_SEQUENCE_ERROR names it → the message that leads on from there
EXPECTED = {
    "open": "auth",
    "authenticated": "health_check",
    "health_reported": "acknowledge_warning",
    "ready": "session_start",
}


def check_phase(connection: ClientConnection, type_: str) -> None:
    """Raise PROTO_SEQUENCE_ERROR when this type may not come now; `auth` comes once."""
    phase = connection.phase
    if phase < CATALOGUE[type_].phase or (type_ == "auth" and phase > Phase.OPEN):
        raise _out_of_order(connection, type_)


def check_joined(connection: ClientConnection, session: Session, type_: str) -> None:
    """Raise PROTO_SEQUENCE_ERROR when the message's session is not joined."""
    if CATALOGUE[type_].needs_joined and session.session_id not in connection.joined:
        raise _out_of_order(connection, type_, session.session_id)


def _out_of_order(
    connection: ClientConnection, received: str, session_id: str | None = None
) -> BridgeError:
    phase = connection.phase.name.lower()
    if connection.phase is Phase.AUTHENTICATED and connection.health_reported:
        phase = "health_reported"
    expected = EXPECTED[phase]
    what = "joins its session" if session_id else f"leads on from the phase {phase}"
    return BridgeError(
        "PROTO_SEQUENCE_ERROR",
        f"{received} came before the {expected} that {what}.",
        details={"expected": expected, "received": received, "currentPhase": phase},
        session_id=session_id,
    )
