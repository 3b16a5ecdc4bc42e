"""What the client in docs/clients.md does by itself: it waits, comes back, keeps what was typed,
and acknowledges a warning (SPEC Limits; D24, D25).

It runs in this process with a clock of the test's, against a server that does what the test says,
or against none.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import ssl
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import websockets
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from websockets.asyncio.server import ServerConnection

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_id, new_session, now
from tests.conformance.test_documented_client import link_to, page
from tests.servers import PATIENCE, free_port

# what the client sleeps for besides: before a heartbeat, and between two looks at what was typed
BEAT, LOOK = 15, 0.1
NO_PONG = 2.0  # seconds, in place of ten


class Clock:
    """`asyncio` for the client: delays before it connects again are noted and take as long as the
    test says.
    """

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.pong_waits: list[float] = []
        self.go_on = asyncio.Semaphore(0)
        self.beats = asyncio.Semaphore(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float, result: Any = None) -> Any:
        if seconds == LOOK:
            await asyncio.sleep(0.01)
        elif seconds == BEAT:
            await self.beats.acquire()
        else:
            self.delays.append(seconds)
            await self.go_on.acquire()
        return result

    async def wait_for(self, what: Awaitable[Any], seconds: float) -> Any:
        self.pong_waits.append(seconds)
        return await asyncio.wait_for(what, NO_PONG)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)


class Server:
    """Takes the client through the handshake, keeps what it says, and answers `pongs` heartbeats on
    each connection.
    """

    def __init__(self, directory: Path) -> None:
        issued = trustme.CA().issue_cert("127.0.0.1")
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued.configure_cert(self.tls)
        certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        self.pin = hashlib.sha256(
            certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ).hexdigest()
        self.port = free_port()
        self.pongs = 0
        self.heard: list[list[dict[str, Any]]] = []  # of each connection, from its first message on
        self.here: list[ServerConnection] = []

    @property
    def address(self) -> str:
        return link_to(f"wss://127.0.0.1:{self.port}/api/v1/ws", "bridge_device_x", self.pin)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with websockets.serve(self._serve, "127.0.0.1", self.port, ssl=self.tls):
            yield
            self.hang_up()

    def hang_up(self) -> None:
        while self.here:
            self.here.pop().transport.abort()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for heard in self.heard for message in heard if message["type"] == kind]

    async def _serve(self, socket: ServerConnection) -> None:
        heard: list[dict[str, Any]] = []
        self.heard.append(heard)
        self.here.append(socket)
        answered = 0
        async for text in socket:
            message = json.loads(text)
            heard.append(message)
            if message["type"] == "auth":
                await self._say(socket, "connection_ack", active_sessions=[])
            elif message["type"] == "health_check":
                await self._say(
                    socket, "health_status", ready=True, requires_acknowledgment=False, warnings=[]
                )
            elif message["type"] == "heartbeat_ping" and answered < self.pongs:
                answered += 1
                await socket.send(json.dumps({"type": "heartbeat_pong", "timestamp": now()}))

    async def _say(self, socket: ServerConnection, kind: str, **payload: Any) -> None:
        await socket.send(
            json.dumps({"type": kind, "id": new_id(), "timestamp": now(), "payload": payload})
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(tmp_path_factory.mktemp("server"))


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """What types a line to the client."""
    reads, writes = os.pipe()
    stdin = os.fdopen(reads)
    monkeypatch.setattr(sys, "stdin", stdin)
    with os.fdopen(writes, "w", buffering=1) as typed:
        yield lambda line: (typed.write(line + "\n"), None)[1]
    # the client's thread has read to the end and closes nothing: so do not we, it may still be at
    # it


Start = Callable[[str], Any]


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def start(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    keyboard: Callable[[str], None],
    tmp_path: Path,
) -> AsyncIterator[Start]:
    """Runs the page's client with that pairing; its module."""
    monkeypatch.chdir(tmp_path)  # where it keeps who it is
    running: list[asyncio.Task[None]] = []

    def run(address: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["client.py", address])
        client: Any = types.ModuleType("documented_client")
        exec(compile(page()[1], "docs/clients.md", "exec"), client.__dict__)
        client.asyncio = clock
        running.append(asyncio.create_task(client.main([])))
        return client

    yield run
    for task in running:
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.done(), "it does not let itself be cancelled"
        # cancelled while it waits to come back, it ends in a group
        error = None if task.cancelled() else task.exception()
        assert error is None or (
            isinstance(error, BaseExceptionGroup) and error.subgroup(Exception) is None
        ), error


