# ruff: noqa: N802 - the names are twisted's
"""The lowest layer: TCP connections that know what they hold, TLS that lets in only what belongs
there, and the certificate in use.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import daphne.server  # noqa: F401  installs the asyncio reactor, which must come before anything else of twisted's
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL, crypto
from twisted.internet import reactor, tcp
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.ssl import CertificateOptions, TLSVersion
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from bridge_project.edge.error_responses import raw_response
from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.kernel.text import network_of
from bridge_project.network.certificates import Certificates
from bridge_project.network.transport import is_trusted_proxy

_TLS_HANDSHAKE = 0x16  # the first byte of every TLS connection
_PLAIN_RESPONSE = raw_response(
    400,
    [(b"Content-Type", b"text/plain; charset=utf-8")],
    b"This port speaks https and wss only.\n",
)


UNSENT_BYTES = 128 * 1024  # in the kernel, for one connection


class Corked:
    """A transport on which an answer that is written in parts can be held back until it is
    whole.
    """

    _held: list[bytes] | None = None

    def cork(self) -> None:
        self._held = []

    def uncork(self) -> None:
        held, self._held = self._held, None
        if held:
            self.write(b"".join(held))

    def write(self, data: bytes) -> None:
        if self._held is None:
            super().write(data)  # type: ignore[misc]
        else:
            self._held.append(data)

    def writeSequence(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))


class Direct(tcp.Server):
    """A TCP connection that writes at once what the kernel takes at once; twisted would ask first
    whether it may, in another turn of the loop.
    """

    def write(self, data: bytes) -> None:
        if (
            data
            and self.connected
            and not (self.dataBuffer or self._tempDataBuffer or self.disconnecting)
        ):
            sent = self.writeSomeData(data)
            if isinstance(sent, int):
                data = data[sent:]  # a failure is found again, and told, when the rest is written
        super().write(data)


class Connection(Corked, Direct):
    """A TCP connection that says what waits in it, when bytes last left it, and that ends when it
    was told to (D30).
    """

    on_progress: Callable[[], None] | None = None
    authenticated = False  # a request or socket on it had a valid token
    _lingering: Any = None
    _left_before = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bytes_left = 0
        self.last_progress = time.monotonic()
        self.setTcpKeepAlive(True)
        self.setTcpNoDelay(True)
        # or the kernel takes megabytes, and a heartbeat's answer waits behind them
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self.server.strangers.add(self, self.getPeer().host)

    def waiting(self) -> int:
        """Bytes accepted and not yet handed to the kernel."""
        return int(len(self.dataBuffer) - self.offset + self._tempDataLen) + sum(
            map(len, self._held or ())
        )

    def stalls(self) -> bool:
        """Whether something waits to be sent and no byte was taken for SLOW_SOCKET_SECONDS."""
        return (
            bool(self.waiting())
            and time.monotonic() - self.last_progress > limits.SLOW_SOCKET_SECONDS
        )

    def writeSomeData(self, data: bytes) -> int | BaseException:
        written: int | BaseException = super().writeSomeData(data)
        if isinstance(written, int) and written > 0:
            self.bytes_left += written
            self.last_progress = time.monotonic()
            if self.on_progress is not None:
                self.on_progress()
        return written

    def loseConnection(self, *args: Any, **kwargs: Any) -> None:
        self.uncork()
        self.linger()
        super().loseConnection(*args, **kwargs)

    def linger(self) -> None:
        """From now on the connection has only to end: reset it when nothing moves any more, for the
        peer may never answer.
        """
        if self._lingering is None and self.connected:
            self._left_before = self.bytes_left
            self._lingering = self.reactor.callLater(limits.LINGER_SECONDS, self._lingered)

    def _lingered(self) -> None:
        self._lingering = None
        if self.bytes_left == self._left_before:
            self.abortConnection()
        else:
            self.linger()

    def connectionLost(self, reason: Failure) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        self.server.strangers.discard(self)
        super().connectionLost(reason)
        self.on_progress = None


def connection_of(transport: Connection | TLSConnection) -> Connection:
    """The TCP connection below a transport."""
    return transport.transport if isinstance(transport, TLSConnection) else transport


class Strangers:
    """Connections that have not authenticated. Above a bound, one that does least is reset.

    The newest always stays: its client may be about to show a valid token, from the same address.
    """

    def __init__(self, conf: Conf) -> None:
        self._conf = conf
        self._networks: dict[str, dict[Connection, None]] = {}  # the oldest first
        self._network_of: dict[Connection, str] = {}

    def add(self, connection: Connection, address: str) -> None:
        """Count a connection for its client's address, and make room when it is one too many."""
        if not self._conf.rate_limits_on or is_trusted_proxy(self._conf, address):
            return
        network = network_of(address)
        same = self._networks.setdefault(network, {})
        same[connection] = None
        self._network_of[connection] = network
        if len(same) > limits.STRANGERS_PER_ADDRESS:
            self._make_room(same, connection)
        elif len(self._network_of) > limits.STRANGERS:
            self._make_room(max(self._networks.values(), key=len), connection)

    def discard(self, connection: Connection) -> None:
        """Forget a connection that has authenticated or is lost, if it was counted."""
        network = self._network_of.pop(connection, None)
        if network is not None:
            del self._networks[network][connection]
            if not self._networks[network]:
                del self._networks[network]

    def _make_room(self, same: dict[Connection, None], newest: Connection) -> None:
        known = [one for one in same if one.authenticated]
        for one in known:
            self.discard(one)
        others = [one for one in same if one is not newest and not one.protocol.answering]
        if others and not known:
            # The first of those whose TLS does not stand yet, else the first of all.
            idle = min(others, key=lambda one: one.protocol.established)
            self.discard(idle)
            idle.abortConnection()


