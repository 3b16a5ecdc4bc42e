"""Map each WebSocket message type to its model, and encode messages."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from bridge_project.kernel import limits
from bridge_project.protocol import (
    client_messages,
    jsontext,
    notify_messages,
    push_messages,
    repository_messages,
    server_messages,
)
from bridge_project.protocol.base import Payload
from bridge_project.protocol.types import now_text

HEARTBEATS: Final = frozenset({"heartbeat_ping", "heartbeat_pong"})  # without id and payload

CATALOGUE: Final[Mapping[str, type[Payload]]] = {
    model.type: model
    for module in (
        *(client_messages, server_messages, repository_messages),
        *(push_messages, notify_messages),
    )
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, Payload) and "type" in vars(model)
}

_FINAL_TEXT: Final = 0x81
_COMPRESSED: Final = 0x40


@dataclass(frozen=True, slots=True)
class Encoded:
    """Hold a message as it goes on the wire; heartbeats have no ``id``."""

    id: str
    type: str
    text: str


def encode(payload: Payload, *, id: str | None = None, timestamp: str | None = None) -> Encoded:
    """Encode a payload as a message.

    ``id``: the request's in a reply, else None for a fresh UUID v4 (D4); a ``notification`` has
    always its ``notification_id`` (D13). ``timestamp``: default now.
    """
    if isinstance(payload, server_messages.Notification):
        id = payload.notification_id
    return encode_raw(payload.type, payload.wire(), id=id, timestamp=timestamp)


def encode_raw(
    type: str, payload: dict[str, Any], *, id: str | None = None, timestamp: str | None = None
) -> Encoded:
    """Encode a payload that is a dict. Raises KeyError for an unknown type."""
    kind, at = CATALOGUE[type].type, timestamp or now_text()
    if kind in HEARTBEATS:
        return Encoded("", kind, jsontext.dumps({"type": kind, "timestamp": at}))
    own = id or str(uuid.uuid4())
    message = {"type": kind, "id": own, "timestamp": at, "payload": payload}
    return Encoded(own, kind, jsontext.dumps_unicode(message))


def encode_replay(
    session_id: str,
    frames: Iterable[str],
    *,
    complete: bool,
    source: Literal["agent"] | None = None,
    older: bool = False,
    id: str | None = None,
) -> Encoded:
    """Encode a ``replay_buffer`` of encoded messages; ``id``: the request's, if any."""
    payload = server_messages.ReplayBuffer(
        session_id=session_id,
        messages=[],
        complete=complete,
        source=source,
        older=True if older else None,
    )
    empty = encode(payload, id=id)
    before, mark, after = empty.text.rpartition('"messages":[]')
    return Encoded(empty.id, empty.type, f"{before}{mark[:-1]}{','.join(frames)}]{after}")


def text_frame(text: str) -> bytes:
    """Make the WebSocket frame of a message: unmasked, uncompressed (RFC 6455, 5.2).

    It is the same for every socket, so it is made once for all.
    """
    return _frame(_FINAL_TEXT, text.encode())


def compressed(deflate: Any, frame: bytes) -> bytes:
    """Compress a frame by autobahn's extension, unless it is short (RFC 7692, D58)."""
    if len(frame) < limits.DEFLATE_FROM_BYTES:
        return frame
    deflate.start_compress_message()
    payload = deflate.compress_message_data(frame[{126: 4, 127: 10}.get(frame[1], 2) :])
    return _frame(_FINAL_TEXT | _COMPRESSED, payload + deflate.end_compress_message())


def _frame(first: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 1 << 16:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload
