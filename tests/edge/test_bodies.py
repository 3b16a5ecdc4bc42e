"""Large bodies take turns: what is in the bridge at once has a bound, small ones never wait, and nobody keeps the others out."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from bridge_project import limits
from bridge_project.edge.bodies import Bodies, Place
from tests.edge.edge import Edge, read_response, wait_for

MB = 2**20

# -- the turns themselves ------------------------------------------------------------------------------------------------------


class Turns:
    """Bodies under a clock that stands until it is moved; ``entered`` and ``cut`` name who was called, in order."""

    def __init__(self, most: int) -> None:
        self.now = 1000.0
        self.bodies = Bodies(most, clock=lambda: self.now)
        self.entered: list[str] = []
        self.cut: list[str] = []

    def place(self, name: str, size: int, address: str = "10.0.0.1") -> Place:
        return Place(address, size, lambda: self.entered.append(name), lambda: self.cut.append(name))


def test_what_fits_is_read_and_the_rest_waits() -> None:
    turns = Turns(100)
    a, b, c, d = (turns.place(name, size) for name, size in (("a", 60), ("b", 40), ("c", 50), ("d", 10)))
    assert [turns.bodies.ask(one) for one in (a, b, c, d)] == [True, True, False, False]
    turns.bodies.leave(b)
    assert turns.entered == []  # d would fit, but c is before it and would be overtaken for ever
    turns.bodies.leave(a)
    assert turns.entered == ["c", "d"]


def test_one_that_is_larger_than_all_the_room_is_alone() -> None:
    turns = Turns(100)
    small, large, next_ = turns.place("small", 10), turns.place("large", 1000), turns.place("next", 10)
    assert [turns.bodies.ask(one) for one in (small, large, next_)] == [True, False, False]
    turns.bodies.leave(small)
    assert turns.entered == ["large"]
    turns.bodies.leave(large)
    assert turns.entered == ["large", "next"]


def test_who_leaves_while_waiting_is_forgotten() -> None:
    turns = Turns(100)
    a, gone, c = (turns.place(name, 100) for name in ("a", "gone", "c"))
    assert [turns.bodies.ask(one) for one in (a, gone, c)] == [True, False, False]
    for one in (gone, gone, a, a):
        turns.bodies.leave(one)
    assert turns.entered == ["c"]


def test_a_body_of_unknown_length_counts_what_it_had_once_it_is_whole() -> None:
    turns = Turns(100)
    chunked, waiting = turns.place("chunked", 100), turns.place("waiting", 60)
    assert [turns.bodies.ask(one) for one in (chunked, waiting)] == [True, False]
    chunked.received = 40
    turns.bodies.arrived(chunked)
    assert turns.entered == ["waiting"]


def test_an_address_with_many_connections_waits_for_itself() -> None:
    turns = Turns(100)
    many = [turns.place(f"many{n}", 50, "10.0.0.1") for n in range(10)]
    assert [turns.bodies.ask(one) for one in many] == [True, True] + [False] * 8
    assert not turns.bodies.ask(turns.place("other", 50, "10.0.0.2"))
    turns.bodies.leave(many[0])
    assert turns.entered == ["other"]
    turns.bodies.leave(many[1])
    assert turns.entered == ["other", "many2"]


@pytest.mark.parametrize(("sent", "after", "late"), [(0, 9, False), (0, 10, True), (9, 10, True), (11, 10, False), (11, 20, True), (60, 59, False)])
def test_a_body_is_late_when_it_would_not_be_whole_in_time(sent: int, after: int, late: bool) -> None:
    """At its pace so far, that is, and only while it keeps somebody waiting."""
    assert (limits.BODY_PATIENCE_SECONDS, limits.REQUEST_SECONDS) == (10, 60)
    turns = Turns(60)
    slow = turns.place("slow", 60)
    turns.bodies.ask(slow)
    slow.received = sent
    turns.now += after
    turns.bodies.hurry()
    assert turns.cut == []  # nobody waits
    assert turns.bodies.ask(turns.place("next", 60)) is late
    assert turns.cut == (["slow"] if late else [])


def test_the_time_that_the_bridge_takes_is_nobodys_lateness() -> None:
    turns = Turns(60)
    whole = turns.place("whole", 60)
    turns.bodies.ask(whole)
    whole.received = 60
    turns.bodies.arrived(whole)
    turns.bodies.ask(turns.place("next", 60))
    turns.now += 1000
    turns.bodies.hurry()
    assert turns.cut == turns.entered == []


def test_patience_begins_with_the_turn() -> None:
    turns = Turns(60)
    first, second = turns.place("first", 60), turns.place("second", 60)
    turns.bodies.ask(first)
    turns.bodies.ask(second)
    turns.now += 1000
    turns.bodies.hurry()
    assert (turns.cut, turns.entered) == (["first"], ["second"])
    assert not turns.bodies.ask(turns.place("third", 60)) and turns.cut == ["first"]


# -- on the wire ---------------------------------------------------------------------------------------------------------------


def request(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


def send(edge: Edge, path: str, size: int, *, chunked: bool = False) -> int:
    """The size that the application saw of a body of that size."""
    connection = edge.http()
    try:
        body: Any = (b"x" * MB for _ in range(size // MB)) if chunked else b"x" * size
        connection.request("POST", path, body=body, headers={"Transfer-Encoding": "chunked"} if chunked else {}, encode_chunked=chunked)
        return int(json.loads(connection.getresponse().read())["size"])
    finally:
        connection.close()


def holds(edge: Edge, count: int) -> bool:
    """Whether the application keeps so many whole bodies."""
    return int(edge.stats()["held"]) == count


def reads_nothing(stream: socket.socket, size: int) -> bool:
    """Whether the other side has stopped reading, as far as one sees it: the kernels' buffers are full before all of it is sent."""
    stream.settimeout(1)
    try:
        stream.sendall(b"x" * size)
    except TimeoutError:
        return True
    return False


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(10) as threads:
        yield threads


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_waits_for_its_turn_and_small_ones_do_not(start: Callable[..., Edge], pool: ThreadPoolExecutor, chunked: bool) -> None:
    edge = start()
    sizes: list[Future[int]] = [pool.submit(send, edge, "/hold", 10 * MB, chunked=chunked) for _ in range(2)]
    wait_for(partial(holds, edge, 2))
    with edge.stream() as waiting:
        waiting.sendall(request("/echo", 10 * MB))
        assert reads_nothing(waiting, 10 * MB)
        for size in (0, 1, limits.SMALL_BODY_BYTES):
            assert send(edge, "/echo", size) == size
        others = [pool.submit(send, edge, "/echo", 10 * MB, chunked=chunked) for _ in range(3)]
        assert edge.get("/let-go")[0] == 200
        assert [one.result(20) for one in sizes] == [10 * MB] * 2
    assert [one.result(20) for one in others] == [10 * MB] * 3, "the one that waited first is gone, and has left nothing behind"


