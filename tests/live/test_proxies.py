"""The bridge behind nginx and Caddy: what clients see, what it knows of them (D18 to D20)."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.https import LOOPBACK, Https, Response
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, prompt
from tests.faults.quick import QuickBridge
from tests.live.proxy import Site, caddy, make_site, nginx, running
from tests.servers import free_port

NAME = "desk.tail1234.ts.net"
EVENT = "/api/v1/hooks/event"
PROXIES = {"nginx": nginx, "caddy": caddy}
CLIENT = "127.0.0.9"  # not the proxy's own address, which is the only trusted one


@dataclass
class Front:
    """A bridge, the site of the proxy before it, and its port."""

    bridge: Bridge
    site: Site
    port: int

    def dial(self, timeout: float) -> socket.socket:
        """Connect to the public name from an address of its own; the certificate is verified."""
        address, source = (LOOPBACK, self.port), (CLIENT, 0)
        raw = socket.create_connection(address, timeout, source_address=source)
        return self.site.context.wrap_socket(raw, server_hostname=self.site.name)

    def request(self, method: str, path: str, **more: Any) -> Response:
        headers = {"Host": self.site.name} | more.pop("headers", {})
        https = Https(self.port, plain=True, dial=self.dial)
        return https.request(method, path, headers=headers, **more)

    @contextmanager
    def phone(self) -> Iterator[Phone]:
        phone = Phone(self.port, self.bridge.device_token(), plain=True, dial=self.dial)
        phone.host = self.site.name
        try:
            yield phone
        finally:
            phone.close()

    def post(self, body: dict[str, Any]) -> None:
        answer = self.request("POST", EVENT, token=self.bridge.hook_token, json_body=body)
        assert answer.status == 200, answer

    def logged(self, words: str) -> list[str]:
        """The access log's lines that hold these words."""
        lines = (self.bridge.data / "logs/bridge.log").read_text().splitlines()
        return [text for text in (json.loads(line)["event"] for line in lines) if words in text]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bridge, Site]]:
    """Its address is a tunnel's."""
    directory = tmp_path_factory.mktemp("tunnel")
    settings = {"BRIDGE_PUBLIC_URL": f"https://{NAME}", "BRIDGE_TRUSTED_PROXIES": "127.0.0.1"}
    plain_port = str(free_port())
    with QuickBridge(directory / "bridge", BRIDGE_PLAIN_PORT=plain_port, **settings) as bridge:
        yield bridge, make_site(directory, NAME)


@pytest.fixture(scope="module", params=PROXIES)
def front(
    request: pytest.FixtureRequest,
    served: tuple[Bridge, Site],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Front]:
    """With the shipped file of that proxy."""
    (bridge, site), port = served, free_port()
    directory, plain_port = tmp_path_factory.mktemp("proxy"), bridge.settings["BRIDGE_PLAIN_PORT"]
    command = PROXIES[request.param](directory, port, int(plain_port), site)
    with running(directory, command, port):
        yield Front(bridge, site, port)


def test_an_event_goes_in_and_comes_out_by_the_proxy(front: Front) -> None:
    """The whole conversation; the mode is that of the address (D20)."""
    session = new_session()
    front.post(hook("SessionStart", session))
    with front.phone() as phone:
        phone.connect()
        acknowledged = phone.auth()["payload"]
        assert acknowledged["connection_mode"] == "secure_remote"
        assert acknowledged["bridge_url"].startswith(f"wss://{NAME}")
        status = phone.health_check()["payload"]
        assert status["ready"] is True and status["warnings"] == []
        phone.join(session)
        for number in range(20):
            front.post(prompt(session, number))
        phone.wait_numbers(session, range(20))


ELSEWHERE = "203.0.113.7"
LIES: list[dict[str, str]] = [
    {},
    {"X-Forwarded-For": f"{ELSEWHERE}, 127.0.0.1"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http"},
    dict.fromkeys(("X-Real-IP", "CF-Connecting-IP", "True-Client-IP"), ELSEWHERE),
    {"Forwarded": f"for={ELSEWHERE};proto=http", "X-Forwarded-Port": "80"},
    {"X-Forwarded-Host": "elsewhere.example"},
]


def test_the_bridge_knows_the_client_whatever_it_says_of_itself(front: Front) -> None:
    """Neither another address nor another transport nor another mode is believed."""
    page, socket = f"GET /docs 200 {CLIENT} ", f"WebSocket /api/v1/ws connected {CLIENT}"
    pages, sockets = len(front.logged(page)), len(front.logged(socket))
    for number, lie in enumerate(LIES, 1):
        assert front.request("GET", "/docs", headers=lie).status == 200
        with front.phone() as phone:
            phone.connect(headers=lie)
            assert phone.auth()["payload"]["connection_mode"] == "secure_remote"
        eventually(lambda number=number: len(front.logged(page)) >= pages + number)
        eventually(lambda number=number: len(front.logged(socket)) >= sockets + number)


def test_the_largest_body_passes(front: Front) -> None:
    body = json.dumps(prompt(new_session(), 1)).encode()
    body = body.ljust(limits.MAX_MESSAGE_SIZE_MB * limits.MB)
    answer = front.request("POST", EVENT, token=front.bridge.hook_token, body=body)
    assert answer.status == 200, answer
