"""The bridge behind nginx and Caddy: what clients see, what it knows of them (D18 to D20)."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.https import Https, Response, spki_pin
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, prompt
from tests.faults.quick import QuickBridge
from tests.live.proxy import (
    STREAM_MODULE,
    ProxiedHttps,
    ProxiedPhone,
    Site,
    caddy,
    dial,
    make_site,
    nginx,
    nginx_stream,
    running,
)
from tests.servers import free_port

BODY_MAX = limits.MAX_MESSAGE_SIZE_MB * limits.MB
# where their clients are: not at the proxy's own address, which is the only trusted one
CLIENTS = {"nginx": "127.0.0.9", "caddy": "127.0.0.10"}


@dataclass
class Front:
    """A bridge, the site of the proxy before it, its port, and where the clients are."""

    bridge: Bridge
    site: Site
    port: int
    client: str

    @property
    def https(self) -> Https:
        return ProxiedHttps(self.port, self.site, self.client)

    @contextmanager
    def phone(self, token: str | None = None) -> Iterator[Phone]:
        phone = ProxiedPhone(self.port, token or self.bridge.device_token(), self.site, self.client)
        try:
            yield phone
        finally:
            phone.close()

    def post(self, body: dict[str, object]) -> None:
        token = self.bridge.hook_token
        answer = self.https.post("/api/v1/hooks/event", token=token, json_body=body)
        assert answer.status == 200, answer

    def serves(self, **more: Any) -> None:
        """A request through the proxy is logged as the client's, and as nobody else's."""
        page, before = "GET /docs 200", len(self.logged("GET /docs 200"))
        assert self.https.get("/docs", **more).status == 200
        lines = eventually(lambda: self.logged(page)[before:])
        assert len(lines) == 1 and f"{page} {self.client} " in lines[0], lines

    def logged(self, words: str) -> list[str]:
        """The access log's lines that hold these words."""
        lines = (self.bridge.data / "logs/bridge.log").read_text().splitlines()
        return [text for text in (json.loads(line)["event"] for line in lines) if words in text]


Served = tuple[Bridge, Site]


@contextmanager
def served(directory: Path, name: str, *, given: bool = True) -> Iterator[Served]:
    """``given``: the bridge has the proxy's certificate."""
    site, settings = make_site(directory, name), dict[str, str]()
    if given:
        settings = {"BRIDGE_TLS_CERT": str(site.chain), "BRIDGE_TLS_KEY": str(site.key)}
    settings |= {"BRIDGE_PUBLIC_URL": f"https://{name}", "BRIDGE_TRUSTED_PROXIES": "127.0.0.1"}
    plain_port = str(free_port())
    with QuickBridge(directory / "bridge", BRIDGE_PLAIN_PORT=plain_port, **settings) as bridge:
        yield bridge, site


@pytest.fixture(scope="module")
def of_tunnel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Its address is a tunnel's, and it was given the proxy's certificate."""
    with served(tmp_path_factory.mktemp("tunnel"), "desk.tail1234.ts.net") as made:
        yield made


@pytest.fixture(scope="module")
def of_public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Its address is an ordinary name, its certificate its own."""
    with served(tmp_path_factory.mktemp("public"), "bridge.example", given=False) as made:
        yield made


@contextmanager
def before(kind: str, made: Served, directory: Path, **change: str) -> Iterator[Front]:
    """A proxy with the shipped file, in which `change` says what to replace by what."""
    (bridge, site), port = made, free_port()
    configured = {"nginx": nginx, "caddy": caddy}[kind]
    plain_port = int(bridge.settings["BRIDGE_PLAIN_PORT"])
    command = configured(directory, port, plain_port, site, change)
    with running(directory, command, port):
        yield Front(bridge, site, port, CLIENTS[kind])


