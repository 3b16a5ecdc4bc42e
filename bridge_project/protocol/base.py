"""Define the base classes of every JSON object of the protocol."""

from enum import IntEnum
from inspect import cleandoc
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict


class Phase(IntEnum):
    """List the phases of a connection (D21).

    OPEN until ``connection_ack``, AUTHENTICATED until ready, then READY.
    """

    OPEN = 0
    AUTHENTICATED = 1
    READY = 2


class Wire(BaseModel):
    """Validate a JSON object of the protocol.

    It never coerces: ``"true"`` is no boolean, ``1`` neither.
    """

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    nullable: ClassVar[frozenset[str]] = frozenset()
    """Fields that are sent as null when they have no value; every other one is left out."""

    def wire(self) -> dict[str, Any]:
        """Return the object as it is sent; nulls in free-form fields stay."""
        body = self.model_dump(exclude_none=True, by_alias=True)
        for name in self.nullable:
            body.setdefault(name, None)
        return body


class Received(Wire):
    """Validate an object from a client or a hook producer; keep unknown fields (D3)."""

    model_config = ConfigDict(extra="allow")


class Sent(Wire):
    """Validate an object from the bridge; an unknown field is the bridge's mistake."""

    model_config = ConfigDict(extra="forbid")


class Payload(Wire):
    """Define a message type: the payload's fields, and the rules for sending it.

    The docstring describes the message in docs/messages.md too.
    """

    type: ClassVar[str]
    from_client: ClassVar[bool] = False
    from_server: ClassVar[bool] = False
    # the types of the messages that answer it
    reply: ClassVar[tuple[str, ...]] = ()
    # the earliest phase in which a client may send it
    phase: ClassVar[Phase] = Phase.READY
    # a client must have joined the session that it names
    needs_joined: ClassVar[bool] = False
    # a repetition is answered again and not done again (D31; of session_start only with a null id)
    idempotent: ClassVar[bool] = False
    # slow requests of one queue and session are done in order, beside everything else
    queue: ClassVar[Literal["git", "files", "push", "agent"] | None] = None
    # the feed of the log that keeps it for devices that are away (D26)
    feed: ClassVar[Literal["session", "all"] | None] = None

    @classmethod
    def documentation(cls) -> str:
        """Return the docstring as Markdown; its first line is a summary."""
        return cleandoc(cls.__doc__ or "").replace("``", "`")


class ClientPayload(Payload, Received):
    """Hold the payload of a message from a client."""

    from_client = True


class ServerPayload(Payload, Sent):
    """Hold the payload of a message from the bridge."""

    from_server = True
