"""Requests made to hold the bridge up: large bodies, tiny frames, idle connections (D9, D16)."""

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.https import Https, Response, assert_error
from tests.conformance.raw import PING, PONG, TEXT, RawSocket, encoded, ended, head
from tests.conformance.samples import hook, new_session, now
from tests.faults.quick import Untroubled, bridge_of_module, with_limits
from tests.servers import meanwhile, wait_until

WRONG = "w" * 40
EVENT, HEALTH = "/api/v1/hooks/event", "/api/v1/health"
CONTINUATION = 0
PROXY = "127.0.0.9"
LARGE = 10 * limits.MB
CLOSED = (OSError, EOFError)
# longer than any test waits: what is over by then is not over because its time was
PATIENT = with_limits(AUTH_WAIT_SECONDS=3600, REQUEST_SECONDS=3600)


bridge = bridge_of_module(Untroubled, first=PATIENT)
LIMITS = {"BRIDGE_RATE_LIMITS": "on", "BRIDGE_TRUSTED_PROXIES": PROXY}
limited = bridge_of_module(Untroubled, first=PATIENT, **LIMITS)


def ask(bridge: Bridge, data: bytes) -> Response:
    with closing(RawSocket(bridge.port)) as client:
        client.socket.sendall(data)
        return client.response()


@pytest.mark.parametrize("length", [f"Content-Length: {LARGE}", "Transfer-Encoding: chunked"])
def test_a_large_body_without_the_hook_token_is_refused_unread(bridge: Bridge, length: str) -> None:
    for token in (WRONG, bridge.device_token(), None):
        data = head(bridge, length, token=token)
        if token is None:
            data = data.replace(b"Authorization:", b"X-Another:")
        refused = assert_error(ask(bridge, data), 401, "HOOK_AUTH_FAILED")
        small = bridge.https().post("/hooks/event", token=token, json_body={})
        assert refused["message"] == assert_error(small, 401, "HOOK_AUTH_FAILED")["message"]


def test_nothing_else_reads_a_large_body_of_a_stranger(bridge: Bridge) -> None:
    def asked(path: str, token: str = WRONG) -> Response:
        length = f"Content-Length: {LARGE}"
        return ask(bridge, head(bridge, length, token=token, line=f"POST {path}"))

    assert_error(asked("/api/v1/sessions", bridge.admin_token), 413, "PAYLOAD_TOO_LARGE")
    for path in ("/api/v1/schema", "/docs"):
        assert_error(asked(path), 413, "PAYLOAD_TOO_LARGE")
    assert_error(asked("/api/v1/sessions/nobody/events"), 401, "AUTH_INVALID_TOKEN")
    assert_error(asked("/api/v1/nothing"), 404, "NOT_FOUND")
    answer = asked("/admin/login/")  # there an error is a page
    assert answer.status == 413 and b"PAYLOAD_TOO_LARGE" in answer.body
    with closing(RawSocket(bridge.port)) as client:
        answer = client.upgrade(headers={"Content-Length": str(LARGE)})
    assert_error(answer, 413, "PAYLOAD_TOO_LARGE")


def test_who_sends_slowly_keeps_no_event_out(bridge: Bridge) -> None:
    """Twenty strangers who drip, and a device twice."""
    length, path = f"Content-Length: {LARGE}", "/api/v1/sessions/nobody/events"
    device = head(bridge, length, token=bridge.device_token(), line=f"POST {path}")
    with ExitStack() as ending:
        slow = [ending.enter_context(closing(RawSocket(bridge.port))) for _ in range(22)]
        for number, one in enumerate(slow):
            one.socket.sendall(device if number < 2 else head(bridge, length, token=WRONG))

        def drip(over: threading.Event) -> None:
            while not over.wait(0.05):
                for one in slow[2:]:
                    with contextlib.suppress(OSError):
                        one.socket.sendall(b"x" * 1000)

        with meanwhile(drip):
            # it took until their deadline, which is past this client's patience
            bridge.accept(hook("Stop", new_session(), {"reason": "x" * limits.MB}))


