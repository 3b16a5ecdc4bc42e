"""The only socket code: frames in, frames out, and the clocks that end a connection (D21 to
D30).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import structlog
from channels.generic.websocket import AsyncWebsocketConsumer
from pydantic import BaseModel

from bridge_project.http import ratelimit
from bridge_project.http.error_body import connection_error_payload, error_payload, log_error
from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS, BridgeError
from bridge_project.kernel.threads import writers
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from devices_app.models import Device
from sessions_app import handlers, leases
from sessions_app.log.row import Row
from sessions_app.log.tail import tail
from sessions_app.socket import inbound, presence
from sessions_app.socket.acknowledgements import Receipts
from sessions_app.socket.delivery import Delivery
from sessions_app.socket.dispatch import Refused
from sessions_app.socket.phases import Conversation
from sessions_app.socket.registry import registry
from sessions_app.socket.request_queues import Lanes

log = structlog.get_logger("bridge.socket")

WATCH_SECONDS = 1.0


class BridgeConsumer(AsyncWebsocketConsumer):
    """One WebSocket. Handlers answer through ``reply``; ``delivery`` sends what the log holds."""

    # the process hears the bell for its sockets (bell.py); a socket must not need Redis to be
    # opened
    channel_layer_alias = "none"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # also when the server ends us in the middle of something: nothing of a socket may
            # outlive it
            self.over = True
            self._cancel_tasks()
            registry.part(self)

    def __init__(self) -> None:
        super().__init__()
        self.talk = Conversation()
        self.device: Device | None = None
        self.connection_id: int | None = None
        self.token_digest = ""
        self.delivery: Delivery | None = None
        self.receipts: Receipts | None = None
        self.over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.lanes = Lanes(self.spawn, partial(inbound.handle, self))

    async def connect(self) -> None:
        handlers.load()
        self.transport = self.scope["bridge"]
        self.socket = self.scope["bridge.socket"]
        self.budget = ratelimit.MessageBudget()
        self._opened = time.monotonic()
        await self.accept()
        self.spawn(self._watch())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the conversation, for as long as the connection lasts."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("socket_task_failed", device=self.device_id, exc_info=error)
            self.spawn(self.end("BRIDGE_ERROR", 1011))

    # -- in ----------------------------------------------------------------------------------------

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await inbound.take(self, text_data if text_data is not None else bytes_data or b"")

    # -- out ---------------------------------------------------------------------------------------

    async def send_payload(self, payload: BaseModel, *, id: str | None = None) -> None:
        """Send a message that is not a row of the log; ``id``: the request's, in a reply."""
        await self.send_frame(encode(payload, id=id))

    async def reply(self, message: ClientMessage, payload: BaseModel) -> None:
        await self.send_payload(payload, id=message.id)

    async def send_frame(self, message: Encoded) -> None:
        await self.send_text(message.text)

    async def send_text(self, text: str) -> None:
        if not self.over:
            await self.send(text_data=text)

    async def send_in_turn(self, text: str) -> None:
        """Send at the pace of the socket: what waits in memory stays bounded (D30)."""
        await self.socket.drain()
        await self.send_text(text)

    def send_at_once(self, rows: Sequence[Row]) -> int:
        """Send the first rows, as many as fit into what may wait in memory; how many those are."""
        return 0 if self.over else self.socket.send_frames([row.wire for row in rows])

    async def refuse(self, error: BridgeError, id: str | None = None) -> None:
        """``connection_error`` and a close."""
        client, path = self.transport.client, self.scope["path"]
        log_error(error.code, path=path, client=client, device=self.device_id)
        await self.send_payload(connection_error_payload(error, self.transport.base_url), id=id)
        await self._close(error.row.close)

    async def end(self, code: str, close: int | None = None) -> None:
        """``error`` and a close, for what is no fault of the conversation."""
        error = BridgeError(code)
        await self.send_payload(error_payload(error))
        await self._close(close or error.row.close)

    async def _close(self, code: int | None) -> None:
        if not self.over:
            self.over = True
            await self.close(code=code)

    # -- the life of the connection ----------------------------------------------------------------

    @property
    def device_id(self) -> int | None:
        return self.device.pk if self.device else None

    @property
    def joined(self) -> dict[str, int]:
        return self.talk.joined

    async def authenticated(self, device: Device, token_digest: str) -> None:
        """Take the device's place: an older connection of it goes first (D23). Raises Refused
        RATE_LIMITED when there is none.
        """
        for older in [one for one in registry.sockets if one.device_id == device.pk]:
            await older.retire("CONN_REPLACED")
        self.device = device
        self.socket.authenticated()
        registry.opening += 1
        try:
            self.token_digest = token_digest
            self.connection_id = await writers.run(
                presence.open_connection,
                leases.current(),
                device,
                token_digest,
                self.transport.client,
            )
            self.receipts = Receipts(device.pk)
            self.delivery = Delivery(device, self, self.receipts, tail)
            registry.add(self)
        except BridgeError as error:
            raise Refused(error.code, error.message) from None
        finally:
            registry.opening -= 1

    def deliver(self, upto: int) -> None:
        """Start sending what the log holds for the device: its backlog up to the row ``upto``, then
        what is live (D28).
        """
        assert self.delivery is not None
        self.spawn(self.delivery.run(upto))

    def wake(self) -> None:
        if self.delivery is not None:
            self.delivery.wake()

    async def retire(self, code: str) -> None:
        """End this connection from outside; when it returns, nothing more is sent and all that was
        acknowledged is stored.
        """
        registry.discard(self)
        error = BridgeError(code)
        if code == "CONN_REPLACED":
            await self.end(code)
        else:
            await self.refuse(error)
        await self._settle()

    def _cancel_tasks(self) -> None:
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    async def _settle(self) -> None:
        self._cancel_tasks()
        if self.receipts is not None:
            await self.receipts.flush()

    async def disconnect(self, code: int) -> None:
        self.over = True
        registry.discard(self)
        await self._settle()

    async def _watch(self) -> None:
        """The clocks: `auth` within 10 s, a frame every 45 s, and a socket that takes what it is
        sent.
        """
        while not self.over:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            if self.device is None:
                if now - self._opened > limits.AUTH_WAIT_SECONDS:
                    await self.refuse(Refused("CONN_TIMEOUT", "No auth came within 10 seconds."))
            elif (
                self.socket.buffered()
                and now - self.socket.last_progress > limits.SLOW_SOCKET_SECONDS
            ):
                await self._close(ERRORS["CONN_SLOW"].close)
                self.socket.abort()  # the close frame waits behind what the peer does not read
            elif now - self.socket.last_frame > limits.LIVENESS_SECONDS:
                await self.refuse(Refused("CONN_TIMEOUT"))
