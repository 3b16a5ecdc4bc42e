"""What the client in docs/clients.md does by itself: it waits, comes back, keeps what was typed, and
acknowledges a warning (spec, Limits; D24, D25). It runs in this process, with a clock and a network
of the test's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session
from tests.conformance.test_documented_client import address, page
from tests.servers import PATIENCE

# what the client sleeps for besides: before a heartbeat, and between two looks at what was typed
BEAT, LOOK = 15, 0.1


class Clock:
    """`asyncio` for the client: its delays are noted and take as long as the test says."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.pong_waits: list[float] = []
        self.go_on, self.beats = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.no_pong = False

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
        return await asyncio.wait_for(what, 0 if self.no_pong else PATIENCE)


class Network:
    """`websockets` for the client: it connects while the network is up."""

    WebSocketException = websockets.WebSocketException

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.up = False
        self.socket: websockets.ClientConnection | None = None

    async def connect(self, url: str, **how: Any) -> websockets.ClientConnection:
        if not self.up:
            raise OSError("the network is down")
        self.socket = await websockets.connect(url, additional_headers=self.headers, **how)
        return self.socket

    def hang_up(self) -> None:
        self.up = False
        assert self.socket is not None
        self.socket.transport.abort()


class Shown:
    """What the client has printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.messages = capsys, list[dict[str, Any]]()

    def of(self, kind: str) -> list[dict[str, Any]]:
        self.messages += map(json.loads, self.capsys.readouterr().out.splitlines())
        return [message for message in self.messages if message["type"] == kind]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    return Shown(capsys)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Types a message with that number to the client."""
    reads, writes = os.pipe()
    # the client's thread may still be reading when the test is over: nobody closes it
    monkeypatch.setattr(sys, "stdin", os.fdopen(reads))
    with os.fdopen(writes, "w", buffering=1) as typed:

        def type_line(number: int) -> None:
            line = {"type": "message", "session_id": "s", "content": str(number), "role": "user"}
            typed.write(json.dumps(line) + "\n")

        yield type_line


@pytest.fixture
async def client(
    shared: Bridge,
    clock: Clock,
    network: Network,
    monkeypatch: pytest.MonkeyPatch,
    keyboard: Callable[[int], None],
    tmp_path: Path,
) -> AsyncIterator[Any]:
    """The page's client, paired with the shared bridge, as a module; it runs."""
    monkeypatch.chdir(tmp_path)  # where it keeps who it is
    monkeypatch.setattr(sys, "argv", ["client.py", address(shared)])
    client: Any = types.ModuleType("documented_client")
    exec(compile(page()[1], "docs/clients.md", "exec"), client.__dict__)
    client.asyncio, client.websockets = clock, network
    running = asyncio.create_task(client.main([]))
    await until(lambda: clock.delays)
    yield client
    running.cancel()
    await asyncio.wait([running], timeout=PATIENCE)
    assert running.done(), "it does not let itself be cancelled"
    # cancelled while it waits to come back, it ends in a group
    error = None if running.cancelled() else running.exception()
    assert error is None or (
        isinstance(error, BaseExceptionGroup) and error.subgroup(Exception) is None
    ), error


@pytest.mark.spec("limit.reconnect")
@pytest.mark.usefixtures("client")
async def test_it_waits_longer_each_time_until_it_was_ready(clock: Clock, network: Network) -> None:
    for number in range(1, 8):
        await until(lambda number=number: len(clock.delays) == number)  # type: ignore[misc]
        if number < 7:
            clock.go_on.release()
    assert clock.delays == [1, 2, 5, 10, 30, 30, 30]
    network.up = True
    clock.go_on.release()
    clock.beats.release()
    await until(lambda: clock.pong_waits)  # it knows that it is ready
    network.hang_up()
    await until(lambda: len(clock.delays) == 8)
    clock.go_on.release()
    await until(lambda: len(clock.delays) == 9)
    assert clock.delays[7:] == [1, 2]


@pytest.mark.spec("limit.pong_wait")
@pytest.mark.usefixtures("client")
async def test_a_server_that_is_mute_is_left(clock: Clock, network: Network, shown: Shown) -> None:
    """Ten seconds for each pong; without it the connection is dead, and it connects again."""
    network.up = True
    clock.go_on.release()
    for number in range(1, 5):
        clock.no_pong = number == 4
        clock.beats.release()
        await until(lambda number=number: len(clock.pong_waits) == number)  # type: ignore[misc]
    await until(lambda: len(clock.delays) == 2)
    assert clock.pong_waits == [10] * 4 and clock.delays == [1, 1]
    clock.go_on.release()
    await until(lambda: len(shown.of("health_status")) == 2)


@pytest.mark.spec("limit.client_queue", "offline.flush")
async def test_what_is_typed_meanwhile_is_sent_once(
    client: Any, clock: Clock, network: Network, shown: Shown, keyboard: Callable[[int], None]
) -> None:
    """Of 1,001 lines the oldest is dropped, the others are sent in order, each once, also after yet
    another connection.
    """

    def waiting() -> list[int]:
        return [int(message["payload"]["content"]) for message in client.outgoing]

    def answered() -> list[str]:
        return [error["id"] for error in shown.of("error")]  # there is no such session

    for number in range(1001):
        keyboard(number)
    await until(lambda: waiting()[-1:] == [1000])
    assert waiting() == list(range(1, 1001))
    ids = [message["id"] for message in client.outgoing]
    network.up = True
    clock.go_on.release()
    await until(lambda: len(answered()) >= 1000)
    assert not client.outgoing
    network.hang_up()
    await until(lambda: len(clock.delays) == 2)
    keyboard(1001)
    await until(lambda: waiting() == [1001])
    ids.append(client.outgoing[0]["id"])
    network.up = True
    clock.go_on.release()
    await until(lambda: len(answered()) >= 1001)
    assert answered() == ids
    keyboard(1002)
    await until(lambda: len(answered()) >= 1002)
    assert answered()[:-1] == ids and len(set(answered())) == 1002


@pytest.mark.usefixtures("client")
async def test_a_warning_is_acknowledged(
    clock: Clock, network: Network, shared: Bridge, shown: Shown
) -> None:
    """In mode direct_public (D20) the client shows the bridge's warning, and becomes ready."""
    network.up, network.headers = True, {"X-Forwarded-For": "203.0.113.7"}
    clock.go_on.release()
    await until(lambda: shown.of("acknowledgment_accepted"))
    assert shown.of("connection_ack")[0]["payload"]["connection_mode"] == "direct_public"
    status = shown.of("health_status")[0]["payload"]
    assert (status["warnings"], status["ready"]) == (["DIRECT_PUBLIC_CONNECTION"], False)
    assert shown.of("acknowledgment_accepted")[0]["payload"]["ready"] is True
    session = new_session()
    await asyncio.to_thread(shared.accept, hook("SessionStart", session))
    await until(lambda: session in [m["payload"]["session_id"] for m in shown.of("session_ready")])
    assert clock.delays == [1]
