"""WebSockets at the edge: refusals with a status, limits, closes with a code, back-pressure (D9,
D19, D25, D30).
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from bridge_project.kernel import limits
from tests.conformance.https import assert_error
from tests.conformance.raw import CLOSE, PING, RawSocket
from tests.edge.edge import UPGRADE, Edge, wait_for

MB = 2**20


def closed(websocket: Any, timeout: float = 10) -> tuple[int, str]:
    """The code and reason with which the server closes; messages before it are skipped."""
    with pytest.raises(ConnectionClosed) as raised:
        while True:
            websocket.recv(timeout)
    frame = raised.value.rcvd
    assert frame is not None, "the connection ended without a close frame"
    return frame.code, frame.reason


@contextmanager
def upgraded(
    edge: Edge, extensions: str | None = None, *, plain: bool = False, path: str = "/ws"
) -> Iterator[RawSocket]:
    """A socket of a client without manners."""
    port = edge.plain_port if plain else edge.port
    with closing(RawSocket(port, plain=plain, timeout=180)) as raw:
        headers = {
            "X-Forwarded-Proto": "https" if plain else None,
            "Sec-WebSocket-Extensions": extensions,
        }
        answer = raw.upgrade(path=path, headers=headers)
        assert answer.status == 101
        if extensions is not None:
            spoken = "permessage-deflate; client_no_context_takeover"
            assert answer.headers["sec-websocket-extensions"] == spoken
        yield raw


def close_code(raw: RawSocket) -> int:
    """The code of the close frame, which comes next."""
    opcode, data = raw.read_frame()
    assert opcode == CLOSE
    return int.from_bytes(data[:2], "big")


# -- scope and refusals ----------------------------------------------------------------------------


def test_scope(edge: Edge) -> None:
    with edge.websocket("/ws?x=1") as websocket:
        websocket.send("scope")
        told = json.loads(websocket.recv(10))
        assert websocket.response is not None
        assert websocket.response.headers["X-Request-ID"] == "abc"
        extension = websocket.response.headers["Sec-WebSocket-Extensions"]
        assert extension.startswith("permessage-deflate; ")
    assert (told["scheme"], told["secure"], told["mode"], told["path"], told["query"]) == (
        "wss",
        True,
        "local_only",
        "/ws",
        "x=1",
    )


def test_a_refused_upgrade_has_the_status_headers_and_body_it_was_given(edge: Edge) -> None:
    with pytest.raises(InvalidStatus) as raised:
        edge.websocket("/denied")
    response = raised.value.response
    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert json.loads(response.body) == {"code": "AUTH_INVALID_TOKEN"}


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [("/closed", 403, "AUTH_INSUFFICIENT_SCOPE"), ("/raise", 500, "INTERNAL_ERROR")],
)
def test_every_refused_upgrade_has_the_six_fields(
    edge: Edge, path: str, status: int, code: str
) -> None:
    with pytest.raises(InvalidStatus) as raised:
        edge.websocket(path, headers={"X-Request-ID": "mine-2"})
    body = json.loads(raised.value.response.body)
    assert raised.value.response.status_code == status
    assert body["code"] == code
    assert body["request_id"] == "mine-2"
    assert len(body) == 6


@pytest.mark.parametrize(
    "changed",
    [
        {"Sec-WebSocket-Key": None},
        {"Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Version": "7"},
        {"Sec-WebSocket-Version": "x"},
        {"Connection": "close"},
        {"Host": None},
        {"Sec-WebSocket-Protocol": "a, a"},
    ],
    ids=range(7),
)
def test_a_malformed_upgrade_gets_400(edge: Edge, changed: dict[str, str | None]) -> None:
    with closing(RawSocket(edge.port)) as raw:
        assert_error(raw.upgrade(headers=changed), 400, "VALIDATION_ERROR")


def test_without_upgrade_it_is_http(edge: Edge) -> None:
    assert edge.get("/api/v1/ws") == (200, {"size": 0})
    assert edge.get("/api/v1/ws", {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}) == (
        200,
        {"size": 0},
    )


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [False, True])
def test_10_mb_are_taken_and_more_closes_1009(edge: Edge, compress: bool) -> None:
    with edge.websocket(compress=compress) as websocket:
        websocket.send("x" * (10 * MB))
        assert websocket.recv(10) == "x" * 100
        before = edge.memory
        websocket.send("x" * (11 * MB))
        assert closed(websocket)[0] == 1009
    assert edge.memory - before < 30 * MB


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x02hi", 1002),  # not masked
        (b"\x83\x80\x00\x00\x00\x00", 1002),  # a reserved opcode
        (b"\xf1\x80\x00\x00\x00\x00", 1002),  # reserved bits
        (b"\x80\x80\x00\x00\x00\x00", 1002),  # a continuation of nothing
        (b"\x89\xfe\x00\x80\x00\x00\x00\x00" + b"x" * 128, 1002),  # a long ping
        (b"\x09\x81\x00\x00\x00\x00x", 1002),  # a ping in parts
        (b"\x88\x81\x00\x00\x00\x00\x03", 1002),  # a close of one byte
        (b"\x81\x81\x00\x00\x00\x00\xff", 1007),  # no UTF-8
    ],
)
def test_frames_that_break_the_protocol(edge: Edge, frame: bytes, code: int) -> None:
    with upgraded(edge) as raw:
        raw.socket.sendall(frame + b"\x00" * 1000)
        assert close_code(raw) == code
    assert edge.get("/scope")[0] == 200


def test_a_flood_that_the_application_does_not_take_is_not_read(edge: Edge) -> None:
    """The application sleeps; what it has not taken stays in the kernel and at the client."""
    before = edge.memory
    with edge.websocket(compress=False) as websocket:
        websocket.send("sleep")
        for _ in range(30):
            websocket.send("x" * (2 * MB))
        assert edge.memory - before < 60 * MB
        websocket.send("done")
        while websocket.recv(10) != "done":
            pass


# -- compression (D58) -----------------------------------------------------------------------------


DEFLATE, COMPRESSED = "permessage-deflate", 4  # the offer, and the bit of a frame


@pytest.mark.parametrize(
    ("path", "limit"), [("/ws", 10 * MB), ("/stranger", limits.EARLY_BYTES)], ids=["known", "not"]
)
def test_a_bomb_is_not_inflated(edge: Edge, path: str, limit: int) -> None:
    deflate = zlib.compressobj(wbits=-15)
    bomb = b"".join(deflate.compress(b"x" * MB) for _ in range(60))
    bomb = bomb[: limits.EARLY_BYTES // 2] if path == "/stranger" else bomb + deflate.flush()
    before = edge.memory
    with upgraded(edge, DEFLATE, path=path) as raw:
        raw.frame(bomb, reserved=COMPRESSED)
        opcode, data = raw.read_frame()
        assert (opcode, data[:2]) == (CLOSE, (1009).to_bytes(2, "big"))
        assert str(limit) in data[2:].decode()
    assert edge.memory - before < 30 * MB


def test_bombs_that_each_fit_are_taken_one_by_one(edge: Edge) -> None:
    """What the application has not taken is not inflated either."""
    deflate = zlib.compressobj(wbits=-15)
    bomb = deflate.compress(b"x" * 10 * MB) + deflate.flush(zlib.Z_SYNC_FLUSH)
    before = edge.memory
    with edge.websocket() as other, upgraded(edge, DEFLATE) as raw:
        raw.frame(b"sleep")
        for _ in range(5):
            raw.frame(bomb[:-4], reserved=COMPRESSED)
        other.send("hello")
        assert other.recv() == "hello"
        assert edge.memory - before < 40 * MB
        for _ in range(5):
            raw.read_frame()


def test_what_is_no_deflate_closes_1007(edge: Edge) -> None:
    with upgraded(edge, DEFLATE) as raw:
        raw.frame(b"\xff" * 100, reserved=COMPRESSED)
        assert close_code(raw) == 1007


@pytest.mark.parametrize(
    "offer",
    [
        {},
        {"server_no_context_takeover": True},
        {"server_max_window_bits": 9, "client_max_window_bits": 9},
        {"client_no_context_takeover": True, "client_max_window_bits": True},
    ],
    ids=range(4),
)
def test_any_offer_is_spoken(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, offer: dict[str, Any]
) -> None:
    factory = partial(ClientPerMessageDeflateFactory, **offer)
    monkeypatch.setattr("tests.websocket.ClientPerMessageDeflateFactory", factory)
    with edge.websocket() as websocket:
        for _ in range(3):
            websocket.send("scope")
            assert json.loads(websocket.recv(10))["path"] == "/ws"
            websocket.send("é" * 100)
            assert websocket.recv(10) == "é" * 100


def test_a_quiet_socket_forgets_and_its_client_does_not_notice(start: Callable[..., Edge]) -> None:
    """What repeats is short, until the bridge has forgotten what it repeats."""
    inflate, sizes = zlib.decompressobj(wbits=-15), []
    with upgraded(start("hasty"), DEFLATE) as raw:

        def ask() -> int:
            raw.frame(b"scope")
            opcode, payload = raw.read_frame()
            while opcode == PING:
                opcode, payload = raw.read_frame()
            assert json.loads(inflate.decompress(payload + b"\0\0\xff\xff"))["path"] == "/ws"
            sizes.append(len(payload))
            return len(payload)

        assert ask() > 2 * ask()
        wait_for(lambda: ask() == sizes[0])


# -- closing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1000, 4429])
def test_any_code_and_its_reason(edge: Edge, code: int) -> None:
    with edge.websocket() as websocket:
        websocket.send(f"close {code}")
        assert closed(websocket) == (code, "as asked")
    wait_for(lambda: edge.stats()["disconnects"][-1] == code)


@pytest.mark.parametrize("how", ["raise", "return"])
def test_an_application_that_ends_in_the_middle(edge: Edge, how: str) -> None:
    with edge.websocket() as websocket:
        websocket.send(how)
        assert closed(websocket)[0] == 1011


def test_the_application_hears_of_every_end(edge: Edge) -> None:
    heard = len(edge.stats()["disconnects"])
    with edge.websocket() as websocket:
        websocket.close(4000)
    wait_for(lambda: edge.stats()["disconnects"][heard:] == [4000])
    with upgraded(edge):
        pass
    wait_for(lambda: edge.stats()["disconnects"][heard:] == [4000, 1006])
    with edge.websocket() as websocket:
        websocket.send("abort")
        with pytest.raises(ConnectionClosed):
            websocket.recv(10)
    wait_for(lambda: edge.stats()["disconnects"][heard:] == [4000, 1006, 1006])
    with edge.stream() as stream:  # gone before it was accepted
        stream.sendall(UPGRADE.replace(b"/ws", b"/hesitant"))
    wait_for(lambda: edge.stats()["connected"] == 0)


# -- back-pressure ---------------------------------------------------------------------------------


def test_a_client_that_reads_gets_all_of_it(edge: Edge) -> None:
    with edge.websocket() as websocket:
        websocket.send("flood")
        for _ in range(500):
            assert len(websocket.recv(10)) == 65536
    stats = edge.stats()
    assert stats["flood"] == "done"
    assert stats["most_buffered"] < limits.SOCKET_BUFFER_BYTES + 2 * 65536


@pytest.mark.parametrize("plain", [False, True])
def test_a_client_that_stops_reading_is_felt(edge: Edge, plain: bool) -> None:
    before = edge.memory
    with upgraded(edge, plain=plain) as raw:
        raw.frame(b"flood")
        wait_for(
            lambda: (
                edge.stats().get("stuck", 0) > 0.5
                and edge.stats()["buffered"] >= limits.SOCKET_BUFFER_BYTES
            )
        )
        drains = edge.stats()["drains"]
        stats = edge.stats()
        assert stats["drains"] == drains, "drain() let somebody pass"
        assert stats["buffered"] < limits.SOCKET_BUFFER_BYTES + 2 * 65536
        assert stats["silent"] > 0.5
        assert edge.memory - before < 20 * MB
    wait_for(lambda: edge.stats()["flood"] == "gone")


def test_pongs_and_frames_are_heard(edge: Edge) -> None:
    with edge.websocket() as websocket:
        wait_for(lambda: edge.stats()["silent"] > 1)
        websocket.ping()
        wait_for(lambda: edge.stats()["silent"] < 1)
        wait_for(lambda: edge.stats()["silent"] > 1)
        websocket.pong()
        wait_for(lambda: edge.stats()["silent"] < 1)


def test_the_server_pings_and_does_not_wait_for_an_application_for_ever(
    start: Callable[..., Edge],
) -> None:
    """With a ping each half second, and one second for a handshake."""
    edge = start("hasty")
    with upgraded(edge) as raw, closing(RawSocket(edge.port, timeout=180)) as mute:
        assert raw.read_frame()[0] == PING
        assert_error(mute.upgrade(path="/mute"), 503, "INTERNAL_ERROR")


def test_pings_without_reading_cost_nothing(edge: Edge) -> None:
    before = edge.memory
    with upgraded(edge, plain=True) as raw:
        ping = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125
        end = time.monotonic() + 1.5
        sent = 0
        while time.monotonic() < end and sent < 40 * MB:
            sent += raw.socket.send(ping * 500)
        assert sent > limits.FRAMES_BURST * len(ping)
        assert edge.memory - before < 30 * MB
