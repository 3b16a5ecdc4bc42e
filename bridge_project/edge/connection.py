# ruff: noqa: N802 - the names are twisted's
"""Accept TCP and TLS connections, limit them, and watch their buffers (D19, D30)."""

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Iterable
from typing import Any

import daphne.server  # noqa: F401  installs the asyncio reactor: before anything else of twisted's
from OpenSSL import SSL
from twisted.internet import reactor, tcp
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.ssl import CertificateOptions, TLSVersion
from twisted.protocols.policies import ProtocolWrapper
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.kernel.place import short
from bridge_project.kernel.text import network_of
from bridge_project.network.certificate_files import Certificates
from bridge_project.network.certificates import load_or_renew
from bridge_project.network.transport import accepts_on, is_trusted_proxy

log = logging.getLogger("bridge.server")

# By default twisted times by the wall clock; if that jumps, every deadline of a request does.
reactor.seconds = time.monotonic  # type: ignore[attr-defined]

TLS_HANDSHAKE = 0x16  # the first byte of every TLS connection
UNSENT_BYTES = 128 * 1024  # in the kernel, for one connection
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


class PlainConnection(tcp.Server):
    """Track how much a TCP connection has buffered, and when bytes last left (D30)."""

    authenticated = False  # a request or socket on it had a valid token
    _progress: asyncio.Event | None = None  # made once somebody waits: an event has 900 bytes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.last_progress = time.monotonic()  # when bytes last left, or began to wait
        self.setTcpKeepAlive(True)
        self.setTcpNoDelay(True)
        # else the kernel takes megabytes, and a heartbeat's answer waits behind them
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # of the headers that Python was built with
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self.server.limiter.admit(self)

    @property
    def expects_tls(self) -> bool:
        """Return whether it came to the port for TLS."""
        return isinstance(self.server.factory, TLSMemoryBIOFactory)

    @property
    def established(self) -> bool:
        """Return whether the TLS handshake is done; at a port without TLS always."""
        return bool(getattr(self.protocol, "_handshakeDone", not self.expects_tls))

    @property
    def answering(self) -> bool:
        """Return whether a whole HTTP request has arrived and is being answered."""
        inner = getattr(self.protocol, "wrappedProtocol", self.protocol)
        return bool(getattr(inner, "_handlingRequest", False))

    def waiting(self) -> int:
        """Return how many bytes were accepted and not yet handed to the kernel."""
        return int(len(self.dataBuffer) - self.offset + self._tempDataLen)

    def write(self, data: bytes) -> None:
        if not self.waiting():
            self.last_progress = time.monotonic()
            # Twisted would ask in another turn of the loop whether it may write. At once costs 9 %
            # less CPU an event and a tenth less time to the phone (the mix, 16 posters).
            if data and self.connected and not self.disconnecting:
                sent = self.writeSomeData(data)
                if isinstance(sent, int):
                    data = data[sent:]  # a failure is found again when the rest is written
        super().write(data)

    def writeSequence(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def writeSomeData(self, data: bytes) -> int | BaseException:
        written: int | BaseException = super().writeSomeData(data)
        if isinstance(written, int) and written > 0:
            self.last_progress = time.monotonic()
            self._wake_waiting()
        return written

    def check_end(self) -> None:
        """Reset a closing connection from which nothing left for LINGER_SECONDS.

        Bytes may wait, or TLS for the peer's close_notify, which may never come.
        """
        closing = self.disconnecting or getattr(self.protocol, "disconnecting", False)
        if closing and time.monotonic() - self.last_progress > limits.LINGER_SECONDS:
            self.abortConnection()

    def connectionLost(self, reason: Failure) -> None:
        self.server.limiter.connections.pop(self, None)
        super().connectionLost(reason)
        self._wake_waiting()

    async def progress(self) -> None:
        """Wait until bytes have left, or the connection is lost."""
        if self._progress is None:
            self._progress = asyncio.Event()
        self._progress.clear()
        await self._progress.wait()

    def _wake_waiting(self) -> None:
        if self._progress is not None:
            self._progress.set()


class TLSConnection(TLSMemoryBIOProtocol):
    """Run TLS on a connection.

    What speaks plain HTTP goes on as that, to be refused in words by the middleware (D19).
    """

    _began = False

    def dataReceived(self, data: bytes) -> None:
        if self._began or data[0] == TLS_HANDSHAKE:
            self._began = True
            super().dataReceived(data)
            return
        self.unregisterProducer()
        ProtocolWrapper.connectionLost(self, Failure(ConnectionDone()))
        plain = self.factory.wrappedFactory.buildProtocol(self.transport.getPeer())
        self.transport.protocol = plain
        plain.makeConnection(self.transport)
        plain.dataReceived(data)

    def waiting(self) -> int:
        """Return the bytes not yet handed to the kernel, without TLS's own overhead."""
        return sum(map(len, self._appSendBuffer)) + int(self.transport.waiting())


@implementer(IOpenSSLServerConnectionCreator)
class TLSContextHolder:
    """Hold the newest TLS context; open connections keep their old one (D19)."""

    def __init__(self, certificates: Certificates) -> None:
        self.use(certificates)

    def use(self, certificates: Certificates) -> None:
        """Serve this certificate from now on.

        Raises ConfError, and keeps the old one, when OpenSSL refuses it.
        """
        context = CertificateOptions(
            raiseMinimumTo=TLSVersion.TLSv1_2, acceptableProtocols=[b"http/1.1"]
        ).getContext()
        context.set_passwd_cb(lambda *_: b"")  # or OpenSSL would ask for one on the terminal
        try:
            context.use_certificate_chain_file(str(certificates.chain))
            context.use_privatekey_file(str(certificates.key))
        except SSL.Error as error:
            text = f"BRIDGE_TLS_CERT: {certificates.chain} and its key cannot be used ({error})"
            raise ConfError(text) from None
        self.certificates = certificates
        self._context = context

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        return SSL.Connection(self._context, None)

    async def keep_newest(self, conf: Conf) -> None:
        """Load a renewed certificate without a restart, whichever process renewed it."""
        while True:
            await asyncio.sleep(limits.CERTIFICATE_CHECK_SECONDS)
            try:
                newest = await asyncio.to_thread(load_or_renew, conf)
                if newest.fingerprint != self.certificates.fingerprint:
                    self.use(newest)
                    until = newest.not_after.date()
                    log.info("A new certificate is served, valid until %s.", until)
            except ConfError as error:
                message = "The certificate could not be renewed, the old one stays in use: %s"
                log.error(message, error)


Transport = PlainConnection | TLSConnection


def connection_of(transport: Transport) -> PlainConnection:
    return transport.transport if isinstance(transport, TLSConnection) else transport


async def drain(transport: Transport) -> None:
    """Wait until the send buffer has room, or the connection is lost."""
    connection = connection_of(transport)
    while connection.connected and transport.waiting() >= limits.SOCKET_BUFFER_BYTES:
        await connection.progress()


class ConnectionLimiter:
    """Refuse connections to public addresses of this machine under `auto` (D44).

    Of too many that are not authenticated, reset one: the oldest without TLS, else the oldest. The
    newest always stays: its client may be about to send a valid token, from the same address.
    """

    def __init__(self, conf: Conf) -> None:
        self._conf = conf
        # with the network that each counts for, or "" for none; the oldest first
        self.connections: dict[PlainConnection, str] = {}

    def admit(self, connection: PlainConnection) -> None:
        """Count a new connection and make room for it; reset one on a forbidden address."""
        if not accepts_on(self._conf.bridge_host, connection.getHost().host):
            connection.abortConnection()
            return
        address = connection.getPeer().host
        counts = self._conf.rate_limits_on and not is_trusted_proxy(self._conf, address)
        self.connections[connection] = mine = network_of(address) if counts else ""
        unauthenticated: dict[str, list[PlainConnection]] = {}
        for one, network in self.connections.items():
            if network and not one.authenticated:
                unauthenticated.setdefault(network, []).append(one)
        if len(unauthenticated.get(mine, ())) > limits.UNAUTHENTICATED_PER_ADDRESS:
            self._make_room(unauthenticated[mine])
        elif sum(map(len, unauthenticated.values())) > limits.UNAUTHENTICATED:
            self._make_room(max(unauthenticated.values(), key=len))

    def _make_room(self, same: list[PlainConnection]) -> None:
        newest = next(reversed(self.connections))
        others = [one for one in same if one is not newest and not one.answering]
        if others:
            # the first of those whose TLS does not stand yet, else the first of all
            idle = min(others, key=lambda one: one.established)
            del self.connections[idle]
            idle.abortConnection()


class Port(tcp.Port):
    """Listen on one address; accept once `startReading` is called."""

    transport = PlainConnection
    limiter: ConnectionLimiter
    both_families = False  # `::` takes IPv4 too, unless another port does

    def createInternetSocket(self) -> socket.socket:
        made: socket.socket = super().createInternetSocket()
        if self.addressFamily == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not self.both_families)
        return made


