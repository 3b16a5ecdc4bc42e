"""Ask for many large answers at once, and do not read them (docs/security.md)."""

import http.client
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

pytestmark = pytest.mark.slow

MB = 2**20
AT_ONCE = 30  # reads of one device that the limits allow in a minute: 60
# than before; it was 1,050 MB, and 1,600 MB for the file of control characters
MORE_AT_MOST = 400 * MB
KEPT_AT_MOST = 150 * MB  # afterwards; it was 960 MB
STALLED = 12  # more than are answered at once


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with QuickBridge(tmp_path_factory.mktemp("large-files")) as bridge:
        (bridge.root / "binary").write_bytes(os.urandom(7 * MB))
        (bridge.root / "text").write_bytes(b"a line of text\n" * (9 * MB // 16))
        yield bridge


def peak(bridge: Bridge) -> int:
    """The most that the server has ever had in memory."""
    lines = Path(f"/proc/{bridge.running.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def read(bridge: Bridge, name: str) -> tuple[int, int]:
    """Status and size of GET /files/content, without keeping the body."""
    with closing(bridge.https().open()) as connection:
        ask(bridge, connection, name)
        answer, size = connection.getresponse(), 0
        while piece := answer.read(MB):
            size += len(piece)
        return answer.status, size


def ask(bridge: Bridge, connection: http.client.HTTPConnection, name: str) -> None:
    authorization = {"Authorization": f"Bearer {bridge.admin_token}"}
    connection.request("GET", f"/api/v1/files/content?path={name}", headers=authorization)


@contextmanager
def bounded_memory(bridge: Bridge) -> Iterator[None]:
    """The server's memory never rises by more than MORE_AT_MOST, now or earlier."""
    before = bridge.memory()
    yield
    assert peak(bridge) - before < MORE_AT_MOST, f"{(peak(bridge) - before) // MB} MB more"


@pytest.mark.parametrize(("name", "size"), [("binary", 7 * MB * 4 // 3), ("text", 8 * MB)])
def test_many_large_answers_at_once(bridge: Bridge, name: str, size: int) -> None:
    read(bridge, name)
    before = bridge.memory()
    with bounded_memory(bridge), ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: read(bridge, name), range(AT_ONCE)))
    assert {status for status, _ in answers} == {200} and min(got for _, got in answers) >= size
    wait_until(lambda: bridge.memory() - before < KEPT_AT_MOST, "the memory is given back")


@pytest.mark.parametrize(
    "data",
    [os.urandom(8 * MB), b"\x01" * (2 * MB), b'"' * (6 * MB), b"\n" * (6 * MB)],
    ids=["base64", "control", "quotes", "lines"],
)
def test_what_is_sent_counts(bridge: Bridge, data: bytes) -> None:
    """Each of these files is under 10 MB, and its JSON is over it."""
    (bridge.root / "grows").write_bytes(data)
    with bounded_memory(bridge), ThreadPoolExecutor(8) as pool:
        paths = ["/api/v1/files/content?path=grows"] * 16
        for answer in pool.map(partial(bridge.get, token=bridge.admin_token), paths):
            assert_error(answer, 413, "FILE_TOO_LARGE")


def test_clients_that_do_not_read(bridge: Bridge) -> None:
    """What waits for them is bounded; when they go, their places are free."""
    with bounded_memory(bridge):
        connections = [bridge.https().open() for _ in range(STALLED)]
        for connection in connections:
            ask(bridge, connection, "text")
        first = connections[0].getresponse()  # its header: the body is being sent
        assert first.status == 200 and bridge.get("/api/v1/health", bridge.hook_token).status == 200
        for connection in connections:
            connection.close()
    assert read(bridge, "text")[0] == 200


def test_health_is_not_behind_large_trees(bridge: Bridge) -> None:
    """16 clients ask for a tree of 10,000 files; /health is answered before all of them are."""
    for directory in range(100):
        place = bridge.root / "tree" / f"{directory:03}"
        place.mkdir(parents=True)
        for number in range(100):
            (place / f"{number:02}").touch()
    done: list[int] = []

    def tree(_: int) -> None:
        https = bridge.https()
        path = "/api/v1/files/tree?path=tree&depth=20"
        done.append(https.get(path, token=bridge.admin_token).status)

    with bounded_memory(bridge), ThreadPoolExecutor(16) as pool:
        asked = pool.map(tree, range(16))
        wait_until(lambda: done, "the first tree")
        https = bridge.https()
        assert https.get("/api/v1/health", token=bridge.hook_token).status == 200
        assert len(done) < 16, "behind the trees"
        list(asked)
    assert set(done) == {200}
