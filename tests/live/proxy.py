"""nginx and Caddy as own processes on free loopback ports, with the very files of docs/deploy, and
clients that reach the bridge through them.
"""

from __future__ import annotations

import getpass
import http.client
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.conformance.bridge import REPOSITORY
from tests.conformance.https import LOOPBACK, Https
from tests.conformance.phone import PATIENCE, Phone
from tests.servers import stop_process, wait_until

DEPLOY = REPOSITORY / "docs/deploy"
# where their clients are: not at the proxy's own address, which is the only trusted one
CLIENTS = {"nginx": "127.0.0.9", "caddy": "127.0.0.10"}
STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")


@dataclass
class Site:
    """What a proxy serves: a name with a certificate of an authority of the tests."""

    name: str
    chain: Path
    key: Path
    context: ssl.SSLContext


def make_site(directory: Path, name: str) -> Site:
    authority = trustme.CA()
    leaf = authority.issue_cert(name)
    chain, key = directory / "fullchain.pem", directory / "privkey.pem"
    leaf.private_key_pem.write_to_path(str(key))
    for blob in leaf.cert_chain_pems:
        blob.write_to_path(str(chain), append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return Site(name, chain, key, context)


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """The shipped text with this machine's places in it; each old one must be there, or the file
    and the test have parted.
    """
    for old, new in pairs:
        assert old in text, f"not in the shipped file: {old}"
        text = text.replace(old, new)
    return text


# -- configuration files ---------------------------------------------------------------------------


def nginx(
    directory: Path,
    port: int,
    plain_port: int,
    site: Site,
    change: tuple[tuple[str, str], ...] = (),
) -> list[str]:
    served = replaced(
        (DEPLOY / "nginx.conf").read_text(),
        ("listen 443 ssl;", f"listen {LOOPBACK}:{port} ssl;"),
        ("server_name bridge.example;", f"server_name {site.name};"),
        ("/etc/letsencrypt/live/bridge.example/fullchain.pem", str(site.chain)),
        ("/etc/letsencrypt/live/bridge.example/privkey.pem", str(site.key)),
        ("http://127.0.0.1:8480;", f"http://127.0.0.1:{plain_port};"),
        *change,
    )
    (directory / "bridge.conf").write_text(served)
    places = "".join(
        f"{kind}_temp_path {directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return _nginx(
        directory,
        f"http {{\naccess_log {directory}/access.log;\n{places}include {directory}/bridge.conf;\n}}\n",
    )


def nginx_stream(directory: Path, port: int, tls_port: int) -> list[str]:
    passed = replaced(
        (DEPLOY / "nginx-stream.conf").read_text(),
        ("listen 443;", f"listen {LOOPBACK}:{port};"),
        ("127.0.0.1:8443;", f"127.0.0.1:{tls_port};"),
    )
    return _nginx(directory, passed, f"load_module {STREAM_MODULE};\n")


def _nginx(directory: Path, body: str, modules: str = "") -> list[str]:
    user = f"user {getpass.getuser()};\n" if os.geteuid() == 0 else ""
    head = f"{modules}{user}daemon off;\nworker_processes 1;\npid {directory}/nginx.pid;\nerror_log {directory}/error.log;\nevents {{}}\n"
    (directory / "nginx.conf").write_text(head + body)
    return [
        program("nginx") or "nginx",
        "-p",
        str(directory),
        "-e",
        str(directory / "error.log"),
        "-c",
        str(directory / "nginx.conf"),
    ]


def caddy(
    directory: Path,
    port: int,
    plain_port: int,
    site: Site,
    change: tuple[tuple[str, str], ...] = (),
) -> list[str]:
    served = replaced(
        (DEPLOY / "Caddyfile").read_text(),
        (
            "\nbridge.example {\n",
            f"\nhttps://{site.name}:{port} {{\n\tbind {LOOPBACK}\n\ttls {site.chain} {site.key}\n",
        ),
        ("reverse_proxy 127.0.0.1:8480\n", f"reverse_proxy 127.0.0.1:{plain_port}\n"),
        *change,
    )
    (directory / "Caddyfile").write_text(
        "{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + served
    )
    return [
        program("caddy") or "caddy",
        "run",
        "--adapter",
        "caddyfile",
        "--config",
        str(directory / "Caddyfile"),
    ]


CONFIGURED: dict[str, Callable[..., list[str]]] = {"nginx": nginx, "caddy": caddy}


def program(name: str) -> str | None:
    """Debian keeps servers where only root's path leads."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


@contextmanager
def running(directory: Path, command: list[str], port: int) -> Iterator[None]:
    """The proxy, from when its port is open; all that it writes is below the directory."""
    home = {
        "HOME": str(directory),
        "XDG_DATA_HOME": str(directory),
        "XDG_CONFIG_HOME": str(directory),
    }
    output = directory / "output.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(os.environ) | home,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: _open(process, port, output), "the proxy listens")
        yield
    finally:
        stop_process(process)


def _open(process: subprocess.Popen[bytes], port: int, output: Path) -> bool:
    assert process.poll() is None, output.read_text(errors="replace")
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


# -- clients ---------------------------------------------------------------------------------------


class ProxiedHttps(Https):
    """A client of the public name, which verifies the proxy's certificate; it comes from an address
    of its own.
    """

    def __init__(self, port: int, site: Site, client: str) -> None:
        super().__init__(port)
        self.site, self.client = site, client

    def open(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.site.name, self.port, timeout=self.timeout)
        connection.auto_open = 0  # it would go past the proxy, and without TLS
        connection.sock = dial(self.port, self.site, self.client)
        return connection


class ProxiedPhone(Phone):
    """A phone that knows the bridge by its public name."""

    def __init__(self, port: int, token: str, site: Site, client: str) -> None:
        super().__init__(port, token)
        self.site, self.client, self.host = site, client, site.name

    def stream(self) -> socket.socket:
        return dial(self.port, self.site, self.client)


def dial(port: int, site: Site, client: str = "") -> ssl.SSLSocket:
    raw = socket.create_connection((LOOPBACK, port), PATIENCE, source_address=(client, 0))
    try:
        return site.context.wrap_socket(raw, server_hostname=site.name)
    except BaseException:
        raw.close()
        raise
