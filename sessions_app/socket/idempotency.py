"""Handle a client message once, and answer each repetition as before (D31)."""

import asyncio
import hashlib
import json
import uuid
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from bridge_project.http.error_body import error_payload
from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import delete_in_steps
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import writers
from bridge_project.protocol.catalogue import CATALOGUE, encode
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.types import is_uuid
from devices_app import pairing
from sessions_app import leases
from sessions_app.models import ClientRequest
from sessions_app.socket.connection import ClientConnection, Handler, SocketRequest

_NOBODY = uuid.UUID(int=0)

Key = tuple[int, str]  # device, digest of the message
_running: dict[Key, asyncio.Task[str]] = {}  # what this process is doing now


async def answer(connection: ClientConnection, message: ClientMessage, handle: Handler) -> None:
    """Handle and answer a message; an idempotent one is handled once for each id."""
    # joining is always done; its handler makes a session once
    if not CATALOGUE[message.type].idempotent or message.type == "session_start":
        request = SocketRequest(message.type, message.id, message.payload)
        payload = await handle(connection, request)
        if payload is not None:
            await connection.send_payload(payload, id=message.id)
        return
    if frame := await once(connection, message, handle):
        await connection.send_text(frame)


async def _answer(connection: ClientConnection, message: SocketRequest, handle: Handler) -> str:
    """Return the frame that answers; a lasting failure is an answer too."""
    try:
        payload = await handle(connection, message)
    except BridgeError as error:
        # a session that somebody has ended while its agent started is not created again
        ended = error.code == "SESS_CLOSED" and message.type == "session_start"
        if error.row.momentary and not ended:
            raise
        session_id = getattr(message.payload, "session_id", None)
        connection.log_refusal(error, message.id, session_id)
        payload = error_payload(error, session_id)
    return "" if payload is None else encode(payload, id=message.id).text


async def once(connection: ClientConnection, message: ClientMessage, handle: Handler) -> str:
    """Return the answer's frame; a repeated message gets the earlier one.

    An exception is not remembered. ``handle`` goes on when the connection ends meanwhile. While
    another process handles the same message, this waits for it.
    """
    key = (connection.paired.pk, _digest(connection, message).hex())
    if (task := _running.get(key)) is None:
        task = _running[key] = asyncio.create_task(_once(key, connection, message, handle))
        task.add_done_callback(lambda done: _ended(key, done))
    return await asyncio.shield(task)


def _digest(connection: ClientConnection, message: ClientMessage) -> bytes:
    """Return what tells a device's messages apart: SHA-256 of type, id and payload."""
    # ids like "1" are told apart on one connection only
    scope = None if is_uuid(message.id) else connection.connection_id
    payload = message.payload.model_dump(mode="json")
    text = json.dumps([message.type, message.id, payload, scope], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def row_id_of(connection: ClientConnection, message: ClientMessage) -> str:
    """Return a row's id that each repetition of the message shares, whenever it comes."""
    own = _digest(connection, message) + str(connection.paired.pk).encode()
    return str(uuid.UUID(bytes=hashlib.sha256(own).digest()[:16], version=4))


def _ended(key: Key, task: asyncio.Task[str]) -> None:
    del _running[key]
    if not task.cancelled():
        task.exception()  # whoever still waits is told; the socket may be gone


async def _once(
    key: Key, connection: ClientConnection, message: ClientMessage, handle: Handler
) -> str:
    while (claim := await writers.run(_claim, *key)) is None:  # noqa: ASYNC110 - see _claim
        await asyncio.sleep(limits.REQUEST_POLL_SECONDS)
    known, new = claim
    if known.answer is not None:
        return known.answer
    begun, name = None if new else known.created_at, f"{known.pk} {known.created_at.isoformat()}"
    own_id = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    request = SocketRequest(message.type, message.id, message.payload, begun, own_id)
    row = ClientRequest.objects.filter(pk=known.pk)
    try:
        frame = await _answer(connection, request, handle)
    except BaseException as error:
        if new and getattr(error, "code", "") != "GIT_ERROR":
            await writers.run(row.delete)
        else:  # it may have been done all the same: the next one looks
            await writers.run(row.update, process_id=_NOBODY)
        raise
    await writers.run(row.update, answer=frame)
    return frame


def _claim(device_id: int, digest: str) -> tuple[ClientRequest, bool] | None:
    """Return a request, answered or to be done; None: another process does it.

    And whether it is new: else a process died while doing it, which it began when it was made.
    Raises AUTH_FAILED for a device that was revoked and whose socket is not closed yet (D15).
    """
    now, ours = timezone.now(), leases.current()
    same = ClientRequest.objects.filter(device_id=device_id, digest=digest)
    with transaction.atomic():
        pairing.check_not_revoked(device_id)
        old = ages.now() - timedelta(seconds=limits.REQUEST_MEMORY_SECONDS)
        same.filter(created_at__lte=old).delete()
        request, new = same.select_for_update().get_or_create(
            device_id=device_id,
            digest=digest,
            defaults={"process_id": ours, "created_at": now},
        )
        if new or request.answer is not None:
            return request, new
        if request.process_id != ours and leases.is_alive(request.process_id):
            return None
        same.update(process_id=ours)
        return request, new


def forget_old() -> int:
    """Delete requests past REQUEST_MEMORY_SECONDS (D31); return how many."""
    since = ages.now() - timedelta(seconds=limits.REQUEST_MEMORY_SECONDS)
    return delete_in_steps(ClientRequest.objects.filter(created_at__lt=since))
