"""WebSockets at the edge: refusals with a status, limits, closes with a code, back-pressure (D9,
D19, D25, D30).
"""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from bridge_project.kernel import limits
from tests.edge.edge import Edge, read_response, wait_for

MB = 2**20
FROM_PROXY = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "9.9.9.9"}


def closed(websocket: Any, timeout: float = 10) -> tuple[int, str]:
    """The code and reason with which the server closes; messages before it are skipped."""
    with pytest.raises(ConnectionClosed) as raised:
        while True:
            websocket.recv(timeout)
    frame = raised.value.rcvd
    assert frame is not None, "the connection ended without a close frame"
    return frame.code, frame.reason


def upgrade(
    edge: Edge,
    changed: dict[str, str | None] | None = None,
    *,
    plain: bool = False,
    path: str = "/ws",
) -> socket.socket:
    """A bare connection that has sent an upgrade, with headers changed or (None) left out."""
    headers: dict[str, str | None] = {
        "Host": "x",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "X-Forwarded-Proto": "https" if plain else None,
    }
    headers |= changed or {}
    stream = edge.stream(plain=plain)
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    stream.sendall("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
    return stream


def upgraded(stream: socket.socket) -> bytes:
    """The head of the answer, once it is here; no byte after it is read."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += stream.recv(1)
    return head


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
    with upgrade(edge, changed) as stream:
        status, headers, body = read_response(stream)
        assert status == 400
        assert json.loads(body)["code"] == "VALIDATION_ERROR"
        assert len(json.loads(body)) == 6
        assert headers["content-type"] == "application/json"


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
    with upgrade(edge) as stream:
        upgraded(stream)
        stream.sendall(frame + b"\x00" * 1000)
        answer = stream.recv(1000)
        assert answer[0] == 0x88 and struct.unpack("!H", answer[2:4])[0] == code
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


def deflating(edge: Edge, offer: str = "permessage-deflate", path: str = "/ws") -> socket.socket:
    """A bare connection that has upgraded with this offer."""
    stream = upgrade(edge, {"Sec-WebSocket-Extensions": offer}, path=path)
    head = upgraded(stream)
    assert b"Extensions: permessage-deflate; client_no_context_takeover\r" in head
    return stream


def send_frame(stream: socket.socket, first: int, payload: bytes) -> None:
    size = len(payload)
    how, code = ("B", size) if size < 126 else ("BH", 126) if size < 65536 else ("BQ", 127)
    length = (code,) if size < 126 else (code, size)
    head = struct.pack(f"!B{how}4x", first, 0x80 | length[0], *length[1:])
    stream.sendall(head + payload)


def read_frame(stream: socket.socket) -> tuple[int, bytes]:
    def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += (more := stream.recv(size - len(data)))
            assert more, "the connection has ended"
        return data

    first, size = exactly(2)
    if size == 126:
        size = int.from_bytes(exactly(2), "big")
    return first, exactly(size)


@pytest.mark.parametrize(
    ("path", "limit"), [("/ws", 10 * MB), ("/stranger", limits.EARLY_BYTES)], ids=["known", "not"]
)
def test_a_bomb_is_not_inflated(edge: Edge, path: str, limit: int) -> None:
    deflate = zlib.compressobj(wbits=-15)
    bomb = b"".join(deflate.compress(b"x" * MB) for _ in range(60))
    bomb = bomb[: limits.EARLY_BYTES // 2] if path == "/stranger" else bomb + deflate.flush()
    before = edge.memory
    with deflating(edge, path=path) as stream:
        send_frame(stream, 0xC1, bomb)
        first, payload = read_frame(stream)
        assert (first, struct.unpack("!H", payload[:2])) == (0x88, (1009,))
        assert str(limit) in payload.decode(errors="replace")
    assert edge.memory - before < 30 * MB


def test_bombs_that_each_fit_are_taken_one_by_one(edge: Edge) -> None:
    """What the application has not taken is not inflated either."""
    deflate = zlib.compressobj(wbits=-15)
    bomb = deflate.compress(b"x" * 10 * MB) + deflate.flush(zlib.Z_SYNC_FLUSH)
    before = edge.memory
    with edge.websocket() as other, deflating(edge) as stream:
        sleep = zlib.compressobj(wbits=-15)
        send_frame(stream, 0xC1, sleep.compress(b"sleep") + sleep.flush(zlib.Z_SYNC_FLUSH)[:-4])
        for _ in range(5):
            send_frame(stream, 0xC1, bomb[:-4])
        other.send("hello")
        assert other.recv() == "hello"
        assert edge.memory - before < 40 * MB
        for _ in range(5):
            read_frame(stream)


def test_what_is_no_deflate_closes_1007(edge: Edge) -> None:
    with deflating(edge) as stream:
        send_frame(stream, 0xC1, b"\xff" * 100)
        first, payload = read_frame(stream)
        assert (first, struct.unpack("!H", payload[:2])) == (0x88, (1007,))


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
    with deflating(start("hasty")) as stream:

        def ask() -> int:
            send_frame(stream, 0x81, b"scope")
            first, payload = read_frame(stream)
            while first == 0x89:  # a ping
                first, payload = read_frame(stream)
            assert first == 0xC1
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
    with upgrade(edge) as stream:
        assert stream.recv(1000).startswith(b"HTTP/1.1 101")
    wait_for(lambda: edge.stats()["disconnects"][heard:] == [4000, 1006])
    with edge.websocket() as websocket:
        websocket.send("abort")
        with pytest.raises(ConnectionClosed):
            websocket.recv(10)
    wait_for(lambda: edge.stats()["disconnects"][heard:] == [4000, 1006, 1006])
    with upgrade(edge, path="/hesitant"):
        pass  # gone before it was accepted
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
    with upgrade(edge, plain=plain) as stream:
        upgraded(stream)
        stream.sendall(b"\x81\x85\x00\x00\x00\x00flood")
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
    with upgrade(edge) as stream, upgrade(edge, path="/mute") as mute:
        assert stream.recv(1000).startswith(b"HTTP/1.1 101")
        assert stream.recv(1)[0] == 0x89
        status, _, body = read_response(mute)
        assert (status, json.loads(body)["code"]) == (503, "INTERNAL_ERROR")


def test_pings_without_reading_cost_nothing(edge: Edge) -> None:
    before = edge.memory
    with upgrade(edge, plain=True) as stream:
        upgraded(stream)
        ping = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125
        end = time.monotonic() + 1.5
        sent = 0
        while time.monotonic() < end and sent < 40 * MB:
            sent += stream.send(ping * 500)
        assert sent > limits.FRAMES_BURST * len(ping)
        assert edge.memory - before < 30 * MB
