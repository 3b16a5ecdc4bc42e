"""daphne without `serve` refuses what `serve` refuses (D18 to D20, D61)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from bridge_project.http.transport_middleware import TransportMiddleware
from tests.conformance.bridge import Bridge, query
from tests.conformance.https import Https, assert_error
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket
from tests.conformance.samples import new_session, prompt
from tests.conformance.test_home_screen import until
from tests.faults.quick import QuickBridge
from tests.hooks.conftest import run_hook
from tests.servers import free_port

pytestmark = pytest.mark.slow

# an address of loopback that the bridge trusts as a proxy; 127.0.0.1 it does not
PROXY = "127.0.0.2"
CHAIN = ("server.crt", "ca.crt")
APPLICATION = "bridge_project.asgi:application"
PROXIED = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9, 192.168.7.7"}
SESSION_START = Path(__file__).parent.parent / "fixtures" / "hooks" / "SessionStart-startup.json"


class Daphne(QuickBridge):
    """`python -m daphne`: one endpoint with the bridge's certificate, one in the clear."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, BRIDGE_TRUSTED_PROXIES=PROXY, BRIDGE_MAX_MESSAGE_MB="1")
        self.plain_port = free_port()

    def spawn(self) -> Daphne:
        tls = self.data / "tls"
        keys = f"privateKey={tls / 'server.key'}:certKey={tls / 'server.crt'}"
        endpoint = f"ssl:{self.port}:interface=127.0.0.1:{keys}:extraCertChain={tls / 'ca.crt'}"
        arguments = ["-m", "daphne", "-e", endpoint, "-p", str(self.plain_port), APPLICATION]
        with self.log.open("ab") as log:
            self.process = Bridge.popen(self, arguments, log)
        return self

    def refused(self, *options: str) -> str:
        """Run one more daphne on this data directory, which must end; what it says."""
        arguments = ["-m", "daphne", *options, "-p", str(free_port()), APPLICATION]
        done = Bridge.run(self, arguments)
        assert done.returncode == 1, done
        return done.stderr.strip()

    def plain(self, source: str | None = None) -> Https:
        return Https(self.plain_port, plain=True, source=source)


def prepared(directory: Path, kind: type[Daphne] = Daphne) -> Daphne:
    """On a data directory that `serve` has made and left."""
    with QuickBridge(directory):
        return kind(directory)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daphne]:
    with prepared(tmp_path_factory.mktemp("daphne")) as running:
        yield running


LIES = [(None, {}), (None, PROXIED), (PROXY, {"X-Forwarded-Proto": "http"}), (PROXY, {})]


@pytest.mark.parametrize(("source", "headers"), LIES, ids=str)
def test_in_the_clear(bridge: Daphne, source: str | None, headers: dict[str, str]) -> None:
    """A hook event, a request and a socket are refused, twice each: once the first was taken."""
    session_id = new_session()
    for _ in range(2):
        sent = {"token": bridge.hook_token, "json_body": prompt(session_id, 1), "headers": headers}
        answer = bridge.plain(source).post("/api/v1/hooks/event", **sent)
        assert_error(answer, 403, "INSECURE_TRANSPORT")
        assert_error(bridge.plain(source).get("/api/v1/health", headers=headers), 403)
        phone = Phone(bridge.plain_port, "any", plain=True, source=source).connect(headers=headers)
        error = phone.receive()
        assert error["type"] == "connection_error", error
        assert error["payload"]["code"] == "INSECURE_TRANSPORT"
        assert phone.wait_closed() == 4403
    assert not bridge.knows(session_id)


def test_where_daphne_ends_tls(bridge: Daphne, phone: Phone) -> None:
    """All works by the pin and address of the pairing, the agent's own hooks too."""
    session_id = new_session()
    for number in range(3):
        assert bridge.post_hook(prompt(session_id, number)).status == 200
    phone.join(session_id)
    phone.wait_numbers(session_id, [0, 1, 2])

    spooled = new_session()
    event = json.loads(SESSION_START.read_text()) | {"session_id": spooled}
    run_hook(bridge.data / "spool", json.dumps(event).encode())
    phone.expect("session_started", session_id=spooled)
    pairing = bridge.mint()
    assert pairing.url == f"wss://127.0.0.1:{bridge.port}/api/v1/ws"
    assert bridge.phone(pairing).connect().auth()["payload"]["bridge_url"] == pairing.url


def test_behind_a_trusted_proxy(bridge: Daphne) -> None:
    """The client is the rightmost hop that is no trusted proxy: a private address."""
    sent = {"token": bridge.hook_token, "json_body": prompt(new_session(), 1), "headers": PROXIED}
    assert bridge.plain(PROXY).post("/api/v1/hooks/event", **sent).status == 200
    phone = Phone(bridge.plain_port, bridge.device_token(), plain=True, source=PROXY)
    phone.connect(headers=PROXIED)
    assert phone.auth()["payload"]["connection_mode"] == "private_network"
    assert phone.health_check()["payload"]["ready"] is True
    phone.close()


def test_a_body_over_the_limit(bridge: Daphne) -> None:
    body = b'{"event": "' + b"x" * (1 << 20) + b'"}'
    answer = bridge.https().post("/api/v1/hooks/event", token=bridge.hook_token, body=body)
    assert_error(answer, 413, "PAYLOAD_TOO_LARGE")


