"""Pass each client frame to its handler, or answer with what is wrong.

Its form, phase and rate are checked first (D17, D21, D22).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from bridge_project.http.error_body import error_payload
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.base import Phase
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.parse import (
    ClientMessage,
    ProtocolInvalid,
    id_at_beginning,
    parse_client,
)
from sessions_app.socket import idempotency
from sessions_app.socket.connection import ClientConnection, Queue

log = structlog.get_logger("bridge.socket")

UNMETERED = {"heartbeat_ping", "notification_ack"}  # D17
# characters; larger ones are parsed in a thread, and not at all for a stranger
LARGE_MESSAGE = 64 * 1024

Work = Callable[[ClientConnection, ClientMessage], Awaitable[None]]


class Disconnect(BridgeError):
    """Report an error that ends the connection, by its row's close code (D21)."""


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


def check_joined(connection: ClientConnection, session_id: str, type_: str) -> None:
    """Raise PROTO_SEQUENCE_ERROR when the message's session is not joined."""
    if CATALOGUE[type_].needs_joined and session_id not in connection.joined:
        raise _out_of_order(connection, type_, session_id)


def _out_of_order(
    connection: ClientConnection, received: str, session_id: str | None = None
) -> BridgeError:
    phase = connection.phase.name.lower()
    if connection.phase is Phase.AUTHENTICATED and connection.health_reported:
        phase = "health_reported"
    expected = EXPECTED[phase]
    what = "joins its session" if session_id else f"leads on from the phase {phase}"
    message = f"{received} came before the {expected} that {what}."
    if received == "auth":
        message = "auth comes once, and this connection is authenticated already."
    return BridgeError(
        "PROTO_SEQUENCE_ERROR",
        message,
        details={"expected": expected, "received": received, "currentPhase": phase},
        session_id=session_id,
    )


async def receive(connection: ClientConnection, data: str | bytes) -> None:
    """Handle a message, or answer why not; queue a slow one."""
    if connection.over:
        return
    try:
        message = await _parse(connection, data)
    except ProtocolInvalid as invalid:
        await _answer_invalid(connection, invalid)
        return
    if not await guarded(connection, message, _admit):
        return
    if (kind := CATALOGUE[message.type].queue) is None:
        await _handle(connection, message)
        return
    # A slow request is queued by kind, git's by session too: heartbeats and decisions do not wait
    # for it. Without room for its bytes no more is read.
    size = len(data)
    while connection.queued and connection.queued + size > limits.QUEUED_BYTES:
        connection.room.clear()
        await connection.room.wait()
    connection.queued += size
    key = (kind, getattr(message.payload, "session_id", None) if kind == "git" else None)
    if key in connection.queues:
        connection.queues[key].append((message, size))
    else:
        connection.queues[key] = deque([(message, size)])
        connection.spawn(_work_off(connection, key))


async def _work_off(connection: ClientConnection, key: Queue) -> None:
    """Handle the messages of a queue, one after the other."""
    queue = connection.queues[key]
    while queue:
        message, size = queue.popleft()
        try:
            await connection.socket.drain()  # one large answer of a queue at a time (D30)
            await _handle(connection, message)
        finally:
            connection.queued -= size
            connection.room.set()
    del connection.queues[key]


async def _handle(connection: ClientConnection, message: ClientMessage) -> None:
    """Answer an admitted message by its handler, unless the connection ended."""
    if connection.over:
        return
    act = partial(idempotency.answer, handle=connection.handlers[type(message.payload)])
    await guarded(connection, message, act)


async def guarded(connection: ClientConnection, message: ClientMessage, work: Work) -> bool:
    """Run a part of handling a message, and answer its failure; False if it failed."""
    session_id = getattr(message.payload, "session_id", None)
    try:
        with structlog.contextvars.bound_contextvars(
            device=connection.device_id, session=session_id, message=message.id
        ):
            await work(connection, message)
        return True
    except Disconnect as fault:
        await connection.refuse(fault, message.id)
    except BridgeError as error:
        connection.log_refusal(error, message.id, session_id)
        await connection.send_payload(error_payload(error, session_id), id=message.id)
    except STORAGE_ERRORS as error:
        log.error("database_unavailable", type=message.type, error=error.__class__.__name__)
        unavailable = BridgeError("STORAGE_UNAVAILABLE", session_id=session_id)
        if message.type == "auth":  # it may be half done: the client comes back instead
            await connection.refuse(unavailable, message.id)
        else:
            await connection.send_payload(error_payload(unavailable), id=message.id)
    except Exception:
        # whatever a handler did not foresee is logged, said, and ends neither socket nor server
        about = {"device": connection.device_id, "session": session_id}
        log.exception("handler_failed", type=message.type, id=message.id, **about)
        failure = BridgeError("BRIDGE_ERROR", session_id=session_id)
        await connection.send_payload(error_payload(failure, reference=message.id), id=message.id)
    return False


async def _parse(connection: ClientConnection, data: str | bytes) -> ClientMessage:
    if len(data) <= LARGE_MESSAGE:
        return parse_client(data, strict_ids=conf.bridge_strict_protocol)
    if connection.device is None:
        violation = {
            "field": "message",
            "constraint": f"at most {LARGE_MESSAGE} characters",
            "received": str(len(data)),
        }
        own = id_at_beginning(data) if isinstance(data, str) else None
        words = "A message this large is not read before auth."
        raise ProtocolInvalid(words, [violation], id=own)
    # seconds, at worst
    return await asyncio.to_thread(parse_client, data, strict_ids=conf.bridge_strict_protocol)


async def _admit(connection: ClientConnection, message: ClientMessage) -> None:
    check_phase(connection, message.type)
    if message.type not in UNMETERED:
        # a client that does not read its answers must wait before it asks for more (D30)
        await connection.socket.drain()
    _meter(connection, message.type)


def _meter(connection: ClientConnection, type_: str | None) -> None:
    if type_ not in UNMETERED and (wait := connection.budget.take()) is not None:
        raise BridgeError(
            "RATE_LIMITED", f"Too many messages; wait {wait} s.", details={"retry_after": wait}
        )


async def _answer_invalid(connection: ClientConnection, invalid: ProtocolInvalid) -> None:
    """Answer an unparsable message; a wrong phase or rate is reported first."""
    error = BridgeError("PROTO_INVALID_MESSAGE", invalid.message, violations=invalid.violations)
    await connection.socket.drain()  # as above
    try:
        known = CATALOGUE.get(invalid.type or "")
        if known is not None and known.from_client:
            check_phase(connection, known.type)
        _meter(connection, invalid.type)
    except BridgeError as earlier:
        error = earlier
    connection.log_refusal(error, invalid.id)
    await connection.send_payload(error_payload(error), id=invalid.id)