class TLSConnection(Corked, TLSMemoryBIOProtocol):
    """TLS on an admitted connection. One on a forbidden local address is reset before a byte is
    read, one that does not speak TLS is told so.
    """

    _admitted = True
    _sniffed = False

    @property
    def established(self) -> bool:
        """The TLS handshake is over."""
        return bool(self._handshakeDone)

    @property
    def answering(self) -> bool:
        return bool(self.wrappedProtocol.answering)

    def makeConnection(self, transport: Connection) -> None:
        self._admitted = self.factory.admits(transport.getHost().host)
        if self._admitted:
            super().makeConnection(transport)
        else:
            self.transport = transport
            transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        if not self._sniffed and self._admitted:
            self._sniffed = True
            if data[0] != _TLS_HANDSHAKE:
                self._admitted = False
                self.transport.write(_PLAIN_RESPONSE)
                self.transport.loseConnection()
        if self._admitted:
            super().dataReceived(data)

    def connectionLost(self, reason: Failure) -> None:
        if hasattr(self, "_tlsConnection"):
            super().connectionLost(reason)

    def loseConnection(self) -> None:
        self.uncork()
        if self.connected:
            self.transport.linger()  # TLS waits for the peer's close_notify, which may never come
        super().loseConnection()

    def waiting(self) -> int:
        """Bytes accepted and not yet handed to the kernel, in every layer that keeps some (TLS's
        own few bytes for each record aside).
        """
        return (
            sum(map(len, self._held or ()))
            + sum(map(len, self._appSendBuffer))
            + int(self.transport.waiting())
        )


@implementer(IOpenSSLServerConnectionCreator)
class Contexts:
    """The TLS context of the newest certificate: what is connected keeps its own, what connects
    gets the newest (D19).
    """

    def __init__(self, certificates: Certificates) -> None:
        self.use(certificates)

    def use(self, certificates: Certificates) -> None:
        """Serve this certificate from now on. Raises ConfError, the old one staying in use, when
        OpenSSL will not have it.
        """
        try:
            chain = [
                crypto.X509.from_cryptography(one)
                for one in x509.load_pem_x509_certificates(certificates.chain.read_bytes())
            ]
            key = load_pem_private_key(certificates.key.read_bytes(), None)
            context = CertificateOptions(
                privateKey=crypto.PKey.from_cryptography_key(key),  # type: ignore[arg-type]
                certificate=chain[0],
                extraCertChain=chain[1:],
                raiseMinimumTo=TLSVersion.TLSv1_2,
                acceptableProtocols=[b"http/1.1"],
            ).getContext()
        except (OSError, ValueError, TypeError, ssl.SSLError, SSL.Error) as error:
            raise ConfError(
                f"BRIDGE_TLS_CERT: {certificates.chain} and its key cannot be used ({error})"
            ) from None
        self.certificates = certificates
        self._context = context

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        return SSL.Connection(self._context, None)


class TLSFactory(TLSMemoryBIOFactory):
    """``admits``: whether a connection to this local address is let in (D44)."""

    protocol = TLSConnection

    def __init__(self, contexts: Contexts, wrapped: Any, admits: Callable[[str], bool]) -> None:
        super().__init__(contexts, False, wrapped, reactor)
        self.admits = admits


def adopt(listening: Any, factory: Any, strangers: Strangers) -> Any:
    """Accept on a bound socket with our connections; returns twisted's port. The caller's socket is
    closed: twisted has its own of it.
    """
    listening.setblocking(False)
    listening.listen(1024)
    port = tcp.Port._fromListeningDescriptor(reactor, listening.fileno(), listening.family, factory)
    port.transport = Connection
    port.strangers = strangers
    port.startListening()
    listening.close()
    return port
