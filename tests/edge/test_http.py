"""HTTP at the edge: the scope, caps before reading, deadlines, and errors in the form of D9."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from bridge_project.network import interfaces
from bridge_project.network.transport import ConnectionMode, mode_of_address
from tests.edge.edge import Edge, read_response, wait_for

MB = 2**20
SIX = {"error", "message", "code", "request_id", "timestamp", "documentation_url"}
FROM_PROXY = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "6.6.6.6, 9.9.9.9"}


def refused(edge: Edge, stream: socket.socket, status: int, code: str) -> dict[str, Any]:
    """The answer on a bare connection is this error, whole, and the connection ends with it."""
    given, headers, body = read_response(stream)
    found: dict[str, Any] = json.loads(body)
    assert (given, found["code"]) == (status, code)
    assert set(found) == SIX
    assert headers["connection"] == "close"
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"] == found["request_id"]
    assert found["documentation_url"] == f"https://127.0.0.1:{edge.port}/docs/errors/{code}"
    return found


# -- scope -----------------------------------------------------------------------------------------


def test_scope_from_a_trusted_proxy(edge: Edge) -> None:
    status, told = edge.get("/scope", FROM_PROXY, plain=True)
    assert status == 200
    assert (told["scheme"], told["secure"], told["mode"], told["via_proxy"]) == (
        "https",
        True,
        "direct_public",
        True,
    )
    assert told["client"] == ["9.9.9.9", 0]


def test_ipv6(edge: Edge) -> None:
    if "Listening on :: port" not in edge.log:
        pytest.skip("this machine has no IPv6")
    told = edge.get("/scope", host="::1")[1]
    assert told["client"][0] == "::1"
    assert told == told | {"mode": "local_only", "base_url": f"https://[::1]:{edge.port}"}


def test_a_forbidden_local_address_is_reset_before_tls(
    edge: Edge, start: Callable[..., Edge]
) -> None:
    public = [
        address
        for address in interfaces.local_addresses()
        if mode_of_address(address) is ConnectionMode.DIRECT_PUBLIC
    ]
    if not public:
        pytest.skip("this machine has no address that `auto` refuses")
    with pytest.raises((ConnectionError, ssl.SSLEOFError)):
        edge.stream(public[0])
    # started, not forked: the middleware has its settings since its import
    named = start(BRIDGE_HOST=public[0], cold=True)
    assert named.get("/scope", host=public[0])[1]["mode"] == "direct_public"


def test_no_client_chooses_the_root_path(edge: Edge) -> None:
    assert edge.get("/scope", {"Daphne-Root-Path": "/scope"})[1]["root_path"] == ""


def test_no_warning_and_no_query_in_the_log(edge: Edge) -> None:
    edge.get("/scope?token=secret")
    wait_for(lambda: "INFO bridge.access GET /scope 200 127.0.0.1" in edge.log)
    assert "secret" not in edge.log
    assert "WARNING" not in edge.log.partition("GET")[0]
    assert "Warning" not in edge.log.partition("GET")[0]


# -- insecure --------------------------------------------------------------------------------------


def test_plain_http_is_refused_before_the_body(edge: Edge) -> None:
    with edge.stream(plain=True) as stream:
        stream.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
        refused(edge, stream, 403, "INSECURE_TRANSPORT")


def test_http_on_the_tls_port_is_told_so(edge: Edge) -> None:
    with socket.create_connection(("127.0.0.1", edge.port), timeout=180) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, body = read_response(stream)
        assert (status, body) == (400, b"This port speaks https and wss only.\n")
        assert stream.recv(1) == b""
    assert "Traceback" not in edge.log


def test_garbage_on_the_tls_port_is_dropped(edge: Edge) -> None:
    with socket.create_connection(("127.0.0.1", edge.port), timeout=180) as stream:
        stream.sendall(b"\x16\x03\x01\x00\x05hello" * 10)
        with suppress(ConnectionError):
            while stream.recv(4096):
                pass
    assert edge.get("/scope")[0] == 200


# -- bodies ----------------------------------------------------------------------------------------


def test_a_body_of_exactly_the_limit(edge: Edge) -> None:
    connection = edge.http()
    connection.request("POST", "/echo", body=b"x" * (10 * MB))
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())) == (200, {"size": 10 * MB})
    connection.request(
        "POST",
        "/echo",
        body=iter([b"y" * MB] * 10),
        encode_chunked=True,
        headers={"Transfer-Encoding": "chunked"},
    )
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())) == (200, {"size": 10 * MB})
    connection.close()


def test_expect_100_continue(edge: Edge) -> None:
    with edge.stream() as stream:
        stream.sendall(
            b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        )
        assert stream.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        stream.sendall(b"body")
        assert read_response(stream)[2] == b'{"size": 4}'
    with edge.stream() as stream:
        stream.sendall(
            b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 400000000\r\n\r\n"
        )
        refused(edge, stream, 413, "PAYLOAD_TOO_LARGE")


def test_a_form_is_not_read_by_the_edge(edge: Edge) -> None:
    """twisted would parse it in memory and answer a broken one itself."""
    connection = edge.http()
    connection.request(
        "POST",
        "/echo",
        body=b"no form",
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )
    assert json.loads(connection.getresponse().read()) == {"size": 7}
    connection.close()


# -- bad requests ----------------------------------------------------------------------------------


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
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /?\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x85b\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: \xff\r\n\r\n",
]


def test_what_is_not_http_gets_400(edge: Edge) -> None:
    """All at once: the bridge waits a moment for each to read its answer before it hangs up."""
    with ExitStack() as closing:
        streams = [closing.enter_context(edge.stream()) for _ in NOT_HTTP]
        for stream, request in zip(streams, NOT_HTTP, strict=True):
            stream.sendall(request)
        for stream, request in zip(streams, NOT_HTTP, strict=True):
            refused(edge, stream, 400, "VALIDATION_ERROR")
            assert stream.recv(1) == b"", f"the connection ends with it: {request[:40]!r}"
    assert edge.get("/scope")[0] == 200


@pytest.mark.parametrize("path", ["/raise", "/nothing"])
def test_an_application_that_fails(edge: Edge, path: str) -> None:
    status, body = edge.get(path, {"X-Request-ID": f"of{path[1:]}"})
    assert status == 500
    assert body["code"] == "INTERNAL_ERROR"
    assert set(body) == SIX
    assert body["request_id"] == f"of{path[1:]}"
    if path == "/raise":
        assert "request_id ofraise): on purpose" in edge.log


def test_half_an_answer_is_cut(edge: Edge) -> None:
    with edge.stream() as stream:
        stream.sendall(b"GET /half HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises((http.client.IncompleteRead, ConnectionError, ssl.SSLError)):
            read_response(stream)


def test_pipelined_and_kept_alive(edge: Edge) -> None:
    with edge.stream() as stream:
        stream.sendall(
            b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        )
        reader = stream.makefile("rb")
        text = b""
        while b'{"size": 3}' not in text:
            text += reader.read1(4096)
        assert text.count(b"HTTP/1.1 200 OK") == 2
        assert text.index(b'{"size": 0}') < text.index(b'{"size": 3}')
        reader.close()


# -- deadlines -------------------------------------------------------------------------------------


def test_what_does_not_arrive_is_cut(start: Callable[..., Edge]) -> None:
    """With the deadline at one second: neither silence nor dripping outlives it, before, in or
    after a TLS handshake.
    """
    edge = start("hasty")
    began = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", edge.port), timeout=60) as handshake,
        edge.stream() as silent,
        edge.stream() as dripping,
    ):
        handshake.sendall(b"\x16\x03\x01")
        silent.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nbody")
        dripping.sendall(b"GET / HTTP/1.1\r\n")
        dripping.settimeout(0.2)
        while not cut(dripping):
            assert time.monotonic() - began < 60
            with suppress(OSError):
                dripping.sendall(b"X-Drip: 1\r\n")
        assert cut(handshake) and cut(silent)
    assert time.monotonic() - began > 0.9


def cut(stream: socket.socket) -> bool:
    """Whether the server has ended the connection; False when nothing came within the socket's own
    time.
    """
    try:
        return stream.recv(100) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_client_that_never_closes_is_closed(start: Callable[..., Edge]) -> None:
    """TLS waits for the other side's farewell; not for ever."""
    edge = start("hasty")
    with edge.stream() as stream, socket.socket(fileno=os.dup(stream.fileno())) as below:
        stream.sendall(b"GET /scope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_response(stream)[0] == 200
        below.settimeout(6)
        while not cut(below):
            pass
