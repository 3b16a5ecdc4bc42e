"""The network between a phone and the bridge, which can be cut, and a stranger's site in it."""

import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.conformance.bridge import Bridge
from tests.servers import free_port

UNDER_WAY = 64  # parts of 64 KB at most that a delay holds
Pair = tuple[socket.socket, socket.socket]
Parts = queue.Queue[tuple[float, bytes]]  # each with the time at which it arrives


class Link:
    """A TCP port that leads to the bridge's or another; its address is for BRIDGE_PUBLIC_URL."""

    def __init__(self, target: int | None = None, listener: socket.socket | None = None) -> None:
        self.target = target
        self.delay = 0.0  # seconds, each way
        self.ended_by: bytes | None = None  # ends the connection that carries it next
        self.port = free_port()
        self.bridge: Bridge
        self._pairs: list[Pair] = []
        self._lost = set[Pair]()
        self._flowing = threading.Event()  # not while it is frozen
        self._flowing.set()
        self.heard = threading.Event()  # cleared: what the bridge says is lost, the other way not
        self.heard.set()
        self._up = True
        self._listener = listener or socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End all connections and refuse new ones."""
        self._up = False
        self._end()

    def freeze(self) -> None:
        """Carry nothing any more, and tell nobody: what a tunnel does to a train."""
        self._flowing.clear()

    def lose(self) -> None:
        """Carry nothing more on the connections that there are, and tell nobody; new ones work."""
        self._lost.update(self._pairs)

    def mend(self) -> None:
        self._up = True
        self._flowing.set()
        self.heard.set()

    def close(self) -> None:
        with suppress(OSError):  # wakes the thread that accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end()
        self.mend()

    def _end(self) -> None:
        pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._lead, args=(client,), daemon=True).start()

    def _lead(self, client: socket.socket) -> None:
        self._flowing.wait()
        try:
            bridge = socket.create_connection(("127.0.0.1", self.target or self.bridge.port))
        except OSError:
            client.close()
            return
        pair = client, bridge
        for end in pair:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs.append(pair)
        if not self._up:
            self._end()
            return
        ways = (client, bridge, self._flowing), (bridge, client, self._flowing, self.heard)
        carrying = [
            threading.Thread(target=self._carry, args=(pair, *way), daemon=True) for way in ways
        ]
        for one in carrying:
            one.start()
        for one in carrying:
            one.join()
        if pair not in self._lost and pair in self._pairs:
            self._pairs.remove(pair)
            for end in pair:
                end.close()

    def _carry(
        self, pair: Pair, source: socket.socket, sink: socket.socket, *gates: threading.Event
    ) -> None:
        parts = Parts(UNDER_WAY)
        arriving = threading.Thread(target=self._arrive, args=(pair, sink, parts), daemon=True)
        arriving.start()
        with suppress(OSError):
            while data := source.recv(65536):
                for gate in gates:
                    gate.wait()
                if self.ended_by and self.ended_by in data:
                    self.ended_by = None
                    break
                if pair not in self._lost:
                    parts.put((time.monotonic() + self.delay, data))
        parts.put((time.monotonic() + self.delay, b""))
        arriving.join()

    def _arrive(self, pair: Pair, sink: socket.socket, parts: Parts) -> None:
        """Hand on each part when its time has come; what is behind it is under way meanwhile."""
        ended = False
        while not ended:
            due, data = parts.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                sink.sendall(data)
            except OSError:
                ended = True
            ended = ended or not data
        if pair in self._lost:
            return  # nobody is told of the end either
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><p>reached</p>")

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


@contextmanager
def site(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A stranger's site, whose every page says "reached"; its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        if context is not None:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