def test_a_second_server_is_refused(bridge: Daphne) -> None:
    for line in (bridge.refused(), bridge.manage("serve", check=False).stderr.strip()):
        assert "A bridge runs with" in line and "\n" not in line
        assert str(bridge.running.pid) in line
    assert bridge.get("/api/v1/health", bridge.hook_token).status == 200


def test_what_is_not_ready_ends_with_one_line(tmp_path: Path) -> None:
    never = Daphne(tmp_path / "never")
    line = never.refused()
    assert "was never made ready" in line and "make run" in line and "\n" not in line
    assert not never.data.exists(), "nothing is made of what was not there"

    behind = prepared(tmp_path / "behind")
    query(behind.data / "bridge.sqlite3", "DELETE FROM django_migrations WHERE app = 'hooks_app'")
    line = behind.refused()
    assert "waits for migrations" in line and "\n" not in line

    assert behind.refused("--proxy-headers").startswith("--proxy-headers: ")


def test_it_stops_in_order(bridge: Daphne) -> None:
    """SIGTERM, with a phone connected, gives its lease back, and the directory."""
    bridge.phone().ready()
    bridge.terminate()
    assert bridge.ended() == 0
    assert lease_is_over(bridge)
    bridge.start()


def lease_is_over(bridge: Bridge) -> bool:
    latest = "SELECT max(lease_until) FROM sessions_app_process"
    [(until,)] = query(bridge.data / "bridge.sqlite3", latest)
    return datetime.fromisoformat(until + "+00:00") <= datetime.now(UTC)


LIFESPAN = """
import asyncio, json
from asgiref.testing import ApplicationCommunicator
from bridge_project.asgi import application

async def main():
    server = ApplicationCommunicator(application, {"type": "lifespan", "asgi": {"version": "3.0"}})
    for event in ("startup", "shutdown"):
        await server.send_input({"type": f"lifespan.{event}"})
        told = await server.receive_output(180)
        print(json.dumps(told), flush=True)
        if "failed" in told["type"]:
            break

asyncio.run(main())
"""


def test_a_server_that_has_a_lifespan(tmp_path: Path) -> None:
    """It is told when the work runs, and why it cannot; at its end the work stops in order."""
    done = Bridge.run(Daphne(tmp_path / "never"), ["-c", LIFESPAN])
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["type"] == "lifespan.startup.failed", done
    assert "was never made ready" in told["message"] and "\n" not in told["message"]

    ready = prepared(tmp_path / "ready")
    done = Bridge.run(ready, ["-c", LIFESPAN])
    told = [json.loads(line)["type"] for line in done.stdout.splitlines() if "lifespan" in line]
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"], done
    assert done.returncode == 0 and lease_is_over(ready)


class Uvicorn(Daphne):
    def spawn(self) -> Uvicorn:
        tls = self.data / "tls"
        (tls / "chain.crt").write_bytes(b"".join(tls.joinpath(name).read_bytes() for name in CHAIN))
        keys = ["--ssl-keyfile", str(tls / "server.key"), "--ssl-certfile", str(tls / "chain.crt")]
        arguments = ["-m", "uvicorn", "--port", str(self.port), *keys, APPLICATION]
        with self.log.open("ab") as log:
            self.process = Bridge.popen(self, arguments, log)
        return self


def test_a_slow_phone_where_the_server_waits_in_send(tmp_path: Path) -> None:
    """What others are told of sessions does not wait for it (D54, D61)."""
    pytest.importorskip("uvicorn")
    session = new_session()
    with prepared(tmp_path, Uvicorn) as bridge, bridge.phones() as (phone,):
        bridge.accept(prompt(session, 0))
        (bridge.root / "large").write_text("x" * 1_000_000)
        slow = RawSocket(bridge.port, receive_buffer=65536).ready(bridge.device_token())
        joining = {"agent": "a", "session_id": session, "working_directory": "/", "resume": False}
        slow.read_until(slow.send("session_start", joining))
        phone.join(session)
        large = {"session_id": session, "path": str(bridge.root / "large")}
        for _ in range(10):  # more than the network holds
            slow.send("file_read", large)
        for _ in range(10):  # each takes as long as one of the other's
            phone.request("file_read", large)
        for number in range(5):
            told = new_session()
            bridge.accept(prompt(told, number))
            until(phone, told, bool)
        slow.socket.close()


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_server_that_believes_a_header(kind: str) -> None:
    """Uvicorn takes a scheme and a client from any peer on loopback: that is plain."""
    inside, send = AsyncMock(), AsyncMock()
    receive = AsyncMock(return_value={"type": f"{kind}.connect"})
    headers = [(b"x-forwarded-proto", b"https"), (b"x-forwarded-for", b"10.9.9.9")]
    scope: dict[str, Any] = {"type": kind, "path": "/api/v1/health", "headers": headers}
    scope |= {"scheme": "https" if kind == "http" else "wss", "client": ("10.9.9.9", 0)}
    await TransportMiddleware(inside)(scope | {"server": ("127.0.0.1", 8000)}, receive, send)
    assert "INSECURE_TRANSPORT" in str(send.mock_calls) and not inside.mock_calls