@pytest.mark.spec("limit.reconnect")
async def test_it_waits_longer_each_time_until_it_was_ready(
    start: Start, clock: Clock, server: Server
) -> None:
    """1, 2, 5, 10 and then every 30 seconds; from the start again after a connection that became
    ready.
    """
    start(server.address)
    for number in range(1, 8):
        await until(lambda number=number: len(clock.delays) == number)  # type: ignore[misc]
        if number < 7:
            clock.go_on.release()
    assert clock.delays == [1, 2, 5, 10, 30, 30, 30]
    server.heard.clear()
    async with server.running():
        clock.go_on.release()
        await until(lambda: server.of("health_check"))
        clock.beats.release()
        await until(lambda: server.of("heartbeat_ping"))  # it knows that it is ready
        server.hang_up()
        await until(lambda: len(clock.delays) == 8)
    clock.go_on.release()
    await until(lambda: len(clock.delays) == 9)
    assert clock.delays[7:] == [1, 2]


@pytest.mark.spec("limit.pong_wait")
async def test_a_server_that_is_mute_is_left(start: Start, clock: Clock, server: Server) -> None:
    """D25: a heartbeat every 15 seconds, ten seconds for the pong; without it the connection is
    dead, and it connects again.
    """
    server.heard.clear()
    server.pongs = 3
    async with server.running():
        start(server.address)
        for number in range(1, 5):
            clock.beats.release()
            await until(lambda number=number: len(server.of("heartbeat_ping")) == number)  # type: ignore[misc]
            assert clock.delays == []
        await until(lambda: clock.delays)
        assert clock.delays == [1] and clock.pong_waits == [10] * 4
        assert all(set(ping) == {"type", "timestamp"} for ping in server.of("heartbeat_ping"))
        clock.go_on.release()
        await until(lambda: len(server.heard) == 2 and server.of("health_check")[1:])
        server.pongs = 0


@pytest.mark.spec("limit.client_queue", "offline.flush")
async def test_what_is_typed_meanwhile_is_sent_once(
    start: Start, clock: Clock, server: Server, keyboard: Callable[[str], None]
) -> None:
    """1,001 lines while there is no connection: the oldest is dropped, the others are sent in
    order, each once, also after yet another connection.
    """

    def type_line(number: int) -> None:
        keyboard(
            json.dumps(
                {"type": "message", "session_id": "s", "content": str(number), "role": "user"}
            )
        )

    def sent() -> list[int]:
        return [int(message["payload"]["content"]) for message in server.of("message")]

    client = start(server.address)
    await until(lambda: clock.delays)
    server.heard.clear()
    for number in range(1001):
        type_line(number)
    await until(lambda: client.outgoing and client.outgoing[-1]["payload"]["content"] == "1000")
    assert len(client.outgoing) == 1000
    async with server.running():
        clock.go_on.release()
        await until(lambda: len(sent()) >= 1000)
        assert not client.outgoing
        server.hang_up()
        await until(lambda: len(clock.delays) == 2)
        type_line(1001)
        await until(lambda: client.outgoing)
        clock.go_on.release()
        await until(lambda: sent()[-1] == 1001)
        type_line(1002)
        await until(lambda: sent()[-1] == 1002)
        assert sent() == list(range(1, 1003))
        assert len({message["id"] for message in server.of("message")}) == 1002


async def test_a_warning_is_acknowledged(
    start: Start, clock: Clock, shared: Bridge, capsys: pytest.CaptureFixture[str]
) -> None:
    """D20, D24: reached in mode direct_public, the bridge wants its warning acknowledged before it
    is ready; the client shows it, and becomes ready.
    """
    code = shared.pairing()
    client = start(link_to(code.url, code.token, code.pin))
    client.websockets = types.SimpleNamespace(
        connect=functools.partial(
            websockets.connect, additional_headers={"X-Forwarded-For": "203.0.113.7"}
        ),
        WebSocketException=websockets.WebSocketException,
    )
    shown: list[dict[str, Any]] = []

    def kinds() -> list[str]:
        shown.extend(json.loads(line) for line in capsys.readouterr().out.splitlines())
        return [message["type"] for message in shown]

    await until(lambda: "acknowledgment_accepted" in kinds())
    of = {message["type"]: message["payload"] for message in shown}
    assert of["connection_ack"]["connection_mode"] == "direct_public"
    assert (
        of["health_status"]["warnings"] == ["DIRECT_PUBLIC_CONNECTION"]
        and of["health_status"]["ready"] is False
    )
    assert of["acknowledgment_accepted"]["ready"] is True
    session = new_session()
    await asyncio.to_thread(shared.accept, hook("SessionStart", session))
    await until(
        lambda: (
            kinds()
            and [
                message
                for message in shown
                if message["type"] == "session_ready"
                and message["payload"]["session_id"] == session
            ]
        )
    )
    assert clock.delays == []
