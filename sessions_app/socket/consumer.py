"""Connect Channels with a client connection, and end it on time-outs (D21 to D25)."""

import asyncio
import time
from typing import Any

from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer

from bridge_project.http import ratelimit
from bridge_project.kernel import limits
from bridge_project.kernel.errors import ERRORS
from sessions_app.socket import dispatch
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import Disconnect
from sessions_app.socket.registry import registry

WATCH_SECONDS = 1.0


class BridgeConsumer(ClientConnection):
    """Run a client connection under Channels.

    The process joins groups for its sockets (log/notify.py): a socket must not need Redis to open.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one event after the other.

        Channels' own makes a task for each event to wait for a channel layer, and a thread call to
        check database connections, which our threads do themselves.
        """
        self.scope, self.base_send = scope, send
        try:
            while True:
                event = await receive()
                await getattr(self, get_handler_name(event))(event)
        except StopConsumer:
            pass
        finally:
            # Also when the server ends us in the middle of something: nothing may outlive us.
            self.over = True
            self.cancel_tasks()
            registry.remove(self)

    async def connect(self) -> None:
        self.transport = self.scope["bridge"]
        self.socket = self.scope["bridge.socket"]
        self.budget = ratelimit.MessageBudget()
        await self.accept()
        self._opened = time.monotonic()
        self._watch_clocks()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await dispatch.receive(self, text_data if text_data is not None else bytes_data or b"")

    async def disconnect(self, code: int) -> None:
        self.over = True
        registry.discard(self)
        await self.end_work()

    def _watch_clocks(self) -> None:
        """End a connection without `auth` in 10 s, frames in 45 s, or progress in sending.

        It calls itself every second: a task that sleeps would take a kilobyte more.
        """
        if self.over:
            return
        now = time.monotonic()
        if self.device is None and not self.authenticating:
            if now - self._opened > limits.AUTH_WAIT_SECONDS:
                why = f"No auth came within {limits.AUTH_WAIT_SECONDS} seconds."
                self.spawn(self.refuse(Disconnect("CONN_TIMEOUT", why)))
                return
        elif (
            self.socket.buffered() and now - self.socket.last_progress > limits.SLOW_SOCKET_SECONDS
        ):
            self.spawn(self._end_slow())
            return
        elif now - self.socket.last_frame > limits.LIVENESS_SECONDS:
            self.spawn(self.refuse(Disconnect("CONN_TIMEOUT")))
            return
        asyncio.get_running_loop().call_later(WATCH_SECONDS, self._watch_clocks)

    async def _end_slow(self) -> None:
        await self.close_once(ERRORS["CONN_SLOW"].close)
        self.socket.abort()  # the close frame waits behind data that the peer does not read
