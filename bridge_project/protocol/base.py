"""The two kinds of models: what others send (unknown fields kept, D3) and what the bridge sends
(unknown fields are a mistake).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """A JSON object of the contract. Never coerces: ``"true"`` is no boolean, ``1`` neither."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    nullable: ClassVar[frozenset[str]] = frozenset()
    """Fields that are sent as null when they have no value; every other one is left out."""

    def wire(self) -> dict[str, Any]:
        """The object as it goes out. Nulls inside free-form fields (params, data, results) stay as
        they are.
        """
        body = self.model_dump(exclude_none=True)
        for name in self.nullable:
            body.setdefault(name, None)
        return body


class Received(Wire):
    """What a client or a hook producer sends: fields the contract does not know are kept and never
    an error (D3).
    """

    model_config = ConfigDict(extra="allow")


class Sent(Wire):
    """What the bridge sends: a field that the contract does not know is a mistake in the bridge."""

    model_config = ConfigDict(extra="forbid")


class ClientPayload(Received):
    """The payload of a message from a client; ``type`` is the message's type."""

    type: ClassVar[str]


class ServerPayload(Sent):
    """The payload of a message from the bridge; ``type`` is the message's type."""

    type: ClassVar[str]
