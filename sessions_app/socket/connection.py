"""Hold the state of one WebSocket, and send on it (D21 to D30)."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import timezone

from bridge_project.http import ratelimit
from bridge_project.http.asgi_types import ClientSocket
from bridge_project.http.error_body import connection_error_payload, error_payload, log_error
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers, writers
from bridge_project.network.transport import Transport
from bridge_project.protocol.base import ClientPayload, Payload, Phase
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from devices_app.models import Device
from sessions_app.log.tail import tail
from sessions_app.models import Session
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import presence
from sessions_app.socket.acknowledgements import Acknowledgements
from sessions_app.socket.delivery import Delivery

log = structlog.get_logger("bridge.socket")


Queue = tuple[str, str | None]  # queue name in the catalogue, session id


@dataclass(frozen=True, slots=True)
class SocketRequest(ClientMessage):
    """Hold a client message as its handler is given it (D31).

    ``begun`` is set when it may already have been handled, because a process crashed or git failed:
    to when that began. ``own_id`` is a UUID, the same when an idempotent one is handled again.
    """

    begun: datetime | None = None
    own_id: str = ""  # only an idempotent one has it


# It returns the payload that answers, or None when it has answered through the socket or nothing
# does. It raises BridgeError for an `error`, Disconnect for a `connection_error`.
Handler = Callable[["ClientConnection", SocketRequest], Awaitable[Payload | None]]


class ClientConnection(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Hold one client's connection state and phase, and send messages to it."""

    transport: Transport  # how the client reaches the bridge
    socket: ClientSocket  # what the server knows of the wire
    budget: ratelimit.MessageBudget
    delivery: Delivery  # these two from `auth` on
    acknowledgements: Acknowledgements

    def __init__(self, handlers: Mapping[type[ClientPayload], Handler]) -> None:
        super().__init__()
        self.handlers = handlers
        self.phase = Phase.OPEN
        self.authenticating = False  # an `auth` has come; it may wait for the database
        self.health_reported = False
        self.over = False  # nothing more is sent
        # slow requests that wait, and their bytes; set when one of them is done
        self.queues: dict[Queue, deque[tuple[ClientMessage, int]]] = {}
        self.queued = 0
        self.room = asyncio.Event()
        # session id → feed of each session that it has joined
        self.joined: dict[str, int] = {}
        self.starting: set[str] = set()  # ids that this device has given sessions that start
        # From `auth` on:
        self.device: Device | None = None
        self.token_digest = ""
        self.connection_id: int | None = None  # its row, by which all processes count it
        # session → hash of the state last sent, and when all of it was sent (D54)
        self.shown: dict[int, int] = {}
        # session id → how often its options had changed when they were last sent (D69)
        self.offered: dict[str, int] = {}
        self.shown_at = timezone.now()
        self.updating = False  # some of these changes are on their way
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def paired(self) -> Device:
        """Return its device, which it has from `auth` on."""
        assert self.device is not None
        return self.device

    @property
    def device_id(self) -> int | None:
        return self.device.pk if self.device else None

    @property
    def is_direct_public(self) -> bool:
        """Return whether it uses a public address, which needs acknowledging."""
        return self.transport.mode == "direct_public"

    # -- sending -----------------------------------------------------------------------------------

    async def send_payload(self, payload: Payload, *, id: str | None = None) -> None:
        """Send a message outside the log; ``id``: the request's, in a reply."""
        await self.send_frame(encode(payload, id=id))

    async def send_frame(self, message: Encoded) -> None:
        await self.send_text(message.text)

    async def send_text(self, text: str) -> None:
        if not self.over:
            await self.send(text_data=text)

    async def send_in_turn(self, text: str) -> None:
        """Send a message when the socket has room, which bounds memory (D30)."""
        await self.socket.drain()
        await self.send_text(text)

    def log_refusal(
        self, error: BridgeError, id: str | None, session_id: str | None = None
    ) -> None:
        """Log a refused message (D51); what failed has logged itself."""
        if error.row.severity in ("info", "warning"):
            self._log(error, message=id, session=error.fields.get("session_id", session_id))

    def _log(self, error: BridgeError, **about: str | None) -> None:
        client, path = self.transport.client, self.scope["path"]
        log_error(error.code, path=path, client=client, device=self.device_id, **about)

    async def refuse(self, error: BridgeError, id: str | None = None) -> None:
        """Send ``connection_error`` and close."""
        self._log(error, message=id)
        await self.send_payload(connection_error_payload(error, self.transport.base_url), id=id)
        await self.close_once(error.row.close)

    async def end(self, code: str, close: int | None = None) -> None:
        """Send ``error`` and close, for a fault that is not the client's."""
        error = BridgeError(code)
        await self.send_payload(error_payload(error))
        await self.close_once(close or error.row.close)

    async def close_once(self, code: int | None) -> None:
        if not self.over:
            self.over = True
            await self.close(code=code)

    # -- work beside the reading of messages -------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine for as long as the connection lasts."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("socket_task_failed", device=self.device_id, exc_info=error)
            self.spawn(self.end("BRIDGE_ERROR", 1011))

    # -- sessions ----------------------------------------------------------------------------------

    async def leave(self, session: Session) -> None:
        """Send this connection nothing more of a session."""
        self.delivery.leave(session.feed_id)
        if self.joined.pop(session.session_id, None) is not None:
            await tail.notifier.leave(session.feed_id)
        if self.connection_id is not None:
            await writers.retry(presence.leave, self.connection_id, session)

    async def leave_ended(self, frame: str) -> None:
        """Leave a session whose ``session_end`` was sent, if it is over for good."""
        session_id = json.loads(frame)["payload"]["session_id"]
        if session_id not in self.joined:
            return
        session = await readers.retry(observed_sessions.find, session_id)
        if session is None or session.status != Session.Status.CLOSED:
            return
        # Hooks may still report an observed session's events, or begin it again; a session that is
        # just being joined has its last rows to come.
        if session.kind == Session.Kind.BRIDGE and session.feed_id in self.delivery.feeds:
            await self.leave(session)

    def cancel_tasks(self) -> None:
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    async def end_work(self) -> None:
        """Stop, and return when all acknowledgements are stored."""
        self.cancel_tasks()
        if self.device is not None:
            await self.acknowledgements.flush()
