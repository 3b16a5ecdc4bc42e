"""Client messages that are done once: a repetition is answered again, not done again, on whichever
connection and process it comes (D31).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from bridge_project.http.error_body import error_payload
from bridge_project.kernel import limits
from bridge_project.kernel.database import delete_in_steps
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import writers
from bridge_project.protocol.catalogue import CATALOGUE, encode
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.types import is_uuid
from sessions_app import leases
from sessions_app.models import ClientRequest, Process
from sessions_app.socket.dispatch import Handler

Socket = Any  # the consumer, which imports this

# A failure that may be over the next time is no answer to remember.
_PASSING = frozenset(
    {
        *("STORAGE_UNAVAILABLE", "RATE_LIMITED", "BRIDGE_ERROR", "PROTO_SEQUENCE_ERROR"),
        *("SESS_LIMIT_REACHED", "SESS_NOT_ACTIVE", "CIRCUIT_OPEN", "AGENT_UNAVAILABLE"),
    }
)

Key = tuple[int, str]  # device, digest of the message
_running: dict[Key, asyncio.Task[str]] = {}  # what this process is doing now


@dataclass(frozen=True, slots=True)
class Claim:
    """Leave to do a request. ``since``: a process died while doing it then; perhaps it was done,
    perhaps not.
    """

    key: int
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """It was done before; ``frame`` answered it, empty where nothing does."""

    frame: str


begun: ContextVar[datetime | None] = ContextVar("begun", default=None)
"""In a handler: when another process began with this request and died, or None. Who can tell whether it was done must ask (git_commit)."""


async def answer(socket: Socket, message: ClientMessage, handle: Handler) -> None:
    """Have a message handled and answered; one that must not be done twice is done once."""
    # joining is always done; its handler makes a session once
    if not CATALOGUE[message.type].idempotent or message.type == "session_start":
        payload = await handle(socket, message)
        if payload is not None:
            await socket.send_frame(encode(payload, id=message.id))
        return
    frame = await once(socket, message, lambda: answer_of(socket, message, handle))
    if frame:
        await socket.send_text(frame)


async def answer_of(socket: Socket, message: ClientMessage, handle: Handler) -> str:
    """The frame that answers; a failure that will not pass by itself is an answer like any
    other.
    """
    try:
        payload = await handle(socket, message)
    except BridgeError as error:
        if error.code in _PASSING:
            raise
        payload = error_payload(error, getattr(message.payload, "session_id", None))
    return "" if payload is None else encode(payload, id=message.id).text


async def once(socket: Socket, message: ClientMessage, do: Callable[[], Awaitable[str]]) -> str:
    """What ``do`` returns, or returned when the same message came before; what it raises is not
    remembered.

    It goes on when the connection ends in the middle of it. While the same message is being handled
    elsewhere, this waits for that.
    """
    key = (socket.device_id, _digest(message, socket.connection_id))
    if (task := _running.get(key)) is None:
        task = _running[key] = asyncio.create_task(_once(*key, do))
        task.add_done_callback(lambda done: _ended(key, done))
    return await asyncio.shield(task)


def _ended(key: Key, task: asyncio.Task[str]) -> None:
    del _running[key]
    if not task.cancelled():
        task.exception()  # whoever still waits is told; the socket may be gone


async def _once(device_id: int, digest: str, do: Callable[[], Awaitable[str]]) -> str:
    while (claim := await writers.run(_claim, device_id, digest, leases.current())) is None:  # noqa: ASYNC110 - another process is at it; it sets no event here
        await asyncio.sleep(limits.REQUEST_POLL_SECONDS)
    if isinstance(claim, Answered):
        return claim.frame
    begun.set(claim.since)
    try:
        frame = await do()
    except BaseException:
        await writers.run(_forget, claim.key)
        raise
    await writers.run(_remember, claim.key, frame)
    return frame


def _digest(message: ClientMessage, connection_id: int | None) -> str:
    # ids like "1" are told apart on one connection only
    scope = None if is_uuid(message.id) else connection_id
    payload = message.payload.model_dump(mode="json")
    return hashlib.sha256(
        json.dumps([message.type, message.id, payload, scope], sort_keys=True).encode(
            "utf-8", "surrogatepass"
        )
    ).hexdigest()


def _claim(device_id: int, digest: str, process_id: uuid.UUID) -> Claim | Answered | None:
    """The answer, if there is one; leave to do it; or None while another process that lives is
    doing it.
    """
    now = timezone.now()
    with transaction.atomic():
        ClientRequest.objects.filter(
            device_id=device_id,
            digest=digest,
            created_at__lte=now - timedelta(seconds=limits.REQUEST_MEMORY_SECONDS),
        ).delete()
        request, new = ClientRequest.objects.select_for_update().get_or_create(
            device_id=device_id,
            digest=digest,
            defaults={"process_id": process_id, "created_at": now},
        )
        if new:
            return Claim(request.pk)
        if request.answer is not None:
            return Answered(request.answer)
        if (
            request.process_id != process_id
            and Process.objects.filter(pk=request.process_id, lease_until__gt=now).exists()
        ):
            return None
        ClientRequest.objects.filter(pk=request.pk).update(process_id=process_id)
        return Claim(request.pk, since=request.created_at)


def _remember(key: int, frame: str) -> None:
    ClientRequest.objects.filter(pk=key).update(answer=frame)


def _forget(key: int) -> None:
    ClientRequest.objects.filter(pk=key).delete()


def forget_old() -> int:
    """Drop the memory of requests older than D31 asks for; returns how many."""
    since = timezone.now() - timedelta(seconds=limits.REQUEST_MEMORY_SECONDS)
    return delete_in_steps(ClientRequest.objects.filter(created_at__lt=since))
