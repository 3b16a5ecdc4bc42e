"""What is refused, cut, bounded, renewed and ended in order (D9, D19, D25, D30, D44, D58)."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from tests.conformance.approvals import pre
from tests.conformance.bridge import Bridge
from tests.conformance.https import LOOPBACK, assert_error, presented, spki_pin
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket, ended, head, upgraded
from tests.conformance.samples import hook, new_session, prompt
from tests.faults.quick import QuickBridge, Untroubled, bridge_of_module, with_limits
from tests.servers import wait_until
from tests.short import SHORT, short

pytestmark = pytest.mark.slow

MB = limits.MB
REQUEST_SECONDS = SHORT["REQUEST_SECONDS"]  # for a request to arrive
UNIT_ENDS_IT = 45.0  # seconds: docs/deploy/bridge.service
# one's end waits for requests as long as a busy machine may need to go on with them
PATIENT = with_limits(STOP_SECONDS=120)
# one waits some seconds for what others wait much longer for, but for `auth`
HASTY = short("REQUEST_SECONDS", "STOP_SECONDS", "LINGER_SECONDS", "CERTIFICATE_CHECK_SECONDS")
FIRST = with_limits(AUTH_WAIT_SECONDS=120)
FIRST += "from bridge_project.composition import monitors; monitors.ADDRESS_SECONDS = 0.1\n"


# they run for all tests here, some of which stop them
patient = bridge_of_module(Untroubled, first=PATIENT)
impatient = bridge_of_module(Untroubled, first=FIRST, **HASTY)


def running(bridge: Bridge) -> Bridge:
    return bridge if bridge.running.poll() is None else bridge.start()


@pytest.fixture
def bridge(patient: Bridge) -> Bridge:
    return running(patient)


@pytest.fixture
def hasty(impatient: Bridge) -> Bridge:
    return running(impatient)


def test_a_database_that_another_program_keeps_holds_up_no_stop(hasty: Bridge) -> None:
    """Each phone has something left to be stored, which is waited for for 20 seconds."""
    for _ in range(4):
        hasty.phone().ready()
    with hasty.locked():
        hasty.terminate()
        assert hasty.ended(UNIT_ENDS_IT) == 0
    hasty.hang_up()


def test_what_speaks_no_tls(bridge: Bridge) -> None:
    """Whoever speaks HTTP or WebSocket is told so; anything else is dropped."""
    for headers in ("", "X-Forwarded-Proto: https\r\nX-Forwarded-For: 127.0.0.1\r\n"):
        with closing(RawSocket(bridge.port, plain=True)) as client:
            client.socket.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
            assert_error(client.response(), 403, "INSECURE_TRANSPORT")
    with closing(RawSocket(bridge.port, plain=True)) as client:
        assert client.upgrade().status == 101
        (message,), code = client.until_closed()
        assert (message["payload"]["code"], code) == ("INSECURE_TRANSPORT", 4403)
    with closing(RawSocket(bridge.port, plain=True)) as client:
        client.socket.sendall(b"\x16\x03\x01\x00\x05hello" * 10)
        wait_until(partial(ended, client.socket), "it is dropped")


NOT_HTTP = [
    b"nonsense\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9 x\r\n\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/1.1\r\nBad Name: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * 40000),
    b"GET / HTTP/1.1\r\nX: %s\r\n\r\n" % (b"a" * 40000),
    b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 600 + b"\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: %s\r\n" % (b"a" * 100) * 300 + b"\r\n",
    b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /?\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x85b\r\n\r\n",
]


def test_what_is_not_http(bridge: Bridge) -> None:
    """All at once: the bridge waits a moment for each to read its answer before it hangs up."""
    requests = [*NOT_HTTP, head(bridge, "Transfer-Encoding: chunked") + b"zz\r\n\r\n"]
    with ExitStack() as ending:
        clients = [ending.enter_context(closing(RawSocket(bridge.port))) for _ in requests]
        for client, request in zip(clients, requests, strict=True):
            client.socket.sendall(request)
        for client, request in zip(clients, requests, strict=True):
            assert_error(client.response(), 400, "VALIDATION_ERROR")
            assert client.socket.recv(1) == b"", f"the connection ends with it: {request[:40]!r}"


def test_requests_behind_each_other(bridge: Bridge) -> None:
    """Answered in order; a query is not in the log, and no header says where the bridge is."""
    body = json.dumps(prompt(new_session(), 1)).encode()
    first = head(bridge, f"Content-Length: {len(body)}", "Daphne-Root-Path: /hooks")
    second = head(bridge, line="GET /api/v1/health?token=sesame")
    with closing(RawSocket(bridge.port)) as client:
        client.socket.sendall(first + body + second)
        assert client.response().json()["event_id"]
        assert client.response().json()["status"] == "healthy"
    file = bridge.data / "logs/bridge.log"
    wait_until(lambda: "GET /api/v1/health 200" in file.read_text(), "the line in the log")
    assert "sesame" not in file.read_text() + bridge.log.read_text()


def test_what_does_not_arrive_is_cut(hasty: Bridge) -> None:
    """Silence, dripping, half a TLS handshake, and a client that never says farewell."""
    began = time.monotonic()
    with ExitStack() as ending:
        silent, dripping, staying = (
            ending.enter_context(closing(RawSocket(hasty.port))).socket for _ in range(3)
        )
        handshake = ending.enter_context(closing(RawSocket(hasty.port, plain=True))).socket
        handshake.sendall(b"\x16\x03\x01")
        silent.sendall(head(hasty, "Content-Length: 9") + b"body")
        dripping.sendall(b"GET / HTTP/1.1\r\n")
        below = ending.enter_context(socket.socket(fileno=os.dup(staying.fileno())))
        staying.sendall(head(hasty, "Connection: close", line="GET /ca.crt"))

        def cut_while_it_drips() -> bool:
            with suppress(OSError):
                dripping.sendall(b"x")  # of one header: many would be refused for their number
            return ended(dripping)

        wait_until(cut_while_it_drips, "what drips is cut")
        assert time.monotonic() - began > REQUEST_SECONDS - 1
        for one in (handshake, silent):
            wait_until(partial(ended, one), "what is silent is cut")

        wait_until(partial(ended, below), "who never closes is closed")


@pytest.mark.parametrize("text", [b"-----BEGIN CERTIFICATE-----\nMIIB", b"\x00\xff", None])
def test_a_damaged_or_lost_certificate_is_made_again(hasty: Bridge, text: bytes | None) -> None:
    """Without a restart and with the same key; sockets go on."""
    before, path = presented(hasty.port), hasty.data / "tls/server.crt"
    with hasty.phones(1) as (phone,):
        path.unlink() if text is None else path.write_bytes(text)
        wait_until(lambda: presented(hasty.port) != before, "a new certificate is served")
        assert spki_pin(presented(hasty.port)) == spki_pin(before)
        phone.ping()


def test_a_broken_key_leaves_the_old_one_in_use(hasty: Bridge, bridge: Bridge) -> None:
    key, before = hasty.data / "tls/server.key", presented(hasty.port)
    key.write_text("broken")
    wait_until(lambda: "the old one stays in use: BRIDGE_DATA_DIR" in hasty.log.read_text(), "said")
    assert presented(hasty.port) == before
    key.write_bytes((bridge.data / "tls/server.key").read_bytes())
    wait_until(lambda: spki_pin(presented(hasty.port)) != spki_pin(before), "it is served")
    wait_until(lambda: "the certificate has another key" in hasty.log.read_text(), "said")
    assert "the address changed" not in hasty.log.read_text()


def begin_a_request(bridge: Bridge, length: int) -> RawSocket:
    """A request that has begun to be answered, and lacks its body, which may be large."""
    client = RawSocket(bridge.port)
    client.socket.sendall(head(bridge, f"Content-Length: {length}", "Expect: 100-continue"))
    assert client.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    return client


def stops(bridge: Bridge) -> None:
    bridge.terminate()

    def refuses() -> bool:
        with suppress(OSError), socket.create_connection((LOOPBACK, bridge.port), 1):
            return False
        return True

    wait_until(refuses, "it listens no more")


def test_a_stop_finishes_requests_and_closes_sockets(bridge: Bridge) -> None:
    body = json.dumps(prompt(session := new_session(), "x" * MB)).encode()
    phone = bridge.phone().ready()
    with closing(begin_a_request(bridge, len(body))) as client:
        stops(bridge)
        client.socket.sendall(body)
        assert client.response().status == 200
    assert phone.wait_closed() == 1001
    assert bridge.ended() == 0
    assert running(bridge).knows(session)


def test_a_client_that_does_not_answer_holds_nobody_up(hasty: Bridge) -> None:
    with closing(RawSocket(hasty.port)) as silent, closing(begin_a_request(hasty, 9)):
        assert silent.upgrade().status == 101
        stops(hasty)
        assert hasty.ended() == 0


def test_a_stop_while_clients_shake_hands(bridge: Bridge) -> None:
    """Whatever each is in the middle of between TCP and an open socket."""
    begun = threading.Event()

    def knock() -> None:
        with suppress(OSError, EOFError):
            while True:
                with closing(RawSocket(bridge.port)) as client:
                    begun.set()
                    client.upgrade()

    clients = [threading.Thread(target=knock) for _ in range(6)]
    for client in clients:
        client.start()
    assert begun.wait(180)
    stops(bridge)
    assert bridge.ended() == 0
    for client in clients:
        client.join(180)


MALFORMED: tuple[dict[str, str | None], ...] = (
    {"Sec-WebSocket-Key": None},
    {"Sec-WebSocket-Key": "short"},
    {"Sec-WebSocket-Version": "7"},
    {"Sec-WebSocket-Version": "x"},
    {"Host": None},
    {"Sec-WebSocket-Protocol": "a, a"},
    {"Sec-WebSocket-Protocol": "\xff"},
)


def test_a_malformed_upgrade(bridge: Bridge) -> None:
    for changed in MALFORMED:
        with closing(RawSocket(bridge.port)) as client:
            assert_error(client.upgrade(headers=changed), 400, "VALIDATION_ERROR")


OFFERS = {
    "permessage-deflate; client_max_window_bits": True,
    "permessage-deflate; unknown=1, permessage-deflate": True,
    "permessage-deflate; server_max_window_bits=8, permessage-deflate": True,
    "permessage-deflate; server_max_window_bits=8": False,
    "x-webkit-deflate-frame": False,
}


def test_an_offer_that_is_not_taken_is_passed_over(bridge: Bridge) -> None:
    """RFC 7692, 5.1: the next one counts; without any the socket is as good (D58)."""
    for offer, taken in OFFERS.items():
        answer = upgraded(bridge.port, **{"Sec-WebSocket-Extensions": offer})
        assert answer.status == 101
        assert ("sec-websocket-extensions" in answer.headers) == taken, offer


@pytest.fixture
def phone(bridge: Bridge) -> Iterator[Phone]:
    """It offers permessage-deflate (D58)."""
    with closing(bridge.phone()) as made:
        made.compress = True
        yield made


@pytest.mark.parametrize("known", [True, False])
def test_a_bomb_is_not_inflated(bridge: Bridge, phone: Phone, known: bool) -> None:
    """Of a stranger not even a megabyte."""
    phone.ready() if known else phone.connect()
    before = bridge.memory()
    phone.send_raw("x" * (60 * MB if known else MB))
    assert phone.wait_closed() == 1009
    assert bridge.memory() - before < 30 * MB


def test_bombs_that_each_fit_are_taken_one_by_one(bridge: Bridge, phone: Phone) -> None:
    """What has not been handled is not inflated, what has been is not kept; others are answered."""
    phone.ready()
    with bridge.phones(1) as (other,):
        before = bridge.memory()
        for _ in range(15):
            phone.send_raw(" " * (9 * MB))
        other.ping()
        assert bridge.memory() - before < 60 * MB
    for _ in range(15):
        assert phone.expect("error")["payload"]["code"] == "PROTO_INVALID_MESSAGE"
    assert bridge.memory() - before < 60 * MB


def test_approvals_that_wait_are_sent_one_by_one(bridge: Bridge) -> None:
    """D30: a socket that takes none of them costs one, and not all."""
    session = new_session()
    for number in range(40):
        params = {"content": f"{number}" + "x" * MB}
        bridge.accept(pre(session, params, approval=True, tool_call_id=f"{number}"))
    token, before = bridge.device_token(), bridge.memory()
    with closing(RawSocket(bridge.port, receive_buffer=65536).ready(token)) as slow:
        while slow.read()["type"] != "approval_required":
            pass
        assert bridge.memory() - before < 25 * MB
    bridge.accept(hook("SessionEnd", session))


def test_pings_without_reading_cost_nothing(bridge: Bridge) -> None:
    before = bridge.memory()
    with closing(RawSocket(bridge.port).ready(bridge.device_token())) as client:
        ping, sent = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125, 0
        while sent < 2000 * len(ping):
            sent += client.socket.send(ping * 500)
        end = time.monotonic() + 1.5
        client.socket.settimeout(1)
        with suppress(TimeoutError):
            while time.monotonic() < end and sent < 40 * MB:
                sent += client.socket.send(ping * 500)
        assert bridge.memory() - before < 30 * MB


WITHOUT_IPV6 = """
import errno, socket
honest = socket.socket.__init__
def refusing(self, family=-1, *rest, **more):
    if family == socket.AF_INET6:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
    honest(self, family, *rest, **more)
socket.socket.__init__ = refusing
"""


@pytest.mark.parametrize("host", ["auto", "localhost"])
def test_a_machine_without_ipv6(tmp_path: Path, host: str) -> None:
    with QuickBridge(tmp_path, first=WITHOUT_IPV6, BRIDGE_HOST=host) as bridge:
        assert bridge.get("/api/v1/health", bridge.hook_token).status == 200
