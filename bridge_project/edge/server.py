"""daphne with our edges: what listens, what is let in, and an end in which nobody is cut off (D19,
D20, D44, D45).
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import quote

import daphne.server  # isort: skip  installs the asyncio reactor, before anything of twisted's
from twisted.internet import reactor
from twisted.logger import LogLevel, globalLogBeginner

from bridge_project.edge import http, websocket
from bridge_project.edge.connection import (
    Connection,
    Contexts,
    Strangers,
    TLSConnection,
    TLSFactory,
    adopt,
    connection_of,
)
from bridge_project.edge.error_responses import Inbox, raw_response
from bridge_project.edge.listening import bind, cannot_listen
from bridge_project.http import error_body
from bridge_project.kernel import limits
from bridge_project.kernel import logging as bridge_logging
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.network import certificates as tls_certificates
from bridge_project.network.certificates import Certificates
from bridge_project.network.transport import Transport, accepts_on, resolve

log = logging.getLogger("bridge.server")
access = logging.getLogger("bridge.access")

Hook = Callable[[], Awaitable[None]]
Application = Callable[..., Awaitable[None]]
_M_MMAP_THRESHOLD = -3
POLL_SECONDS = 0.05  # between two looks at what is still open while stopping


def run(
    application: Application,
    *,
    conf: Conf,
    certificates: Certificates,
    on_start: Hook | None = None,
    on_stop: Hook | None = None,
    on_listening: Hook | None = None,
    certificate_check_seconds: float = limits.CERTIFICATE_CHECK_SECONDS,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order and return; a second signal ends the
    process at once.

    ``on_start`` is awaited once the event loop runs and before anything listens, ``on_listening``
    when all listens, ``on_stop`` before a socket is closed. Raises ConfError, one line naming the
    setting, when it cannot listen; what ``on_start`` raises comes out of here too.
    """
    _return_large_blocks()
    server = Server(
        application,
        conf=conf,
        certificates=certificates,
        certificate_check_seconds=certificate_check_seconds,
    )
    server.on_start, server.on_stop, server.on_listening = on_start, on_stop, on_listening
    server.run()


