"""Check which message a client may send when (D21, D22). Pure."""

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.base import Phase
from bridge_project.protocol.catalogue import CATALOGUE
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection

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
