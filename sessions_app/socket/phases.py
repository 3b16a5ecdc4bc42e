"""The conversation's state: which phase a connection is in and what it may send next (D21, D22). No
I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.base import Phase
from bridge_project.protocol.catalogue import CATALOGUE
from sessions_app.models import Session

WARNING_DIRECT_PUBLIC = "DIRECT_PUBLIC_CONNECTION"
WARNING_CLOCK_SKEW = "CLOCK_SKEW"


@dataclass
class Conversation:
    """One connection's state. ``joined``: session id → feed of each session it has joined."""

    phase: Phase = Phase.OPEN
    health_reported: bool = False
    joined: dict[str, int] = field(default_factory=dict)

    @property
    def phase_name(self) -> str:
        """The phase as ``PROTO_SEQUENCE_ERROR`` names it."""
        if self.phase is Phase.AUTHENTICATED and self.health_reported:
            return "health_reported"
        return self.phase.name.lower()

    @property
    def expected(self) -> str:
        """The message that leads on from here."""
        return {
            "open": "auth",
            "authenticated": "health_check",
            "health_reported": "acknowledge_warning",
            "ready": "session_start",
        }[self.phase_name]

    def admit(self, type_: str) -> None:
        """Raise PROTO_SEQUENCE_ERROR when a message of this type may not come now; ``auth`` comes
        once.
        """
        if self.phase < CATALOGUE[type_].phase or (type_ == "auth" and self.phase > Phase.OPEN):
            raise self.out_of_order(type_)

    def admit_to(self, session: Session, type_: str) -> None:
        """Raise PROTO_SEQUENCE_ERROR when the session of a message has not been joined."""
        if CATALOGUE[type_].needs_joined and session.session_id not in self.joined:
            raise self.out_of_order(type_, session.session_id)

    def out_of_order(self, received: str, session_id: str | None = None) -> BridgeError:
        details = {"expected": self.expected, "received": received, "currentPhase": self.phase_name}
        what = "joins its session" if session_id else f"leads on from the phase {self.phase_name}"
        return BridgeError(
            "PROTO_SEQUENCE_ERROR",
            f"{received} came before the {self.expected} that {what}.",
            details=details,
            session_id=session_id,
        )