class Server(daphne.server.Server):  # type: ignore[misc]
    """Use ``run``. It keeps daphne's protocols and its table of connections, and replaces how it
    starts, listens and ends.
    """

    on_start: Hook | None = None
    on_stop: Hook | None = None
    on_listening: Hook | None = None

    def __init__(
        self,
        application: Application,
        *,
        conf: Conf,
        certificates: Certificates,
        certificate_check_seconds: float,
    ) -> None:
        super().__init__(
            application, endpoints=["tls"], server_name="", request_buffer_size=256 * 1024
        )
        self.conf = conf
        self.contexts = Contexts(certificates)
        self.certificate_check_seconds = certificate_check_seconds
        self.connections: dict[Any, dict[str, Any]] = {}
        self.channels: set[http.Channel] = set()
        self.hook_bodies = http.LargeBodies(limits.BODIES_IN_FLIGHT_BYTES)
        self.other_bodies = http.LargeBodies(limits.BODIES_IN_FLIGHT_BYTES)
        self.loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop  # type: ignore[attr-defined]
        self.stopping = False
        self.strangers = Strangers(conf)
        self._ports: list[Any] = []

    # -- life --

    def run(self) -> None:
        with ExitStack() as bound:
            tls_sockets = bind(self.conf.bridge_host, self.conf.bridge_port, "BRIDGE_PORT", bound)
            plain_sockets = (
                bind("127.0.0.1", self.conf.bridge_plain_port, "BRIDGE_PLAIN_PORT", bound)
                if self.conf.bridge_plain_port
                else []
            )
            self._run(tls_sockets, plain_sockets)

    def _run(self, tls_sockets: list[socket.socket], plain_sockets: list[socket.socket]) -> None:
        globalLogBeginner.beginLoggingTo(
            [_forward_failures], redirectStandardIO=False, discardBuffer=True
        )
        self.http_factory = http.Factory(self)
        self.ws_factory = websocket.Factory(self, max_bytes=self.conf.max_message_bytes)
        asyncio.set_event_loop(self.loop)
        life = self.loop.create_task(self._life(tls_sockets, plain_sockets), name="server")
        try:
            reactor.run(installSignalHandlers=False)  # type: ignore[attr-defined]
        finally:
            bridge_logging.log_held_back()
        life.result()

    async def _life(
        self, tls_sockets: list[socket.socket], plain_sockets: list[socket.socket]
    ) -> None:
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._signalled, told, number)
        tasks = [
            self.loop.create_task(self._watch_certificate()),
            self.loop.create_task(self._check_timeouts()),
        ]
        try:
            await _call(self.on_start)
            try:
                self._listen(tls_sockets, plain_sockets)
                await _call(self.on_listening)
                await told.wait()
            finally:
                await self._stop()
        finally:
            for task in tasks:
                task.cancel()
            reactor.stop()  # type: ignore[attr-defined]

    def _signalled(self, told: asyncio.Event, number: signal.Signals) -> None:
        if told.is_set():
            log.warning("Stopped at once by a second signal.")
            logging.shutdown()
            os._exit(128 + number)
        told.set()

    def _listen(self, tls_sockets: list[socket.socket], plain_sockets: list[socket.socket]) -> None:
        secure = TLSFactory(
            self.contexts, self.http_factory, partial(accepts_on, self.conf.bridge_host)
        )
        for sockets, factory, setting in (
            (tls_sockets, secure, "BRIDGE_PORT"),
            (plain_sockets, self.http_factory, "BRIDGE_PLAIN_PORT"),
        ):
            for one in sockets:
                host, port = one.getsockname()[:2]
                try:
                    self._ports.append(adopt(one, factory, self.strangers))
                except OSError as error:
                    raise cannot_listen(setting, host, port, error) from None
                log.info(
                    "Listening on %s port %d (%s).",
                    host,
                    port,
                    "TLS" if factory is secure else "plain, for a proxy",
                )

    # -- the end --

    async def _stop(self) -> None:
        """Nobody new, the application's farewell, a close frame for each socket, then at most
        STOP_SECONDS for what is in flight (STACK 1).
        """
        for port in self._ports:
            port.stopListening()
        try:
            async with asyncio.timeout(limits.STOP_SECONDS):
                await _call(self.on_stop)
        except TimeoutError:
            log.error(
                "What was to be done before stopping took longer than %d seconds.",
                limits.STOP_SECONDS,
            )
        self.stopping = True
        for channel in list(self.channels):
            if not channel.busy:
                channel.loseConnection()
        for one in list(self.ws_factory.open_sockets):
            if one.state == one.STATE_CONNECTING:
                one.deny("INTERNAL_ERROR", status=503, message="The bridge is stopping.")
            else:
                one.close(websocket.GOING_AWAY, "The bridge is stopping.")
        deadline = time.monotonic() + limits.STOP_SECONDS
        while time.monotonic() < deadline and self._in_flight():  # noqa: ASYNC110 - three layers would have to tell, for half a second once
            await asyncio.sleep(POLL_SECONDS)
        await self._cancel_applications()

    def _in_flight(self) -> bool:
        running = any("task" in entry for entry in self.connections.values())
        waiting = any(channel.busy or _waiting(channel.transport) for channel in self.channels)
        return (
            running
            or waiting
            or any(
                one.state != one.STATE_CLOSED or one.socket.buffered()
                for one in self.ws_factory.open_sockets
            )
        )

    async def _cancel_applications(self) -> None:
        tasks = [entry["task"] for entry in self.connections.values() if "task" in entry]
        tasks += [channel.asking for channel in self.channels if channel.asking is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            log.warning("%d requests or sockets did not end in time and were cut.", len(tasks))
            await asyncio.wait(tasks, timeout=2)

    # -- certificate and clocks --

    async def _watch_certificate(self) -> None:
        """Serve the newest certificate without a restart: renewed here, by another process, or by
        whoever gave it.
        """
        while True:
            await asyncio.sleep(self.certificate_check_seconds)
            try:
                newest = await asyncio.to_thread(tls_certificates.ensure, self.conf)
                if newest.fingerprint != self.contexts.certificates.fingerprint:
                    self.contexts.use(newest)
                    log.info(
                        "A new certificate is served, valid until %s.", newest.not_after.date()
                    )
            except ConfError as error:
                log.error(
                    "The certificate could not be renewed, the old one stays in use: %s", error
                )

    async def _check_timeouts(self) -> None:
        while True:
            await asyncio.sleep(1)
            for protocol in list(self.connections):
                protocol.check_timeouts()
            for channel in list(self.channels):
                channel.check_deadline()

    # -- connections --

    def transport_of(self, transport: Any, headers: Iterable[tuple[bytes, bytes]]) -> Transport:
        return resolve(
            self.conf,
            tls=isinstance(transport, TLSConnection),
            local_address=transport.getHost().host,
            peer_address=transport.getPeer().host,
            headers=headers,
        )

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Inbox:
        """Add what the edge knows to the scope (``bridge``, ``bridge.socket``) and start the
        application.
        """
        sockets = scope["type"] == "websocket"
        bridge = (
            self.transport_of(protocol.transport, scope["headers"]) if sockets else protocol.bridge
        )
        scope["bridge"] = bridge
        protocol.client_addr = [
            bridge.client,
            0 if bridge.via_proxy else protocol.transport.getPeer().port,
        ]
        scope["asgi"] = {"version": "3.0", "spec_version": "2.4"}
        scope["bridge.connection"] = connection_of(protocol.transport)
        if not sockets and protocol.admitted:
            scope["bridge.body"] = "admitted"
        if sockets:
            scope["bridge.socket"] = protocol.socket
            scope["extensions"] = {"websocket.http.response": {}}
        inbox: Inbox = protocol.application_queue if sockets else Inbox()
        task = self.loop.create_task(
            self.application(
                scope=scope, receive=inbox.get, send=partial(self.handle_reply, protocol)
            )
        )
        self.connections[protocol]["task"] = task
        task.add_done_callback(partial(self._application_done, protocol))
        if not sockets:
            task.add_done_callback(lambda _: protocol.leave())
        return inbox

    async def ask_for_body(self, head: dict[str, Any]) -> bytes | None:
        """Ask the application whether it wants a large body, before the body is read.

        ``head`` is the scope with ``bridge.body`` set to ``awaited``. The application answers 100,
        and None is returned, or it answers what refuses the request: that response is returned.
        """
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.application(scope=head, receive=receive, send=send)
        start, *body = sent
        if start["status"] == 100:
            return None
        content = (
            b"" if head["method"] == "HEAD" else b"".join(one.get("body", b"") for one in body)
        )
        return raw_response(start["status"], start["headers"], content)

    def is_being_answered(self, protocol: Any) -> bool:
        """Whether the application runs for it; it does so to its end, whether or not the client is
        still there.
        """
        return "task" in self.connections.get(protocol, ())

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        entry = self.connections.get(protocol)
        if entry is not None and "disconnected" not in entry:
            self.check_headers_type(message)
            protocol.handle_reply(message)
            if message["type"] == "http.response.body" and message.get("more_body"):
                # so that of a large answer only pieces wait in the transport
                await protocol.has_room()

    def protocol_disconnected(self, protocol: Any) -> None:
        """Called once or several times, before or after its application ended, or without one ever
        having been started.
        """
        entry = self.connections.get(protocol)
        if entry is None or "disconnected" in entry:
            return
        if "task" in entry:
            entry["disconnected"] = self.loop.call_later(
                self.application_close_timeout, self._kill, protocol, entry["task"]
            )
        else:
            del self.connections[protocol]

    def _kill(self, protocol: Any, task: asyncio.Task[None]) -> None:
        log.warning(
            "The application of %r did not end %d seconds after its connection and was cancelled.",
            protocol,
            self.application_close_timeout,
        )
        task.cancel()

    def _application_done(self, protocol: Any, task: asyncio.Task[None]) -> None:
        entry = self.connections.get(protocol)
        if entry is None:
            return
        del entry["task"]
        error = None if task.cancelled() else task.exception()
        timer = entry.get("disconnected")
        if timer is not None:
            timer.cancel()
            del self.connections[protocol]
            if error is not None:
                self.log_failure(error, "-")
        elif error is not None:
            protocol.handle_exception(error)
        else:
            protocol.fail()

    # -- logs --

    def log_failure(self, error: BaseException, request_id: str) -> None:
        log.error("The application failed (request_id %s): %s", request_id, error, exc_info=error)

    def log_action(self, protocol: str, action: str, details: dict[str, Any]) -> None:
        """daphne's words for the access log; a query string may hold a token and is left out."""
        client = str(details.get("client") or "-").rpartition(":")[0]
        if action == "complete":
            self.log_access(
                details["method"].encode(),
                details["path"].encode(),
                details["status"],
                client,
                details["size"],
                details["time_taken"],
            )
        elif action in ("connected", "disconnected"):
            who = {"client": client, "code": "WebSocket"}
            path = _printable(str(details["path"]).encode())
            access.info("WebSocket %s %s %s", path, action, client, extra=who)

    def log_access(
        self,
        method: bytes,
        path: bytes,
        status: int,
        client: str,
        size: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Log a request that was answered.

        Not a refusal, which is logged where it is made, with its code. Not an accepted event, which
        is in the database; a line for each would cost a fifth of what serving it does.
        """
        if 400 <= status < 500 or (status < 300 and b"/hooks/" in path):
            return
        who = {"client": client, "code": str(status)} if status < 500 else {}
        access.info(
            "%s %s %d %s %d bytes %.0f ms",
            _printable(method),
            _printable(path),
            status,
            client,
            size,
            seconds * 1000,
            extra=who,
        )

    def log_error(
        self, code: str, request_id: str, method: bytes, path: bytes, status: int, client: str
    ) -> None:
        """Log an error that the edge itself has answered; a fault is in the log already."""
        if status >= 500:
            return self.log_access(method, path, status, client)
        return error_body.log_error(
            code,
            request_id=request_id,
            status=status,
            method=_printable(method),
            path=_printable(path)[:200],
            client=client,
        )


def _return_large_blocks() -> None:
    """Have glibc give what is larger than 1 MB back to the system as soon as it is freed.

    By itself it raises that limit to 32 MB after the first such block: after 30 answers of 10 MB
    the process kept 100 MB more.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # not musl, not macOS
        mallopt(_M_MMAP_THRESHOLD, limits.MB)


async def _call(hook: Hook | None) -> None:
    if hook is not None:
        await hook()


def _waiting(transport: Connection | TLSConnection | None) -> int:
    return transport.waiting() if transport is not None and transport.connected else 0


def _printable(text: bytes) -> str:
    return quote(text.partition(b"?")[0], safe="/-._~!$&'()*+,;=:@%")


def _forward_failures(event: dict[str, Any]) -> None:
    """twisted's log, of which only unhandled exceptions are of interest."""
    if event.get("log_level") is LogLevel.critical:
        failure = event.get("log_failure")
        log.error(
            "Unhandled error in the server: %s",
            failure.getErrorMessage() if failure else event.get("log_format"),
            exc_info=failure and failure.value,
        )
