"""The bridge behind nginx and Caddy, with the very files of docs/deploy (D18 to D20)."""

import getpass
import json
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from bridge_project.kernel import limits
from tests.conformance.bridge import EVENT, Bridge
from tests.conformance.https import LOOPBACK, Https, Response
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, prompt
from tests.faults.quick import QuickBridge
from tests.run.test_deploy_files import DEPLOY, program
from tests.servers import Server, free_port, wait_until

NAME = "desk.tail1234.ts.net"


@dataclass
class Site:
    """What a proxy serves: NAME, with a certificate of an authority of the tests."""

    pem: Path  # the key and its certificates
    context: ssl.SSLContext


def shipped(name: str, replaced: dict[str, str]) -> str:
    """A file of docs/deploy with this machine's places in it; each old one must be there."""
    text = (DEPLOY / name).read_text()
    for old, new in replaced.items():
        assert old in text, f"not in {name}: {old}"
        text = text.replace(old, new)
    return text


def nginx(directory: Path, port: int, plain_port: int, site: Site) -> list[str]:
    live = "/etc/letsencrypt/live/bridge.example"
    places = {
        "listen 443 ssl;": f"listen {LOOPBACK}:{port} ssl;",
        "server_name bridge.example;": f"server_name {NAME};",
        f"{live}/fullchain.pem": str(site.pem),
        f"{live}/privkey.pem": str(site.pem),
        "http://127.0.0.1:8480;": f"http://127.0.0.1:{plain_port};",
    }
    (directory / "bridge.conf").write_text(shipped("nginx.conf", places))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    user = [f"user {getpass.getuser()};"] if os.geteuid() == 0 else []
    lines = [*user, "daemon off;", "worker_processes 1;", f"pid {directory}/nginx.pid;"]
    lines += [f"error_log {directory}/error.log;", "events {}", "http {"]
    lines += [f"{kind}_temp_path {directory}/{kind};" for kind in kinds]
    lines += [f"access_log {directory}/access.log;", f"include {directory}/bridge.conf;", "}\n"]
    (directory / "nginx.conf").write_text("\n".join(lines))
    given = ["-p", directory, "-e", directory / "error.log", "-c", directory / "nginx.conf"]
    return [program("nginx", "Debian: apt install nginx-light"), *map(str, given)]


def caddy(directory: Path, port: int, plain_port: int, site: Site) -> list[str]:
    own = f"\tbind {LOOPBACK}\n\ttls {site.pem} {site.pem}\n"
    places = {
        "\nbridge.example {\n": f"\nhttps://{NAME}:{port} {{\n{own}",
        "reverse_proxy 127.0.0.1:8480\n": f"reverse_proxy 127.0.0.1:{plain_port}\n",
    }
    head = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    file = directory / "Caddyfile"
    file.write_text(head + shipped("Caddyfile", places))
    given = ["run", "--adapter", "caddyfile", "--config", str(file)]
    return [program("caddy", "Debian: apt install caddy"), *given]


class Proxy(Server):
    """All that it writes is below its directory."""

    def run(self, command: list[str], **how: Any) -> None:
        home = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(self.directory))
        super().run(command, cwd=self.directory, env=os.environ | home, **how)

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0


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
        return self.site.context.wrap_socket(raw, server_hostname=NAME)

    def request(self, method: str, path: str, **more: Any) -> Response:
        headers = {"Host": NAME} | more.pop("headers", {})
        https = Https(self.port, plain=True, dial=self.dial)
        return https.request(method, path, headers=headers, **more)

    def phone(self) -> Phone:
        phone = Phone(self.port, self.bridge.device_token(), plain=True, dial=self.dial)
        phone.host = NAME
        return phone

    def post(self, body: dict[str, Any]) -> None:
        answer = self.request("POST", EVENT, token=self.bridge.hook_token, json_body=body)
        assert answer.status == 200, answer

    def logged(self, words: str) -> list[str]:
        """The access log's lines that hold these words."""
        return [line["event"] for line in self.bridge.logged() if words in line["event"]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bridge, Site]]:
    directory = tmp_path_factory.mktemp("tunnel")
    settings = {"BRIDGE_PUBLIC_URL": f"https://{NAME}", "BRIDGE_TRUSTED_PROXIES": "127.0.0.1"}
    plain_port = str(free_port())
    with QuickBridge(directory / "bridge", BRIDGE_PLAIN_PORT=plain_port, **settings) as bridge:
        authority, pem = trustme.CA(), directory / "site.pem"
        authority.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(pem)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        yield bridge, Site(pem, context)


@pytest.fixture(scope="module", params=PROXIES)
def front(
    request: pytest.FixtureRequest,
    served: tuple[Bridge, Site],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Front]:
    (bridge, site), proxy = served, Proxy(tmp_path_factory.mktemp("proxy"))
    plain_port = int(bridge.settings["BRIDGE_PLAIN_PORT"])
    try:
        proxy.run(PROXIES[request.param](proxy.directory, proxy.port, plain_port, site))
        yield Front(bridge, site, proxy.port)
    finally:
        proxy.stop()


def test_an_event_goes_in_and_comes_out_by_the_proxy(front: Front) -> None:
    """The whole conversation; the mode is that of the address (D20)."""
    session = new_session()
    front.post(hook("SessionStart", session))
    with closing(front.phone().connect()) as phone:
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
        with closing(front.phone().connect(headers=lie)) as phone:
            assert phone.auth()["payload"]["connection_mode"] == "secure_remote"
        wait_until(lambda number=number: len(front.logged(page)) >= pages + number)
        wait_until(lambda number=number: len(front.logged(socket)) >= sockets + number)


def test_the_largest_body_passes(front: Front) -> None:
    body = json.dumps(prompt(new_session(), 1)).encode()
    body = body.ljust(limits.MAX_MESSAGE_SIZE_MB * limits.MB)
    answer = front.request("POST", EVENT, token=front.bridge.hook_token, body=body)
    assert answer.status == 200, answer