def test_many_large_bodies_cost_the_memory_of_a_few(edge: Edge, pool: ThreadPoolExecutor) -> None:
    send(edge, "/echo", 10 * MB)
    before, most, over = edge.memory, 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, edge.memory)

    watching = pool.submit(watch)
    with ThreadPoolExecutor(14) as many:
        assert list(many.map(lambda _: send(edge, "/slow", 10 * MB), range(14))) == [10 * MB] * 14
    over.set()
    watching.result(5)
    assert 0 < most - before < 80 * MB


def test_who_drips_does_not_keep_the_others_out(start: Callable[..., Edge], pool: ThreadPoolExecutor) -> None:
    """Two bodies that never end hold all the room; with patience at one second, the third has it after about one."""
    edge = start("impatient")
    with edge.stream() as one, edge.stream() as two:
        for drip in (one, two):
            drip.sendall(request("/echo", 10 * MB) + b"x")
        third = pool.submit(send, edge, "/echo", 10 * MB)
        while not third.done():
            for drip in (one, two):
                with suppress(OSError):
                    drip.sendall(b"x")
            time.sleep(0.05)
        assert third.result() == 10 * MB
        with pytest.raises(OSError):
            assert read_response(one)[0] == 200 and read_response(two)[0] == 200
    assert "came too slowly while others waited" in edge.log


def test_a_slow_body_that_is_in_nobodys_way_is_left_alone(start: Callable[..., Edge]) -> None:
    edge = start("impatient")
    with edge.stream() as slow:
        slow.sendall(request("/echo", 100_000) + b"x")
        began = time.monotonic()
        while time.monotonic() - began < 2.5:
            assert send(edge, "/echo", 1000) == 1000
            slow.sendall(b"x")
            time.sleep(0.1)
        slow.sendall(b"x" * 100_000)
        assert json.loads(read_response(slow)[2]) == {"size": 100_000}


def test_the_clock_of_a_body_that_waits_stands(start: Callable[..., Edge], pool: ThreadPoolExecutor) -> None:
    """With the deadline of a request at two seconds: what is cut is who does not send, not who may not."""
    edge = start("hasty")
    sizes = [pool.submit(send, edge, "/hold", 10 * MB) for _ in range(2)]
    wait_for(partial(holds, edge, 2))
    third = pool.submit(send, edge, "/echo", 10 * MB)
    time.sleep(4)
    assert not third.done()
    edge.get("/let-go")
    assert [one.result(20) for one in (*sizes, third)] == [10 * MB] * 3


def test_clients_that_vanish_leave_their_place(start: Callable[..., Edge], pool: ThreadPoolExecutor) -> None:
    edge = start()
    for _ in range(3):
        streams = [edge.stream() for _ in range(4)]
        for stream in streams:
            stream.sendall(request("/echo", 10 * MB) + b"x" * 1000)
        for stream in streams:
            stream.close()
    assert pool.submit(send, edge, "/echo", 10 * MB).result(10) == 10 * MB


def test_a_body_whose_client_is_gone_counts_until_it_is_dealt_with(start: Callable[..., Edge], pool: ThreadPoolExecutor) -> None:
    edge = start()
    for number in (1, 2):
        with edge.stream() as stream:
            stream.sendall(request("/hold", 10 * MB) + b"x" * (10 * MB))
            wait_for(partial(holds, edge, number))
    with edge.stream() as waiting:
        waiting.sendall(request("/echo", 10 * MB))
        assert reads_nothing(waiting, 10 * MB)
    edge.get("/let-go")
    assert pool.submit(send, edge, "/echo", 10 * MB).result(10) == 10 * MB


def test_a_refused_body_takes_no_place(start: Callable[..., Edge]) -> None:
    edge = start()
    for _ in range(3):
        with edge.stream() as stream:
            stream.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b"x" * MB + b"\r\n") * 11)
            assert read_response(stream)[0] == 413
            assert send(edge, "/echo", 10 * MB) == 10 * MB


def test_a_pipelined_body_waits_too(start: Callable[..., Edge], pool: ThreadPoolExecutor) -> None:
    edge = start()
    sizes = [pool.submit(send, edge, "/hold", 10 * MB) for _ in range(2)]
    wait_for(partial(holds, edge, 2))
    with edge.stream() as stream:
        stream.sendall(request("/echo", 3) + b"abc" + request("/echo", 10 * MB))
        assert json.loads(read_response(stream)[2]) == {"size": 3}
        assert reads_nothing(stream, 10 * MB)
        edge.get("/let-go")
        assert [one.result(20) for one in sizes] == [10 * MB] * 2
