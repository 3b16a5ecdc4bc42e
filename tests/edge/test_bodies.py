"""Large bodies take turns: what is in the bridge at once has a bound, small ones never wait, and
nobody keeps the others out.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from bridge_project.kernel import limits
from tests.edge.edge import Edge, read_response, wait_for

MB = 2**20


def request(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


def send(edge: Edge, path: str, size: int, *, chunked: bool = False) -> int:
    """The size that the application saw of a body of that size."""
    connection = edge.http()
    try:
        body: Any = (b"x" * MB for _ in range(size // MB)) if chunked else b"x" * size
        connection.request(
            "POST",
            path,
            body=body,
            headers={"Transfer-Encoding": "chunked"} if chunked else {},
            encode_chunked=chunked,
        )
        return int(json.loads(connection.getresponse().read())["size"])
    finally:
        connection.close()


def holds(edge: Edge, count: int) -> bool:
    """Whether the application keeps so many whole bodies."""
    return int(edge.stats()["held"]) == count


def reads_nothing(stream: socket.socket, size: int) -> bool:
    """Whether the other side has stopped reading, as far as one sees it: the kernels' buffers are
    full before all of it is sent.
    """
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


def test_a_body_waits_for_its_turn_and_small_ones_do_not(
    start: Callable[..., Edge], pool: ThreadPoolExecutor
) -> None:
    edge = start()
    sizes: list[Future[int]] = [
        pool.submit(send, edge, "/hold", 10 * MB, chunked=chunked) for chunked in (False, True)
    ]
    wait_for(partial(holds, edge, 2))
    with edge.stream() as waiting:
        waiting.sendall(request("/echo", 10 * MB))
        assert reads_nothing(waiting, 10 * MB)
        for size in (0, 1, limits.SMALL_BODY_BYTES):
            assert send(edge, "/echo", size) == size
        others = [pool.submit(send, edge, "/echo", 10 * MB) for _ in range(3)]
        assert edge.get("/let-go")[0] == 200
        assert [one.result(180) for one in sizes] == [10 * MB] * 2
    assert [one.result(180) for one in others] == [10 * MB] * 3, (
        "the one that waited first is gone, and has left nothing behind"
    )


def test_the_clock_of_a_body_that_waits_stands(
    start: Callable[..., Edge], pool: ThreadPoolExecutor
) -> None:
    """With the deadline of a request at two seconds: what is cut is who does not send, not who may
    not.
    """
    edge = start("hasty")
    sizes = [pool.submit(send, edge, "/hold", 10 * MB) for _ in range(2)]
    wait_for(partial(holds, edge, 2))
    third = pool.submit(send, edge, "/echo", 10 * MB)
    time.sleep(3)  # longer than the deadline
    assert not third.done()
    edge.get("/let-go")
    assert [one.result(180) for one in (*sizes, third)] == [10 * MB] * 3


def test_clients_that_vanish_leave_their_place(
    start: Callable[..., Edge], pool: ThreadPoolExecutor
) -> None:
    edge = start()
    for _ in range(3):
        streams = [edge.stream() for _ in range(4)]
        for stream in streams:
            stream.sendall(request("/echo", 10 * MB) + b"x" * 1000)
        for stream in streams:
            stream.close()
    assert pool.submit(send, edge, "/echo", 10 * MB).result(180) == 10 * MB


def test_a_body_whose_client_is_gone_counts_until_it_is_dealt_with(
    start: Callable[..., Edge], pool: ThreadPoolExecutor
) -> None:
    edge = start()
    for number in (1, 2):
        with edge.stream() as stream:
            stream.sendall(request("/hold", 10 * MB) + b"x" * (10 * MB))
            wait_for(partial(holds, edge, number))
    with edge.stream() as waiting:
        waiting.sendall(request("/echo", 10 * MB))
        assert reads_nothing(waiting, 10 * MB)
    edge.get("/let-go")
    assert pool.submit(send, edge, "/echo", 10 * MB).result(180) == 10 * MB


def test_a_pipelined_body_waits_too(start: Callable[..., Edge], pool: ThreadPoolExecutor) -> None:
    edge = start()
    sizes = [pool.submit(send, edge, "/hold", 10 * MB) for _ in range(2)]
    wait_for(partial(holds, edge, 2))
    with edge.stream() as stream:
        stream.sendall(request("/echo", 3) + b"abc" + request("/echo", 10 * MB))
        assert json.loads(read_response(stream)[2]) == {"size": 3}
        assert reads_nothing(stream, 10 * MB)
        edge.get("/let-go")
        assert [one.result(180) for one in sizes] == [10 * MB] * 2


def test_a_body_that_waits_does_not_outlive_the_server(
    start: Callable[..., Edge], pool: ThreadPoolExecutor
) -> None:
    edge = start("hasty")
    for _ in range(2):
        pool.submit(send, edge, "/hold", 10 * MB)
    wait_for(partial(holds, edge, 2))
    with edge.stream() as waiting:
        waiting.sendall(request("/echo", 10 * MB))
        assert reads_nothing(waiting, 10 * MB)
        edge.terminate()
        assert edge.ended() == 0
    assert "Task was destroyed" not in edge.log and "Traceback" not in edge.log
