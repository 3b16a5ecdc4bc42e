"""Say which address a phone's browser should use, and whether it would trust it (D55)."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
from urllib.parse import urlsplit

from bridge_project.network.own_names import local_name
from bridge_project.network.transport import ConnectionMode, mode_of_url
from bridge_project.operations.doctor.findings import Finding, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot

TAILSCALE_SECONDS = 3
HANDSHAKE_SECONDS = 3


def address(seen: Snapshot) -> Finding | None:
    """Name the address and what it takes to be trusted there."""
    if seen.recorded is None or not seen.local_url:
        return None
    url, port = seen.recorded.base_url, urlsplit(seen.local_url).port
    if mode_of_url(url, seen.conf.bridge_tunnel_domains) is ConnectionMode.LOCAL_ONLY:
        return None  # no phone can reach it, which another check says
    if _is_trusted(url):
        return ok(f"{url}/app/ is trusted by every browser.")
    if tailnet := _tailscale_name():
        text = f"{url}/app/ is not trusted; Tailscale runs here and can have a trusted address."
        return warning(
            text,
            f"tailscale serve --bg https+insecure://127.0.0.1:{port}",
            f"BRIDGE_PUBLIC_URL=https://{tailnet} BRIDGE_TRUSTED_PROXIES=127.0.0.1 {seen.run}",
        )
    if seen.conf.bridge_tls_cert:
        text = f"{url}/app/ is not trusted here: the chain of BRIDGE_TLS_CERT leads to no authority"
        return warning(f"{text} that this machine knows.", f"curl -v {url}/app/")
    install = "once the phone has installed /ca.mobileconfig (Apple) or /ca.crt of the bridge"
    if name := local_name():
        return ok(f"https://{name}:{port}/app/ is trusted {install}.")
    if seen.conf.bridge_public_url:
        return ok(f"{url}/app/ is trusted {install}.")
    text = f"{url}/app/ is trusted {install}. No name leads here, which an iPhone wants."
    return warning(text, "sudo apt install avahi-daemon   # announces this machine as NAME.local")


def _is_trusted(url: str) -> bool:
    """Tell whether this machine's authorities vouch for what answers there."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    try:
        with (
            socket.create_connection((host, port), HANDSHAKE_SECONDS) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host),
        ):
            return True
    except OSError:
        return False


def _tailscale_name() -> str:
    """Return this machine's name in its tailnet, "" without one."""
    if not (command := shutil.which("tailscale")):
        return ""
    try:
        status = [command, "status", "--json"]
        told = json.loads(subprocess.check_output(status, timeout=TAILSCALE_SECONDS))
        return str(told["Self"]["DNSName"]).rstrip(".") if told["BackendState"] == "Running" else ""
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return ""
