"""Hold this process's connections, end them when due, and free their records."""

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import suppress
from typing import Any

from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import writers
from devices_app.models import Device
from sessions_app.log.tail import tail
from sessions_app.socket import presence
from sessions_app.socket.acknowledgements import Acknowledgements
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.delivery import Delivery
from sessions_app.socket.dispatch import Disconnect


class Registry:
    """Hold the authenticated connections of this process, on the event loop."""

    def __init__(self) -> None:
        self.sockets: set[ClientConnection] = set()
        self.opening = 0  # how many are taking a place at this moment
        self._tasks: set[asyncio.Task[None]] = set()

    async def register(
        self, connection: ClientConnection, device: Device, token_digest: str
    ) -> None:
        """Register an authenticated connection, and end the device's older one (D23).

        Raises Disconnect RATE_LIMITED when there is no place left.
        """
        for older in [one for one in self.sockets if one.device_id == device.pk]:
            await self._end(older, "CONN_REPLACED")
        connection.device = device
        connection.acknowledgements = Acknowledgements(device.pk)
        connection.delivery = Delivery(device, connection, connection.acknowledgements)
        connection.socket.authenticated()
        self.opening += 1
        try:
            connection.token_digest = token_digest
            who = (device, token_digest, connection.transport.client)
            connection.connection_id = await writers.run(presence.open_connection, *who)
            self.sockets.add(connection)
            tail.followers.add(connection.delivery.wake)
        except BridgeError as error:
            raise Disconnect(error.code, error.message) from None
        finally:
            self.opening -= 1

    def discard(self, connection: ClientConnection) -> None:
        self.sockets.discard(connection)
        if connection.device is not None:
            tail.followers.discard(connection.delivery.wake)

    def retire(self, replaced: Collection[int], ended: Collection[int]) -> None:
        """End connections that were replaced, or whose device was revoked or token ended."""
        for connection in tuple(self.sockets):
            if connection.connection_id in ended:
                self._spawn(self._end(connection, "AUTH_FAILED"))
            elif connection.connection_id in replaced:
                self._spawn(self._end(connection, "CONN_REPLACED"))

    async def _end(self, connection: ClientConnection, code: str) -> None:
        """End a connection; when this returns, all that it acknowledged is stored."""
        self.discard(connection)
        if code == "CONN_REPLACED":
            await connection.end(code)
        else:
            await connection.refuse(BridgeError(code))
        await connection.end_work()

    def remove(self, connection: ClientConnection) -> None:
        """Remove an ended connection from the registry, and delete its row."""
        self.discard(connection)
        for feed_id in connection.joined.values():
            self._spawn(tail.notifier.leave(feed_id))
        connection.joined.clear()
        if connection.connection_id is not None:
            self._spawn(self._delete_record(connection.connection_id))
            connection.connection_id = None

    async def _delete_record(self, connection_id: int) -> None:
        """Delete an ended connection's record; polling does when the database fails."""
        with suppress(*STORAGE_ERRORS):
            await writers.run(presence.close_connections, {connection_id})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


registry = Registry()