def listen(
    host: str, port: int, setting: str, factory: Any, limiter: ConnectionLimiter
) -> list[Port]:
    """Listen without accepting yet, to report a port in use at once (D44).

    `auto` and `localhost` mean both families, as far as the machine has them. Raises ConfError.
    """
    ports: list[Port] = []
    # `auto` drops what arrives on a public address
    named = {"auto": ("0.0.0.0", "::"), "localhost": ("127.0.0.1", "::1")}  # noqa: S104
    for address in named.get(host, (host,)):
        made = Port(port, factory, 1024, address, reactor)
        made.limiter, made.both_families = limiter, host == "::"
        try:
            made.startListening()
        except (CannotListenError, OSError) as error:
            reason = error.socketError if isinstance(error, CannotListenError) else error
            if ports and reason.errno in NO_IPV6:
                continue
            raise _cannot_listen(setting, address, port, reason) from None
        made.stopReading()
        ports.append(made)
    return ports


def _cannot_listen(setting: str, address: str, port: int, error: OSError) -> ConfError:
    if error.errno == errno.EADDRINUSE:
        another = port + 1000 if port + 1000 < 2**16 else port - 1000
        return ConfError(
            f"{setting}: port {port} is in use by another program. Stop it, or set a free one:"
            f" `{setting}={another} {short('run')}` (to last, as a line of"
            " `.env` in the data directory)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfError(f"BRIDGE_HOST: {address} is not an address of this machine")
    return ConfError(f"{setting}: cannot listen on {address} port {port} ({error.strerror})")
