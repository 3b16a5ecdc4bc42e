"""Requests made to hold the bridge up: large bodies, tiny frames, idle connections, odd lengths
(6).
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

import pytest

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.https import Https, Response, assert_error, pinned_context
from tests.conformance.raw import PING, PONG, TEXT, RawSocket, encoded
from tests.conformance.samples import hook, new_session, now
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

WRONG = "w" * 40
EVENT = "/api/v1/hooks/event"
CONTINUATION = 0
PROXY = "127.0.0.9"
LARGE = 10 * limits.MB
CLOSED = (OSError, EOFError)


@pytest.fixture(scope="module")
def make_bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Bridge]]:
    started: list[Bridge] = []
    with ExitStack() as ending:

        def make(name: str, **settings: str) -> Bridge:
            place = tmp_path_factory.mktemp(name)
            started.append(ending.enter_context(QuickBridge(place, **settings)))
            return started[-1]

        yield make
    assert not [bridge for bridge in started if "Traceback" in bridge.log.read_text()]


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge]) -> Bridge:
    return make_bridge("requests")


@pytest.fixture(scope="module")
def limited(make_bridge: Callable[..., Bridge]) -> Bridge:
    """A bridge with its limits on and a proxy that it trusts."""
    return make_bridge("limited", BRIDGE_RATE_LIMITS="on", BRIDGE_TRUSTED_PROXIES=PROXY)


@pytest.fixture
def sid() -> str:
    return new_session()


def head(bridge: Bridge, *more: str, token: str | None = None, path: str = EVENT) -> bytes:
    """The head of a POST of JSON."""
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{bridge.port}"]
    lines += [
        "Content-Type: application/json",
        f"Authorization: Bearer {token or bridge.hook_token}",
    ]
    return "\r\n".join([*lines, *more, "", ""]).encode()


def ask(bridge: Bridge, data: bytes) -> Response:
    """The answer to these bytes."""
    client = RawSocket(bridge.port)
    try:
        client.socket.sendall(data)
        return client.response()
    finally:
        client.close()


def connect(bridge: Bridge, source: str, *, tls: bool = True) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", bridge.port), 30, source_address=(source, 0))
    return pinned_context().wrap_socket(raw) if tls else raw


def is_open(connection: socket.socket) -> bool:
    """Whether the bridge has not ended it. Nothing is expected to be read from it."""
    connection.settimeout(0)
    try:
        return connection.recv(1000) != b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


# -- large bodies --


@pytest.mark.parametrize("token", [WRONG, None, "a device's"])
@pytest.mark.parametrize("length", [f"Content-Length: {LARGE}", "Transfer-Encoding: chunked"])
def test_a_large_body_without_the_hook_token_is_refused_unread(
    bridge: Bridge, token: str | None, length: str
) -> None:
    given = bridge.device_token() if token == "a device's" else token
    data = head(bridge, length, token=given)
    if token is None:
        data = data.replace(f"Authorization: Bearer {bridge.hook_token}\r\n".encode(), b"")
    refused = assert_error(ask(bridge, data), 401, "HOOK_AUTH_FAILED")
    small = bridge.https().post("/hooks/event", token=given, json_body={})
    expected = assert_error(small, 401, "HOOK_AUTH_FAILED")
    assert {k: refused[k] for k in ("error", "message")} == {
        k: expected[k] for k in ("error", "message")
    }


def test_a_client_that_sends_on_reads_why(bridge: Bridge) -> None:
    answer = bridge.https().request("POST", EVENT, token=WRONG, body=b"x" * (LARGE - 1))
    assert_error(answer, 401, "HOOK_AUTH_FAILED")


def test_nothing_else_reads_a_large_body_of_a_stranger(bridge: Bridge) -> None:
    def asked(path: str) -> Response:
        token = bridge.admin_token if path == "/api/v1/sessions" else WRONG
        return ask(bridge, head(bridge, f"Content-Length: {LARGE}", token=token, path=path))

    for path in ("/api/v1/sessions", "/api/v1/schema", "/docs"):
        assert_error(asked(path), 413, "PAYLOAD_TOO_LARGE")
    assert_error(asked("/api/v1/sessions/nobody/events"), 401, "AUTH_INVALID_TOKEN")
    assert_error(asked("/api/v1/nothing"), 404, "NOT_FOUND")
    answer = asked("/admin/login/")  # there an error is a page
    assert answer.status == 413 and b"PAYLOAD_TOO_LARGE" in answer.body
    client = RawSocket(bridge.port)
    answer = client.upgrade(headers={"Content-Length": str(LARGE)})
    client.close()
    assert_error(answer, 413, "PAYLOAD_TOO_LARGE")


def test_large_bodies_of_strangers_keep_no_valid_one_out(bridge: Bridge, sid: str) -> None:
    strangers = [RawSocket(bridge.port) for _ in range(20)]
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.05):
            for one in strangers:
                with contextlib.suppress(OSError):
                    one.socket.sendall(b"x" * 1000)

    for one in strangers:
        one.socket.sendall(head(bridge, f"Content-Length: {LARGE}", token=WRONG))
    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        began = time.monotonic()
        bridge.accept(hook("Stop", sid, {"reason": "x" * limits.MB}))
        assert time.monotonic() - began < 45  # it took until their deadline, over a minute
    finally:
        over.set()
        dripping.join()
        for one in strangers:
            one.close()


def test_a_device_that_sends_slowly_keeps_no_event_out(bridge: Bridge, sid: str) -> None:
    path = f"/api/v1/sessions/{sid}/events"
    slow = [RawSocket(bridge.port) for _ in range(2)]
    for one in slow:
        one.socket.sendall(
            head(bridge, f"Content-Length: {LARGE}", token=bridge.device_token(), path=path)
        )
    began = time.monotonic()
    bridge.accept(hook("Stop", sid, {"reason": "x" * limits.MB}))
    assert time.monotonic() - began < 45
    for one in slow:
        one.close()


def test_a_large_body_may_wait_for_100_continue(bridge: Bridge, sid: str) -> None:
    body = json.dumps(hook("Stop", sid, {"reason": "x" * limits.MB})).encode()
    more = (f"Content-Length: {len(body)}", "Expect: 100-continue")
    assert ask(bridge, head(bridge, *more, token=WRONG)).status == 401
    client = RawSocket(bridge.port)
    client.socket.sendall(head(bridge, *more))
    assert client.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.socket.sendall(body)
    assert client.response().status == 200
    client.close()


@pytest.mark.parametrize("source", ["127.0.0.2", PROXY])
def test_a_wrong_token_with_a_large_body_counts_as_a_failure(limited: Bridge, source: str) -> None:
    """After ten in a minute it is 429 (D16), for that client of a proxy; a valid token passes."""
    client = Https(limited.port, limited.pin, source=source)
    body = b"x" * (limits.SMALL_BODY_BYTES + 1)
    of = [{"X-Forwarded-Proto": "https", "X-Forwarded-For": f"10.9.9.{n}"} for n in (1, 2)]
    if source != PROXY:
        of = [{}, {}]

    def status(number: int, token: str, data: bytes) -> int:
        return client.request("POST", EVENT, token=token, body=data, headers=of[number]).status

    wait_until(lambda: status(0, WRONG, body) == 429, "the address is refused")
    assert source != PROXY or status(1, WRONG, body) == 401
    event = hook("Stop", new_session(), {"reason": "x" * 100_000})
    assert status(0, limited.hook_token, json.dumps(event).encode()) == 200


def test_a_large_event_is_counted_once(make_bridge: Callable[..., Bridge]) -> None:
    """Of 120 a minute (D17), one by one; a minute that ends in between gives more."""
    bridge = make_bridge("counted", BRIDGE_RATE_LIMITS="on")
    events = [hook("Stop", new_session(), {"reason": "x" * 70_000}) for _ in range(100)]
    client = bridge.https()
    connection = client.open()
    for event in events:
        sent = {"token": bridge.hook_token, "json_body": event, "connection": connection}
        assert client.post(EVENT, **sent).status == 200
    connection.close()


# -- what a body is --


ODD_LENGTHS = [
    ("Content-Length: " + "9" * 5000,),
    ("Content-Length: " + "0" * 4999 + "5",),
    ("Content-Length: +5",),
    ("Content-Length: -5",),
    ("Content-Length: 5 5",),
    ("Content-Length: 5, 5",),
    ("Content-Length: 0x5",),
    ("Content-Length:",),
    ("Content-Length: 5", "Content-Length: 6"),
    ("Content-Length: 5", "Content-Length: 5"),
    ("Content-Length: 5", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: 5"),
    ("Transfer-Encoding: identity",),
    ("Transfer-Encoding: identity, chunked",),
    ("Transfer-Encoding: chunked, identity",),
    ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ("Transfer-Encoding: identity", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: gzip, chunked",),
]


def test_a_length_that_can_be_read_two_ways_is_refused(bridge: Bridge) -> None:
    """And what follows is not taken for a request."""
    smuggled = head(bridge, "Content-Length: 2") + b"{}"
    clients = [RawSocket(bridge.port) for _ in ODD_LENGTHS]
    for client, lines in zip(clients, ODD_LENGTHS, strict=True):
        client.socket.sendall(head(bridge, *lines) + b"0\r\n\r\n" + smuggled)
    for client, lines in zip(clients, ODD_LENGTHS, strict=True):
        body = assert_error(client.response(), 400, "VALIDATION_ERROR")
        assert "not valid HTTP" in body["message"], lines
        with pytest.raises(CLOSED):
            client.response()
        client.close()
    # HTTP 1.0 has no chunks
    data = head(bridge, "Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert_error(ask(bridge, data + b"0\r\n\r\n"), 400, "VALIDATION_ERROR")


COMPRESSED = {"GZIP": "/hooks/batch", "br": "/api/v1/sessions/x/events", "gzip, identity": EVENT}


def test_a_compressed_body_is_415(bridge: Bridge, sid: str) -> None:
    body = gzip.compress(json.dumps(hook("Stop", sid)).encode())
    for coding, path in COMPRESSED.items():
        token = bridge.admin_token if "sessions" in path else bridge.hook_token
        sent = {"Content-Encoding": coding}
        answer = bridge.https().request("POST", path, token=token, body=body, headers=sent)
        assert_error(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    answer = bridge.post_hook(hook("Stop", sid), headers={"Content-Encoding": "identity"})
    assert answer.status == 200, "which is no compression"


def test_a_large_compressed_body_is_415_unread(bridge: Bridge) -> None:
    data = head(bridge, f"Content-Length: {LARGE}", "Content-Encoding: gzip")
    assert_error(ask(bridge, data), 415, "UNSUPPORTED_MEDIA_TYPE")


# -- absolute form --


def target(bridge: Bridge, url: str, host: str | None = None) -> Response:
    lines = [f"GET {url} HTTP/1.1", f"Authorization: Bearer {bridge.admin_token}"]
    if host is not None:
        lines.append(f"Host: {host}")
    return ask(bridge, "\r\n".join([*lines, "", ""]).encode())


def test_the_absolute_form_of_the_own_address_is_the_origin_form(bridge: Bridge) -> None:
    own = f"127.0.0.1:{bridge.port}"
    assert target(bridge, f"https://{own}/api/v1/health", own).json()["status"] == "healthy"
    assert target(bridge, f"HTTPS://{own}/api/v1/health").status == 200
    assert target(bridge, f"https://localhost:{bridge.port}/api/v1/health", own).status == 200
    assert target(bridge, f"https://{own}/api/v1/sessions?limit=1", own).status == 200
    assert target(bridge, f"https://{own}", own).status == 200


def test_the_host_of_the_target_counts(bridge: Bridge) -> None:
    """Whatever `Host` says (RFC 9112 section 3.2.2)."""
    own = f"127.0.0.1:{bridge.port}"
    for host in ("evil.example", "evil.example:443", f"x@{own}", f"{own}@evil.example"):
        answer = target(bridge, f"https://{host}/api/v1/health", own)
        assert_error(answer, 400, "HOST_NOT_ALLOWED")
    assert target(bridge, f"https://{own}/api/v1/health", "evil.example").status == 200


# -- WebSockets --


def closed_with(client: RawSocket) -> int | None:
    return client.until_closed()[1]


def pour(client: RawSocket, data: bytes, seconds: float) -> None:
    """Send it again and again, until the time is over or the bridge has ended the connection."""
    end = time.monotonic() + seconds
    client.socket.settimeout(seconds)
    with contextlib.suppress(*CLOSED):
        while time.monotonic() < end:
            client.socket.sendall(data)


EMPTY = encoded(b"", CONTINUATION, final=False)


@pytest.mark.parametrize(
    ("first", "frame"),
    [
        (encoded(b"", TEXT, final=False), EMPTY),
        (b"", encoded(b"", PING)),
        (b"", encoded(b"{}", TEXT)),
    ],
    ids=["fragments", "pings", "messages"],
)
def test_a_stranger_may_send_few_frames(bridge: Bridge, first: bytes, frame: bytes) -> None:
    client = RawSocket(bridge.port)
    assert client.upgrade().status == 101
    client.socket.sendall(first + frame * (limits.EARLY_FRAMES + 1))
    assert closed_with(client) == 1008
    client.close()


def test_a_stranger_may_send_few_bytes(bridge: Bridge) -> None:
    client = RawSocket(bridge.port)
    assert client.upgrade().status == 101
    client.frame(b"x" * (limits.EARLY_BYTES + 1))
    assert closed_with(client) == 1009
    client.close()


def test_a_client_that_pings_and_waits_before_auth_gets_in(bridge: Bridge) -> None:
    client = RawSocket(bridge.port)
    assert client.upgrade().status == 101
    token = bridge.device_token()
    for _ in range(limits.EARLY_FRAMES // 2):
        client.frame(b"", PING)
    sent = {"token": token, "client_version": "1.2.3", "platform": "android"}
    assert client.read_until(client.send("auth", sent))["type"] == "connection_ack"
    client.close()


def health_times(bridge: Bridge, seconds: float) -> list[float]:
    client, taken = bridge.https(), []
    connection, end = client.open(), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        assert (
            client.get("/api/v1/health", token=bridge.admin_token, connection=connection).status
            == 200
        )
        taken.append(time.monotonic() - began)
    connection.close()
    return taken


@pytest.mark.parametrize("kind", ["strangers", "fragments"])
def test_health_is_answered_under_a_flood_of_frames(bridge: Bridge, kind: str) -> None:
    """Half of the answers took 1.3 s under five strangers, 0.3 to 2 s under one device."""
    clients = [RawSocket(bridge.port) for _ in range(5 if kind == "strangers" else 1)]
    for one in clients:
        if kind == "strangers":
            assert one.upgrade().status == 101
        else:
            one.ready(bridge.device_token())
        one.frame(b"", TEXT, final=False)
    quiet = median(health_times(bridge, 0.5))
    floods = [threading.Thread(target=pour, args=(one, EMPTY * 10_000, 2)) for one in clients]
    for flood in floods:
        flood.start()
    taken = median(health_times(bridge, 2))
    for flood in floods:
        flood.join()
    for one in clients:
        one.close()
    assert taken < 0.5 + 5 * quiet


HEALTH_CHECK = {"timestamp": now(), "client_nonce": "n", "client_capabilities": ["health_v1"]}


def alive(client: RawSocket) -> bool:
    """Whether a ready socket is answered."""
    answer = client.read_until(client.send("health_check", HEALTH_CHECK))
    return bool(answer["type"] == "health_status")


def test_a_client_with_many_frames_is_read_to_the_end(bridge: Bridge) -> None:
    """Those above the burst more slowly, but all of them."""
    client = RawSocket(bridge.port).ready(bridge.device_token())
    client.socket.sendall(encoded(b"x", PING) * 1000)
    assert [client.read_frame()[0] for _ in range(1000)] == [PONG] * 1000
    asked = {"type": "health_check", "id": "3f0e", "timestamp": now(), "payload": HEALTH_CHECK}
    client.frame(json.dumps(asked).encode(), final=False)
    client.socket.sendall(EMPTY * (limits.FRAMES_BURST + limits.FRAMES_PER_SECOND))
    client.frame(b"", CONTINUATION)
    assert client.read()["id"] == "3f0e"
    client.close()


# -- idle connections --


def test_idle_connections_of_an_address_have_a_bound(limited: Bridge) -> None:
    """The oldest go; who shows a token gets in and stays, at the same address too."""
    kept = Https(limited.port, limited.pin, source="127.0.0.3")
    owner = kept.open()

    def served() -> int:
        return kept.get("/api/v1/sessions", token=limited.admin_token, connection=owner).status

    assert served() == 200
    idle = [connect(limited, "127.0.0.3") for _ in range(limits.UNAUTHENTICATED_PER_ADDRESS + 20)]
    try:
        wait_until(lambda: not any(map(is_open, idle[:19])), "the oldest are closed")
        assert all(map(is_open, idle[-100:]))
        assert served() == 200
        newcomer = Https(limited.port, limited.pin, source="127.0.0.3")
        assert newcomer.get("/api/v1/sessions", token=limited.admin_token).status == 200
        other = connect(limited, "127.0.0.4")
        assert is_open(other)
        other.close()
    finally:
        owner.close()
        for one in idle:
            one.close()


def test_connections_without_tls_go_first(limited: Bridge) -> None:
    """So that many of them do not end somebody who is about to send a request."""
    honest = connect(limited, "127.0.0.5")
    idle = [
        connect(limited, "127.0.0.5", tls=False)
        for _ in range(2 * limits.UNAUTHENTICATED_PER_ADDRESS)
    ]
    try:
        wait_until(lambda: not is_open(idle[0]), "the oldest is closed")
        assert is_open(honest)
    finally:
        for one in (honest, *idle):
            one.close()


def test_sockets_before_auth_count_and_those_after_do_not(limited: Bridge) -> None:
    phone = RawSocket(limited.port, source="127.0.0.6").ready(limited.device_token())

    def is_reset() -> bool:
        """Whether a socket ends without the 4408 that ten seconds without `auth` give it."""
        waiting = RawSocket(limited.port, source="127.0.0.6")
        assert waiting.upgrade().status == 101
        idle = [connect(limited, "127.0.0.6") for _ in range(limits.UNAUTHENTICATED_PER_ADDRESS)]
        code = closed_with(waiting)
        waiting.close()
        for one in idle:
            one.close()
        return code is None

    assert any(is_reset() for _ in range(3)), "a busy machine may need more than one attempt"
    assert alive(phone)
    phone.close()


def test_all_idle_connections_have_a_bound(limited: Bridge) -> None:
    """An address with few is not the one that pays."""
    few = connect(limited, "127.0.1.200")
    idle = []
    try:
        for number in range(limits.UNAUTHENTICATED + 50):
            source = f"127.0.1.{1 + number // (limits.UNAUTHENTICATED_PER_ADDRESS - 1)}"
            idle.append(connect(limited, source, tls=False))
        wait_until(lambda: sum(map(is_open, idle)) < limits.UNAUTHENTICATED, "some are closed")
        assert is_open(few)
    finally:
        for one in (few, *idle):
            one.close()


def test_a_trusted_proxy_is_not_one_address(limited: Bridge) -> None:
    idle = [
        connect(limited, PROXY, tls=False) for _ in range(limits.UNAUTHENTICATED_PER_ADDRESS + 50)
    ]
    try:
        assert limited.https().get("/api/v1/health", token=limited.admin_token).status == 200
        assert all(map(is_open, idle))
    finally:
        for one in idle:
            one.close()


def test_without_limits_there_is_no_bound(bridge: Bridge) -> None:
    idle = [
        connect(bridge, "127.0.0.1", tls=False)
        for _ in range(limits.UNAUTHENTICATED_PER_ADDRESS + 50)
    ]
    try:
        assert bridge.get("/api/v1/health", token=bridge.admin_token).status == 200
        assert all(map(is_open, idle))
    finally:
        for one in idle:
            one.close()
