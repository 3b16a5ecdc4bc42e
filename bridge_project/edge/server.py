"""Run daphne with our protocols, and stop it in order (D19, D44, D45)."""

import asyncio
import ctypes
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import daphne.server  # isort: skip  installs the asyncio reactor, before anything of twisted's
from twisted.internet import reactor
from twisted.logger import globalLogBeginner
from twisted.protocols.tls import TLSMemoryBIOFactory

from bridge_project.composition import background
from bridge_project.edge import http, websocket
from bridge_project.edge.connection import (
    ConnectionLimiter,
    Port,
    TLSConnection,
    TLSContextHolder,
    connection_of,
    listen,
)
from bridge_project.edge.request import Request
from bridge_project.edge.server_log import ServerLog, forward_failures
from bridge_project.http.asgi_types import Application
from bridge_project.kernel import limits
from bridge_project.kernel import logging as bridge_logging
from bridge_project.kernel.config import Conf
from bridge_project.network.certificate_files import Certificates
from bridge_project.network.transport import Transport, resolve

log = logging.getLogger("bridge.server")

M_MMAP_THRESHOLD = -3
DRAIN_POLL_SECONDS = 0.05  # between two checks of what is still open while stopping


class Server(ServerLog, daphne.server.Server):  # type: ignore[misc]
    """Replace how daphne starts, listens and ends.

    The background work begins before anything listens and ends before a socket is closed.
    ``on_listening`` is awaited when all listens, before a connection is taken.
    """

    def __init__(
        self,
        application: Application,
        *,
        conf: Conf,
        certificates: Certificates,
        on_listening: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(application, endpoints=["tls"], server_name="")
        self.conf = conf
        self.on_listening = on_listening
        self.tls_context = TLSContextHolder(certificates)
        self.limiter = ConnectionLimiter(conf)
        self.channels: set[http.Channel] = set()
        # the application of each request and socket, and what cancels it some time after its end
        self.tasks: dict[Any, asyncio.Task[None]] = {}
        self._ended: dict[Any, asyncio.TimerHandle] = {}
        bodies = max(1, limits.BODIES_IN_FLIGHT_BYTES // conf.max_message_bytes)
        self.hook_bodies = asyncio.Semaphore(bodies)
        self.other_bodies = asyncio.Semaphore(bodies)
        self.loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop  # type: ignore[attr-defined]
        self.stopping = False
        self._ports: list[Port] = []
        self.http_factory = http.Factory(self)
        self.ws_factory = websocket.Factory(self, max_bytes=conf.max_message_bytes)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then stop in order and return.

        A second signal ends the process at once. Raises ConfError, one line naming the setting,
        when it cannot listen, and what the background work's start raises.
        """
        # By itself glibc keeps freed blocks of up to 32 MB: after 30 answers of 10 MB 100 MB.
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # not musl, not macOS
            mallopt(M_MMAP_THRESHOLD, limits.MB)
        globalLogBeginner.beginLoggingTo(
            [forward_failures], redirectStandardIO=False, discardBuffer=True
        )
        asyncio.set_event_loop(self.loop)
        tls = TLSMemoryBIOFactory(self.tls_context, False, self.http_factory, reactor)
        tls.protocol = TLSConnection
        conf = self.conf
        self._ports = listen(conf.bridge_host, conf.bridge_port, "BRIDGE_PORT", tls, self.limiter)
        if plain := conf.bridge_plain_port:
            ours = self.http_factory, self.limiter
            self._ports += listen("127.0.0.1", plain, "BRIDGE_PLAIN_PORT", *ours)
        life = self.loop.create_task(self._life(), name="server")
        try:
            reactor.run(installSignalHandlers=False)  # type: ignore[attr-defined]
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)  # the loop's would hear a second one no more
            for limiter in bridge_logging.RATE_LIMITERS.values():
                limiter.log_counts()
        life.result()

    async def _life(self) -> None:
        signalled = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._signalled, signalled, number)
        tasks = [
            self.loop.create_task(self.tls_context.keep_newest(self.conf)),
            self.loop.create_task(self._check_timeouts()),
        ]
        try:
            await background.start_all()
            try:
                for port in self._ports:
                    how = "plain, for a proxy" if port.factory is self.http_factory else "TLS"
                    log.info("Listening on %s port %d (%s).", port.interface, port.port, how)
                await self.on_listening()
                for port in self._ports:
                    port.startReading()
                await signalled.wait()
            finally:
                await self._stop()
        finally:
            for task in tasks:
                task.cancel()
            reactor.stop()  # type: ignore[attr-defined]

    def _signalled(self, signalled: asyncio.Event, number: signal.Signals) -> None:
        if signalled.is_set():
            log.warning("Stopped at once by a second signal.")
            logging.shutdown()
            os._exit(128 + number)
        signalled.set()

    async def _stop(self) -> None:
        """Stop in order: refuse new connections, close sockets, wait for requests."""
        for port in self._ports:
            port.stopListening()
        seconds = limits.STOP_SECONDS
        try:
            async with asyncio.timeout(seconds):
                await background.stop_all()
        except TimeoutError:
            log.error("What was to be done before stopping took longer than %d seconds.", seconds)
        self.stopping = True
        for channel in list(self.channels):
            if not channel.busy:
                channel.loseConnection()
        for one in list(self.ws_factory.open_sockets):
            if one.state == one.STATE_CONNECTING:
                one.deny("INTERNAL_ERROR", status=503, message="The bridge is stopping.")
            else:
                one.close(websocket.GOING_AWAY, "The bridge is stopping.")
        deadline = time.monotonic() + seconds
        # an event would have to come from three layers, for half a second once
        while time.monotonic() < deadline and self._in_flight():  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        tasks = [*self.tasks.values(), *(one.admission for one in self.channels if one.admission)]
        for task in tasks:
            task.cancel()
        if tasks:
            log.warning("%d requests or sockets did not end in time and were cut.", len(tasks))
            await asyncio.wait(tasks, timeout=2)

    def _in_flight(self) -> bool:
        sockets = self.ws_factory.open_sockets
        return (
            bool(self.tasks)
            or any(one.busy or one.transport.waiting() for one in self.channels)
            or any(one.state != one.STATE_CLOSED or one.buffered() for one in sockets)
        )

    async def _check_timeouts(self) -> None:
        while True:
            await asyncio.sleep(1)
            for connection in list(self.limiter.connections):
                connection.check_end()
            for channel in list(self.channels):
                channel.check_progress()

    def transport_of(self, transport: Any, headers: Iterable[tuple[bytes, bytes]]) -> Transport:
        tls = isinstance(transport, TLSConnection)
        if not tls and connection_of(transport).expects_tls:
            headers = []  # no proxy speaks so
        return resolve(
            self.conf,
            tls=tls,
            local_address=transport.getHost().host,
            peer_address=transport.getPeer().host,
            headers=headers,
        )

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        """Start the application; its scope holds what the edge knows of the connection.

        Keys: ``bridge``, ``bridge.socket``, ``bridge.connection``, ``bridge.body``.
        """
        inbox: Any
        if scope["type"] == "websocket":
            scope["bridge"] = protocol.bridge = self.transport_of(
                protocol.transport, scope["headers"]
            )
            scope["bridge.connection"] = connection_of(protocol.transport)
            scope["bridge.socket"] = protocol
            scope["asgi"] = {"version": "3.0", "spec_version": "2.4"}
            scope["extensions"] = {"websocket.http.response": {}}
            inbox = protocol.application_queue
        else:
            inbox = asyncio.Queue()
            if protocol.admitted:
                scope["bridge.body"] = "admitted"
        port = 0 if protocol.bridge.via_proxy else protocol.transport.getPeer().port
        protocol.client_addr = [protocol.bridge.client, port]
        send = partial(self.handle_reply, protocol)
        task = self.loop.create_task(self.application(scope=scope, receive=inbox.get, send=send))
        self.tasks[protocol] = task
        task.add_done_callback(partial(self._application_done, protocol))
        return inbox

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        if protocol in self.tasks and protocol not in self._ended:
            self.check_headers_type(message)
            protocol.handle_reply(message)
            if message["type"] == "http.response.body" and message.get("more_body"):
                # so that of a large answer only pieces wait in the transport
                await protocol.has_room()

    def protocol_connected(self, protocol: Any) -> None:
        """Ignore a new connection: ``tasks`` counts its requests."""

    def protocol_disconnected(self, protocol: Any) -> None:
        """Give the application some seconds to end.

        Called once or several times, before or after it ended, or without one.
        """
        if protocol in self.tasks and protocol not in self._ended:
            cancel = self.tasks[protocol].cancel
            self._ended[protocol] = self.loop.call_later(self.application_close_timeout, cancel)

    def _application_done(self, protocol: Any, task: asyncio.Task[None]) -> None:
        del self.tasks[protocol]
        ended = self._ended.pop(protocol, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.log_failure(error, protocol.request_id())
        if ended is None:
            protocol.fail()
        else:
            ended.cancel()
        if isinstance(protocol, Request):
            protocol.leave()
