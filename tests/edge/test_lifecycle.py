"""How the server starts, renews its certificate, and ends (D19, D44, STACK pitfall 1)."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from websockets.exceptions import ConnectionClosed

from tests.edge.edge import UPGRADE, Edge, wait_for


def presented(edge: Edge) -> tuple[str, str]:
    """Fingerprint and pin of the certificate that a new connection gets."""
    with edge.stream() as stream:
        assert isinstance(stream, ssl.SSLSocket)
        der = stream.getpeercert(binary_form=True)
    assert der is not None
    spki = (
        x509.load_der_x509_certificate(der)
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return sha256(der).hexdigest(), sha256(spki).hexdigest()


def test_renewal_is_served_without_a_restart(start: Callable[..., Edge]) -> None:
    edge = start()
    with edge.websocket() as websocket:
        fingerprint, pin = presented(edge)
        (edge.data / "tls" / "server.crt").unlink()
        wait_for(lambda: presented(edge)[0] != fingerprint)
        assert presented(edge)[1] == pin
        websocket.send("still here")
        assert websocket.recv(10) == "still here"


def test_a_certificate_that_breaks_leaves_the_old_one_in_use(start: Callable[..., Edge]) -> None:
    edge = start()
    before = presented(edge)
    (edge.data / "tls" / "server.key").write_text("broken")
    wait_for(lambda: "the old one stays in use: BRIDGE_DATA_DIR" in edge.log)
    assert presented(edge) == before


def test_tls_1_3_and_not_h2_are_chosen(start: Callable[..., Edge]) -> None:
    edge = start()
    context = edge.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with context.wrap_socket(
        socket.create_connection(("127.0.0.1", edge.port)), server_hostname="localhost"
    ) as stream:
        assert (stream.version(), stream.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")


USED = "is in use by another program; stop it, or set"


@pytest.mark.parametrize("setting", ["BRIDGE_PORT", "BRIDGE_PLAIN_PORT", "BRIDGE_HOST", "none"])
def test_what_stops_the_start_is_one_line(tmp_path: Path, setting: str) -> None:
    with socket.create_server(("0.0.0.0", 0)) as other:
        taken = str(other.getsockname()[1])
        wrong = {"BRIDGE_HOST": "203.0.113.77"}.get(setting, taken)
        edge = Edge(tmp_path / "data", *(["fail"] if setting == "none" else []))
        edge.environment |= {"BRIDGE_HOST": "127.0.0.1", setting: wrong}
        edge.spawn()
        assert edge.ended() == 1
    said = {
        "BRIDGE_HOST": "BRIDGE_HOST: 203.0.113.77 is not an address of this machine\n",
        "none": "BRIDGE_TEST: on_start failed\n",
    }
    used = f"{setting}: port {taken} {USED} {setting} to a free port\n"
    assert edge.log == said.get(setting, used)
    edge.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_closes_sockets_and_finishes_requests(
    start: Callable[..., Edge], number: signal.Signals
) -> None:
    edge = start()
    answers: list[object] = []
    request = threading.Thread(target=lambda: answers.append(edge.get("/slow")))
    request.start()
    idle = edge.http()
    idle.request("GET", "/scope")
    idle.getresponse().read()
    wait_for(lambda: edge.stats().get("slow"))
    with edge.websocket() as websocket:
        websocket.send("hello")
        assert websocket.recv(60) == "hello"
        began = time.monotonic()
        edge.terminate(number)
        with pytest.raises(ConnectionClosed) as raised:
            websocket.recv(60)
        assert raised.value.rcvd is not None and raised.value.rcvd.code == 1001
        assert edge.ended() == 0
    assert time.monotonic() - began < 60
    request.join()
    assert answers == [(200, {"size": 0})]
    assert (edge.data / "stopped").read_text() == "1", "on_stop came after the sockets were closed"
    assert "Traceback" not in edge.log and "ERROR" not in edge.log and "WARNING" not in edge.log
    idle.close()


def test_a_client_that_does_not_answer_holds_nobody_up_for_long(start: Callable[..., Edge]) -> None:
    edge = start("hasty")
    with edge.stream() as silent, edge.stream() as half:
        half.sendall(b"GET /half-a-request HTTP/1.1\r\n")
        silent.sendall(UPGRADE)
        assert silent.recv(1000).startswith(b"HTTP/1.1 101")
        wait_for(lambda: edge.stats()["connected"])
        edge.terminate()
        assert edge.ended(9) == 0


def test_a_second_signal_ends_at_once(start: Callable[..., Edge]) -> None:
    edge = start()
    with edge.stream() as stream:
        # in flight, and never complete
        stream.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        stream.sendall(b"1")
        edge.get("/scope")
        edge.terminate()
        wait_for((edge.data / "stopped").exists)
        edge.terminate()
        assert edge.ended(2) == 128 + signal.SIGTERM


def test_a_stop_at_any_moment_of_a_handshake(start: Callable[..., Edge]) -> None:
    """Each while clients are somewhere between TCP and an open socket."""
    for round_ in range(3):
        pair = [start("unready"), start("unready")]
        clients = [threading.Thread(target=knock, args=(edge,)) for edge in pair for _ in range(3)]
        for edge in pair:
            edge.ready()
        for client in clients:
            client.start()
        for edge in pair:
            wait_for(lambda edge=edge: "connected" in edge.log)  # type: ignore[misc]
            time.sleep(round_ * 0.005)  # the moment is what varies
            edge.terminate()
        for edge in pair:
            assert edge.ended() == 0
            assert (
                "Traceback" not in edge.log
                and "ERROR" not in edge.log
                and "WARNING" not in edge.log
            ), edge.log
        for client in clients:
            client.join()


def knock(edge: Edge) -> None:
    """Upgrades, some of them slow to be accepted, until nobody answers."""
    with contextlib.suppress(OSError):
        for path in ("/ws", "/hesitant", "/denied") * 100:
            with edge.stream() as stream:
                stream.sendall(UPGRADE.replace(b"/ws", path.encode()))
                stream.recv(1000)
