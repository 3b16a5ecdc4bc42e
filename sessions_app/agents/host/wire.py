"""Define what a bridge and a host tell each other on their socket (D79).

A frame is its length in four bytes, and JSON: an object whose ``is`` names its class. What an agent
chose freely, such as a call's parameters, is JSON text inside it, and so never taken for an object.
"""

import asyncio
import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from bridge_project.kernel import limits
from bridge_project.kernel.picture_files import Picture
from bridge_project.protocol import resources
from sessions_app.agents import events
from sessions_app.agents.driver import Attached, HistoryMessage, Verdict
from sessions_app.agents.offers import Offers
from sessions_app.agents.started import Start as Shown
from sessions_app.approvals.tool_call import Agent, Call
from sessions_app.approvals.tool_result import Failure

VERSION: Final = 1  # of this module's words; a host of another one is not spoken with
_SIZE: Final = struct.Struct(">I")


class WireError(Exception):
    """Report a frame that this version does not understand."""


# -- a bridge's words ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Take:
    """Take the host over.

    It sends what it has reported after the event of the number ``after``.
    """

    version: int
    after: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Say that the events up to ``number`` are stored, so that they need not be kept."""

    number: int


@dataclass(frozen=True, slots=True)
class Start:
    directory: Path
    resume_id: str | None


@dataclass(frozen=True, slots=True)
class Give:
    content: str
    attached: Sequence[Attached]
    steering: str | None = None


@dataclass(frozen=True, slots=True)
class Decide:
    call_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Interrupt:
    pass


@dataclass(frozen=True, slots=True)
class Choose:
    option_id: str
    value: str


@dataclass(frozen=True, slots=True)
class EndBackground:
    pass


@dataclass(frozen=True, slots=True)
class Close:
    pass


Command = Start | Give | Decide | Interrupt | Choose | EndBackground | Close


@dataclass(frozen=True, slots=True)
class Request:
    """Have the driver obey a command; ``Answered`` with the same number follows.

    ``key``: of the command in the inbox, 0 for one that is not from there. A host that is taken
    over says which it has received.
    """

    number: int
    command: Command
    key: int = 0


# -- a host's words --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """Say what is known of the agent, besides its events; the names are a driver's."""

    asks: bool | None = True
    picture_bytes: int = 0
    offers: Offers = field(default_factory=Offers)
    history: Sequence[HistoryMessage] = ()
    error_output: str = ""
    shown: Shown | None = None  # by its last start


@dataclass(frozen=True, slots=True)
class Taken:
    """Answer ``Take``. ``received``: the keys of the commands that have come.

    ``stored``: the number of the last event that a bridge has stored; it is not kept any more.
    """

    version: int
    stored: int
    received: Sequence[int]
    known: Known


@dataclass(frozen=True, slots=True)
class Reported:
    """Report an event of the agent; their numbers begin with 1."""

    number: int
    event: events.Event


@dataclass(frozen=True, slots=True)
class Answered:
    """Say that a command was obeyed, or with ``error`` why not, in ``words``.

    ``after``: the number of the last event before it.
    """

    number: int
    after: int
    error: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Active:
    """Say when the agent last gave a sign of life that is no event.

    ``at``: by the monotonic clock.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Logged:
    """Hand on a line for the bridge's log."""

    level: str
    event: str
    about: Mapping[str, Any]


_KINDS: Final[dict[str, Any]] = {
    kind.__name__: kind
    for kind in (
        *(Take, Stored, Request),
        *(Start, Give, Decide, Interrupt, Choose, EndBackground, Close),
        *(Known, Taken, Reported, Answered, Active, Logged),
        *(Attached, HistoryMessage, Verdict, Offers, Agent, Call, Failure, Picture),
        *events.KINDS,
        *(resources.ApprovalOption, resources.SessionOption, resources.SessionCommand),
        *(resources.ToolErrorDetails, resources.Usage),
    )
} | {"Shown": Shown}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode(message: object) -> bytes:
    """Return a message as a frame."""
    data = json.dumps(_plain(message), separators=(",", ":")).encode()
    return _SIZE.pack(len(data)) + data


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"is": "bytes", "text": base64.b64encode(value).decode()}
        case Path():
            return {"is": "Path", "text": str(value)}
        case BaseModel():
            return {"is": _NAMES[type(value)], "text": _text(value.model_dump())}
        case Mapping():
            return {"is": "json", "text": _text(dict(value))}
        case list() | tuple() if not hasattr(value, "_fields"):
            return [_plain(one) for one in value]
    return {"is": _NAMES[type(value)]} | {
        name: _plain(given)
        for name, default in _fields_of(type(value)).items()
        if (given := getattr(value, name)) != default
    }


def _fields_of(kind: Any) -> dict[str, Any]:
    """Return the names of a class's fields, with their defaults."""
    if is_dataclass(kind):
        return {one.name: one.default for one in fields(kind)}
    return {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def decode(data: bytes) -> Any:
    """Return the message of a frame, without its length. Raises WireError."""
    try:
        return json.loads(data, object_hook=_object)
    except (ValueError, TypeError, KeyError, RecursionError, ValidationError) as error:
        raise WireError(f"{type(error).__name__}: {error}") from error


def _object(found: dict[str, Any]) -> Any:
    name = found.pop("is")
    match name:
        case "bytes":
            return base64.b64decode(found["text"])
        case "Path":
            return Path(found["text"])
        case "json":
            return json.loads(found["text"])
    kind = _KINDS[name]
    if issubclass(kind, BaseModel):
        return kind.model_validate(json.loads(found["text"]))
    known = _fields_of(kind)
    given = {name: value for name, value in found.items() if name in known}
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})


async def read(stream: asyncio.StreamReader) -> Any:
    """Return the next message. Raises WireError, and EOFError at the end."""
    try:
        (size,) = _SIZE.unpack(await stream.readexactly(_SIZE.size))
        if size > limits.HOST_FRAME_BYTES:
            raise WireError(f"a frame of {size} bytes")
        return decode(await stream.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError from error
