"""Connect Channels with a client connection, and end it on time-outs (D21 to D25)."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from bridge_project.http import ratelimit
from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS
from sessions_app.socket import inbound
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import Refused
from sessions_app.socket.registry import registry
from sessions_app.socket.request_queues import RequestQueues

WATCH_SECONDS = 1.0


class BridgeConsumer(ClientConnection):
    """Run a client connection under Channels."""

    # The process joins groups for its sockets (log/notify.py): a socket must not need Redis to open.
    channel_layer_alias = "none"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Also when the server ends us in the middle of something: nothing may outlive us.
            self.over = True
            self.cancel_tasks()
            registry.part(self)

    async def connect(self) -> None:
        self.transport = self.scope["bridge"]
        self.socket = self.scope["bridge.socket"]
        self.budget = ratelimit.MessageBudget()
        self.queues = RequestQueues(self.spawn, partial(inbound.handle, self))
        await self.accept()
        self.spawn(self._watch_clocks())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await inbound.take(self, text_data if text_data is not None else bytes_data or b"")

    async def disconnect(self, code: int) -> None:
        self.over = True
        registry.discard(self)
        await self.settle()

    async def _watch_clocks(self) -> None:
        """End a connection without `auth` in 10 s, frames in 45 s, or progress in sending."""
        opened = time.monotonic()
        while not self.over:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            if self.device is None:
                if now - opened > limits.AUTH_WAIT_SECONDS:
                    await self.refuse(Refused("CONN_TIMEOUT", "No auth came within 10 seconds."))
            elif (
                self.socket.buffered()
                and now - self.socket.last_progress > limits.SLOW_SOCKET_SECONDS
            ):
                await self.close_once(ERRORS["CONN_SLOW"].close)
                self.socket.abort()  # the close frame waits behind data that the peer does not read
            elif now - self.socket.last_frame > limits.LIVENESS_SECONDS:
                await self.refuse(Refused("CONN_TIMEOUT"))
