"""nginx and Caddy with the very files of docs/deploy."""

import getpass
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.conformance.bridge import REPOSITORY
from tests.conformance.https import LOOPBACK
from tests.servers import stop_process, wait_until

DEPLOY = REPOSITORY / "docs/deploy"
PACKAGES = {"nginx": "nginx-light", "caddy": "caddy"}


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
        "server_name bridge.example;": f"server_name {site.name};",
        f"{live}/fullchain.pem": str(site.chain),
        f"{live}/privkey.pem": str(site.key),
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
    return [program("nginx"), *map(str, given)]


def caddy(directory: Path, port: int, plain_port: int, site: Site) -> list[str]:
    own = f"\tbind {LOOPBACK}\n\ttls {site.chain} {site.key}\n"
    places = {
        "\nbridge.example {\n": f"\nhttps://{site.name}:{port} {{\n{own}",
        "reverse_proxy 127.0.0.1:8480\n": f"reverse_proxy 127.0.0.1:{plain_port}\n",
    }
    head = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    file = directory / "Caddyfile"
    file.write_text(head + shipped("Caddyfile", places))
    return [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(file)]


def program(name: str) -> str:
    """Debian keeps servers where only root's path leads. Skips the test where it is missing."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {PACKAGES[name]})")
    return found


@contextmanager
def running(directory: Path, command: list[str], port: int) -> Iterator[None]:
    """The proxy, from when its port is open; all that it writes is below the directory."""
    home = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(directory))
    output = directory / "output.log"
    with output.open("wb") as log:
        pipes: dict[str, Any] = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=directory, env=os.environ | home, **pipes)

    def listens() -> bool:
        assert process.poll() is None, output.read_text(errors="replace")
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, port)) == 0

    try:
        wait_until(listens, "the proxy listens")
        yield
    finally:
        stop_process(process)
