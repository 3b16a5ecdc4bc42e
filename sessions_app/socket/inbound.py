"""What a client sends, from its bytes to its handler, and the one answer for whatever is wrong with
it (D17, D21, SPEC WebSocket errors).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog
from django.db import Error as DatabaseError

from bridge_project.http.error_body import error_payload
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.parse import ClientMessage, ProtocolInvalid, parse_client
from sessions_app.socket import idempotency
from sessions_app.socket.dispatch import Refused, handler_of
from sessions_app.socket.request_queues import Lanes

if TYPE_CHECKING:
    from sessions_app.socket.consumer import BridgeConsumer

log = structlog.get_logger("bridge.socket")

UNMETERED = {"heartbeat_ping", "notification_ack"}  # D17
# characters; larger ones are parsed in a thread, and not at all for a stranger
LARGE_MESSAGE = 64 * 1024


async def take(socket: BridgeConsumer, data: str | bytes) -> None:
    """Act on a message, or answer why not; a slow one goes on beside the conversation."""
    if socket.over:
        return None
    try:
        message = await _parse(socket, data)
    except ProtocolInvalid as invalid:
        return await _answer_invalid(socket, invalid)
    if not await guarded(socket, message, _admit):
        return None
    if lane := Lanes.of(message):
        return await socket.lanes.put(lane, message, len(data))
    return await handle(socket, message)


async def handle(socket: BridgeConsumer, message: ClientMessage) -> None:
    """Have an admitted message answered by its handler."""
    await guarded(socket, message, _act_on)


async def beside(
    socket: BridgeConsumer,
    message: ClientMessage,
    work: Callable[[BridgeConsumer, ClientMessage], Awaitable[None]],
) -> None:
    """The rest of handling a message, beside the conversation: whatever goes wrong in it is
    answered as ever.
    """
    with structlog.contextvars.bound_contextvars(
        device=socket.device_id, session=_session_id(message), message=message.id
    ):
        await guarded(socket, message, work)


async def guarded(
    socket: BridgeConsumer,
    message: ClientMessage,
    work: Callable[[BridgeConsumer, ClientMessage], Awaitable[None]],
) -> bool:
    """Whether ``work`` came to its end; the client has been told what kept it from it."""
    session_id = _session_id(message)
    try:
        await work(socket, message)
        return True
    except Refused as refused:
        await socket.refuse(refused, message.id)
    except BridgeError as error:
        await socket.send_payload(error_payload(error, session_id), id=message.id)
    except DatabaseError as error:
        log.error("database_unavailable", type=message.type, error=error.__class__.__name__)
        unavailable = BridgeError("STORAGE_UNAVAILABLE")
        if message.type == "auth":  # it may be half done: the client comes back instead
            await socket.refuse(unavailable, message.id)
        else:
            await socket.send_payload(error_payload(unavailable), id=message.id)
    except Exception:
        # the boundary: whatever a handler did not foresee is logged, said, and ends neither socket
        # nor server
        log.exception(
            "handler_failed",
            type=message.type,
            id=message.id,
            device=socket.device_id,
            session=session_id,
        )
        await socket.send_payload(
            error_payload(BridgeError("BRIDGE_ERROR"), reference=message.id), id=message.id
        )
    return False


async def _parse(socket: BridgeConsumer, data: str | bytes) -> ClientMessage:
    if len(data) > LARGE_MESSAGE:
        if socket.device is None:
            raise ProtocolInvalid(
                "A message this large is not read before auth.",
                [
                    {
                        "field": "message",
                        "constraint": f"at most {LARGE_MESSAGE} characters",
                        "received": str(len(data)),
                    }
                ],
            )
        # seconds, at worst
        return await asyncio.to_thread(parse_client, data, strict_ids=conf.bridge_strict_protocol)
    return parse_client(data, strict_ids=conf.bridge_strict_protocol)


async def _admit(socket: BridgeConsumer, message: ClientMessage) -> None:
    socket.talk.admit(message.type)
    _meter(socket, message.type)
    if message.type not in UNMETERED:
        # who does not read the answers is not asked for more of them (D30)
        await socket.socket.drain()


async def _act_on(socket: BridgeConsumer, message: ClientMessage) -> None:
    with structlog.contextvars.bound_contextvars(
        device=socket.device_id, session=_session_id(message), message=message.id
    ):
        await idempotency.answer(socket, message, handler_of(message))


def _meter(socket: BridgeConsumer, type_: str | None) -> None:
    if type_ not in UNMETERED and (wait := socket.budget.take()) is not None:
        raise BridgeError(
            "RATE_LIMITED", f"Too many messages; wait {wait} s.", details={"retry_after": wait}
        )


async def _answer_invalid(socket: BridgeConsumer, invalid: ProtocolInvalid) -> None:
    """A message that cannot be parsed; one that may not come now is told that first, whatever else
    is wrong with it.
    """
    error = BridgeError("PROTO_INVALID_MESSAGE", invalid.message, violations=invalid.violations)
    try:
        known = CATALOGUE.get(invalid.type or "")
        if known is not None and known.from_client:
            socket.talk.admit(known.type)
        _meter(socket, invalid.type)
    except BridgeError as earlier:
        error = earlier
    await socket.send_payload(error_payload(error), id=invalid.id)


def _session_id(message: ClientMessage) -> str | None:
    return getattr(message.payload, "session_id", None)