LENGTH, CODING = "Content-Length: ", "Transfer-Encoding: "
NO_LENGTHS = ("9" * 5000, "0" * 4999 + "5", "+5", "-5", "5 5", "5, 5", "0x5", "")
NO_CODINGS = ("identity", "identity, chunked", "gzip, chunked", "chunked, identity")
ODD_LENGTHS = [
    *[(LENGTH + odd,) for odd in NO_LENGTHS],
    *[(CODING + odd,) for odd in NO_CODINGS],
    (LENGTH + "5", LENGTH + "6"),
    (LENGTH + "5", LENGTH + "5"),
    (LENGTH + "5", CODING + "chunked"),
    (CODING + "chunked", LENGTH + "5"),
    (CODING + "chunked", CODING + "identity"),
    (CODING + "identity", CODING + "chunked"),
    (CODING + "chunked", CODING + "chunked"),
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


def test_a_compressed_body_is_415(bridge: Bridge) -> None:
    """A large one unread; `identity` is no compression."""
    event = hook("Stop", new_session())
    body = gzip.compress(json.dumps(event).encode())
    for coding, path in COMPRESSED.items():
        token = bridge.admin_token if "sessions" in path else bridge.hook_token
        sent = {"Content-Encoding": coding}
        answer = bridge.https().request("POST", path, token=token, body=body, headers=sent)
        assert_error(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert bridge.post_hook(event, headers={"Content-Encoding": "identity"}).status == 200
    data = head(bridge, f"Content-Length: {LARGE}", "Content-Encoding: gzip")
    assert_error(ask(bridge, data), 415, "UNSUPPORTED_MEDIA_TYPE")


def test_the_host_of_the_target_counts(bridge: Bridge) -> None:
    """Whatever `Host` says (RFC 9112 section 3.2.2), also when it is the own one."""
    own = f"127.0.0.1:{bridge.port}"

    def target(url: str, *host: str) -> Response:
        lines = [f"GET {url} HTTP/1.1", f"Authorization: Bearer {bridge.admin_token}", *host]
        return ask(bridge, "\r\n".join([*lines, "", ""]).encode())

    for url in (f"https://{own}{HEALTH}", f"HTTPS://localhost:{bridge.port}{HEALTH}"):
        for host in (f"Host: {own}", "Host: evil.example"):
            assert target(url, host).status == 200, (url, host)
    assert target(f"https://{own}", f"Host: {own}").status == 200
    for name in ("evil.example", "evil.example:443", f"x@{own}", f"{own}@evil.example"):
        answer = target(f"https://{name}{HEALTH}", f"Host: {own}")
        assert_error(answer, 400, "HOST_NOT_ALLOWED")
    for url in (HEALTH, f"https://{own}{HEALTH}"):
        for hosts in ([], [f"Host: {own}"] * 2):
            assert_error(target(url, *hosts), 400, "VALIDATION_ERROR")


@contextmanager
def upgraded(bridge: Bridge, source: str | None = None) -> Iterator[RawSocket]:
    with closing(RawSocket(bridge.port, source=source)) as client:
        assert client.upgrade().status == 101
        yield client


EMPTY = encoded(b"", CONTINUATION, final=False)
FEW: dict[str, tuple[bytes, int]] = {
    "fragments": (encoded(b"", TEXT, final=False) + EMPTY * (limits.EARLY_FRAMES + 1), 1008),
    "pings": (encoded(b"", PING) * (limits.EARLY_FRAMES + 1), 1008),
    "messages": (encoded(b"{}", TEXT) * (limits.EARLY_FRAMES + 1), 1008),
    "bytes": (encoded(b"x" * (limits.EARLY_BYTES + 1), TEXT), 1009),
}


@pytest.mark.parametrize("kind", FEW)
def test_a_stranger_may_send_few_frames_and_bytes(bridge: Bridge, kind: str) -> None:
    data, code = FEW[kind]
    with upgraded(bridge) as client:
        client.socket.sendall(data)
        assert client.until_closed()[1] == code


def test_health_is_answered_under_a_flood_of_frames(bridge: Bridge) -> None:
    """Of a device: it took 0.3 to 2 s. A stranger's ends with the hundredth."""
    with closing(RawSocket(bridge.port).ready(bridge.device_token())) as client:
        client.frame(b"", TEXT, final=False)

        def pour(over: threading.Event) -> None:
            with contextlib.suppress(*CLOSED):
                while not over.is_set():
                    client.socket.sendall(EMPTY * 1000)

        with meanwhile(pour) as flood:
            for _ in range(9):
                assert bridge.get(HEALTH, bridge.admin_token).status == 200
            assert flood.is_alive()


HEALTH_CHECK = {"timestamp": now(), "client_nonce": "n", "client_capabilities": ["health_v1"]}


def test_a_client_with_many_frames_is_read_to_the_end(bridge: Bridge) -> None:
    asked = {"type": "health_check", "id": "3f0e", "timestamp": now(), "payload": HEALTH_CHECK}
    with closing(RawSocket(bridge.port).ready(bridge.device_token())) as client:
        client.socket.sendall(encoded(b"x", PING) * 1000)
        assert [client.read_frame()[0] for _ in range(1000)] == [PONG] * 1000
        client.frame(json.dumps(asked).encode(), final=False)
        client.socket.sendall(EMPTY * 3000)
        client.frame(b"", CONTINUATION)
        assert client.read()["id"] == "3f0e"


MOST = limits.UNAUTHENTICATED_PER_ADDRESS


@contextmanager
def idle(bridge: Bridge, *sources: str, tls: bool = True) -> Iterator[list[socket.socket]]:
    with ExitStack() as ending:
        made = [RawSocket(bridge.port, source=one, plain=not tls).socket for one in sources]
        yield [ending.enter_context(closing(one)) for one in made]


def test_idle_connections_of_an_address_have_a_bound(limited: Bridge) -> None:
    """The oldest go; who shows a token gets in and stays, at the same address too."""
    source = "127.0.0.3"
    kept, newcomer = (Https(limited.port, limited.pin, source=source) for _ in range(2))
    with closing(kept.open()) as owner:

        def served() -> int:
            return kept.get("/api/v1/sessions", token=limited.admin_token, connection=owner).status

        assert served() == 200
        with idle(limited, *[source] * (MOST + 20)) as waiting:
            wait_until(lambda: all(map(ended, waiting[:19])), "the oldest are closed")
            assert not any(map(ended, waiting[-100:]))
            assert served() == 200
            assert newcomer.get("/api/v1/sessions", token=limited.admin_token).status == 200
            with idle(limited, "127.0.0.4") as [other]:
                assert not ended(other)


def test_connections_without_tls_go_first(limited: Bridge) -> None:
    """So that many of them do not end somebody who is about to send a request."""
    source = "127.0.0.5"
    with (
        idle(limited, source) as [honest],
        idle(limited, *[source] * (2 * MOST), tls=False) as waiting,
    ):
        wait_until(lambda: ended(waiting[0]), "the oldest is closed")
        assert not ended(honest)


def test_sockets_before_auth_count_and_those_after_do_not(limited: Bridge) -> None:
    source = "127.0.0.6"
    with closing(RawSocket(limited.port, source=source).ready(limited.device_token())) as phone:
        with upgraded(limited, source) as waiting, idle(limited, *[source] * MOST):
            assert waiting.until_closed()[1] is None, "reset"
        answer = phone.read_until(phone.send("health_check", HEALTH_CHECK))
        assert answer["type"] == "health_status"


def test_all_idle_connections_have_a_bound(limited: Bridge) -> None:
    """An address with few is not the one that pays."""
    most = limits.UNAUTHENTICATED
    sources = [f"127.0.1.{1 + number // (MOST - 1)}" for number in range(most + 50)]
    with idle(limited, "127.0.1.200") as [few], idle(limited, *sources, tls=False) as waiting:
        wait_until(lambda: len(waiting) - sum(map(ended, waiting)) < most, "some are closed")
        assert not ended(few)


def test_a_trusted_proxy_is_not_one_address(limited: Bridge) -> None:
    with idle(limited, *[PROXY] * (MOST + 50), tls=False) as waiting:
        assert limited.https().get(HEALTH, token=limited.admin_token).status == 200
        assert not any(map(ended, waiting))