@pytest.fixture(scope="module", params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tunnel(
    kind: str, of_tunnel: Served, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    with before(kind, of_tunnel, tmp_path_factory.mktemp(kind)) as front:
        yield front


# -- a tunnel's address ----------------------------------------------------------------------------


def test_an_event_goes_in_and_comes_out_by_the_proxy(tunnel: Front) -> None:
    """The whole conversation; the mode is that of the address (D20)."""
    session = new_session()
    tunnel.post(hook("SessionStart", session))
    with tunnel.phone() as phone:
        phone.connect()
        acknowledged = phone.auth()["payload"]
        assert acknowledged["connection_mode"] == "secure_remote"
        assert acknowledged["bridge_url"].startswith("wss://desk.tail1234.ts.net")
        status = phone.health_check()["payload"]
        assert status["ready"] is True and status["warnings"] == []
        phone.join(session)
        for number in range(20):
            tunnel.post(prompt(session, number))
        phone.wait_numbers(session, range(20))
        phone.ack(*phone.events(session))


ELSEWHERE = "203.0.113.7"
LIES: list[dict[str, str]] = [
    {},
    {"X-Forwarded-For": ELSEWHERE},
    {"X-Forwarded-For": f"{ELSEWHERE}, 127.0.0.1"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http"},
    dict.fromkeys(("X-Real-IP", "CF-Connecting-IP", "True-Client-IP"), ELSEWHERE),
    {"Forwarded": f"for={ELSEWHERE};proto=http", "X-Forwarded-Port": "80"},
    {"X-Forwarded-Host": "elsewhere.example"},
]


def test_the_bridge_knows_the_client_whatever_it_says_of_itself(tunnel: Front) -> None:
    """Neither another address nor another transport nor another mode is believed."""
    for number, lie in enumerate(LIES, 1):
        tunnel.serves(headers=lie)
        with tunnel.phone() as phone:
            phone.connect(headers=lie)
            assert phone.auth()["payload"]["connection_mode"] == "secure_remote"
            line = f"WebSocket /api/v1/ws connected {tunnel.client}"
            eventually(lambda line=line, number=number: len(tunnel.logged(line)) >= number)


def test_the_pin_is_the_proxys_when_its_certificate_was_given(tunnel: Front) -> None:
    """D43: what a paired phone compares is what it meets."""
    with dial(tunnel.port, tunnel.site) as sock:
        certificate = sock.getpeercert(binary_form=True)
    assert certificate is not None
    pairing = tunnel.bridge.pairing()
    assert pairing.pin == spki_pin(certificate)
    assert pairing.url == "wss://desk.tail1234.ts.net/api/v1/ws"


def test_a_refusal_reaches_the_phone_whole(tunnel: Front) -> None:
    """The message, then the close code that goes with it."""
    with tunnel.phone("bridge_device_" + "x" * 43) as phone:
        phone.connect()
        assert phone.auth()["payload"]["code"] == "AUTH_FAILED"
        assert phone.wait_closed() == 4401
    with tunnel.phone() as phone, pytest.raises(InvalidStatus) as refused:
        phone.connect(headers={"Authorization": "Bearer bridge_device_" + "x" * 43})
    assert refused.value.response.status_code == 401


def post_body(https: Https, token: str, body: bytes) -> Response:
    """Send it whole or as far as it is taken, then read the answer."""
    connection = https.open()
    try:
        with suppress(OSError):  # refused while it was being sent; why stands in the answer
            return https.post("/api/v1/hooks/event", token=token, body=body, connection=connection)
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        return Response(answer.status, {}, answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("size", "status"), [(BODY_MAX, 200), (BODY_MAX + 1, 413), (BODY_MAX + 3 * limits.MB, 413)]
)
def test_the_limit_of_a_body_is_the_bridges(tunnel: Front, size: int, status: int) -> None:
    """The proxy lets through what the bridge takes, and not much more."""
    body = json.dumps(prompt(new_session(), 1)).encode().ljust(size)
    for https in (tunnel.bridge.https(), tunnel.https):
        assert post_body(https, tunnel.bridge.hook_token, body).status == status


# -- nginx alone -----------------------------------------------------------------------------------


def test_heartbeats_keep_a_quiet_connection_open(of_tunnel: Served, tmp_path: Path) -> None:
    """They come before nginx's proxy_read_timeout, which cuts what is quiet."""
    assert 120 > limits.LIVENESS_SECONDS > limits.HEARTBEAT_INTERVAL_SECONDS
    shortened = {
        f"proxy_{which}_timeout 120s;": f"proxy_{which}_timeout 4s;" for which in ("read", "send")
    }
    with (
        before("nginx", of_tunnel, tmp_path, **shortened) as front,
        front.phone() as quiet,
        front.phone() as alive,
    ):
        quiet.ready()
        alive.ready()
        for _ in range(6):
            with pytest.raises(TimeoutError):
                alive.receive(1)
            alive.ping()
        assert quiet.wait_closed() == 1006
        alive.ping()


def test_a_proxy_elsewhere_speaks_tls_to_the_bridge(of_public: Served, tmp_path: Path) -> None:
    """D19: it verifies the bridge's own authority, and is believed all the same."""
    bridge, _ = of_public
    verified = f'proxy_ssl_verify on; proxy_ssl_trusted_certificate "{bridge.data}/tls/ca.crt";'
    encrypted = {
        f"proxy_pass http://127.0.0.1:{bridge.settings['BRIDGE_PLAIN_PORT']};": (
            f"proxy_pass https://127.0.0.1:{bridge.port}; {verified} proxy_ssl_name localhost;"
        )
    }
    with before("nginx", of_public, tmp_path, **encrypted) as front, front.phone() as phone:
        phone.connect()
        assert phone.auth()["payload"]["connection_mode"] == "direct_public"
        front.serves()


@pytest.mark.skipif(
    not STREAM_MODULE.exists(), reason="no stream module (Debian: apt install libnginx-mod-stream)"
)
def test_tcp_passed_on_needs_nothing(of_public: Served, tmp_path: Path) -> None:
    """D20: the pin of the pairing holds; BRIDGE_PUBLIC_URL says what the address cannot."""
    (bridge, _), port, session = of_public, free_port(), new_session()
    with running(tmp_path, nginx_stream(tmp_path, port, bridge.port), port):
        pairing = bridge.pairing()
        phone = Phone(port, pairing.token, pairing.pin)
        phone.connect()
        assert phone.auth()["payload"]["connection_mode"] == "direct_public"
        https, event = Https(port, pairing.pin), hook("SessionStart", session)
        answer = https.post("/api/v1/hooks/event", token=bridge.hook_token, json_body=event)
        assert answer.status == 200 and bridge.knows(session)
        phone.close()
