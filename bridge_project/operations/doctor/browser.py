"""Find the best address for a phone's browser, and whether it is trusted (D55)."""

import contextlib
import json
import shlex
import shutil
import socket
import ssl
import subprocess
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from bridge_project.kernel.config import ConfError
from bridge_project.network import certificates
from bridge_project.network.certificate_files import names_in
from bridge_project.network.own_names import local_name
from bridge_project.network.transport import mode_of_url
from bridge_project.operations.doctor.findings import Finding, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot

ANSWER_SECONDS = 10  # of Tailscale, and for a handshake; a busy machine takes its time


def address(seen: Snapshot) -> Finding | None:
    """Report the address, and how to make a browser trust it."""
    if seen.recorded is None or not seen.local_url:
        return None
    url, port = seen.recorded.base_url, urlsplit(seen.local_url).port
    if mode_of_url(url, seen.conf.bridge_tunnel_domains) == "local_only":
        return None  # no phone can reach it, which another check says
    trouble = _distrust(url)
    if not trouble:
        return ok(f"{url}/app/ is trusted by every browser.")
    if found := _tailscale(seen, url, port):
        return found
    if seen.conf.bridge_tls_cert:
        return warning(f"{url}/app/ is not trusted here: {trouble}.", f"curl -v {url}/app/")
    host = urlsplit(url).hostname or ""
    served = seen.health and x509.load_der_x509_certificate(seen.health.certificate)
    if served and host not in names_in(served):
        text = f"{url}/app/ is trusted by nobody: the bridge's certificate is not for {host}."
        return warning(text, f"{seen.manage('new_ca')}   # phones must then trust the new one")
    install = "once the phone has installed /ca.mobileconfig (Apple) or /ca.crt of the bridge"
    name = local_name()
    if name or seen.conf.bridge_public_url:
        best = f"https://{name}:{port}" if name else url
        return ok(f"{best}/app/ is trusted {install}.")
    text = f"{url}/app/ is trusted {install}. An iPhone needs a name, and none leads here."
    return warning(text, "sudo apt install avahi-daemon   # announces this machine as NAME.local")


def _tailscale(seen: Snapshot, url: str, port: int | None) -> Finding | None:
    """Report how Tailscale, if it runs, can give the bridge a trusted address."""
    status = _ask_tailscale("status")
    me = status.get("Self")
    tailnet = str(me.get("DNSName", "")).rstrip(".") if isinstance(me, dict) else ""
    if status.get("BackendState") != "Running" or not tailnet:
        return None
    behind = {"BRIDGE_PUBLIC_URL": f"https://{tailnet}", "BRIDGE_TRUSTED_PROXIES": "127.0.0.1"}
    serve = seen.start(**behind)
    sites = _ask_tailscale("serve", "status").get("Web")  # by their names, which have a port too
    if isinstance(sites, dict) and f":{port}" in json.dumps(list(sites.values())):
        text = f"`tailscale serve` forwards https://{tailnet} here, but the bridge is not set up"
        return warning(f"{text}.", serve)
    named = f"https://{tailnet}:{port}"
    run_named = seen.start(BRIDGE_PUBLIC_URL=named)
    given = seen.conf.bridge_tls_cert
    with contextlib.suppress(OSError, ConfError):
        if given and tailnet in certificates.load_or_renew(seen.conf).names:
            text = f"{named}/app/ is trusted by every browser: BRIDGE_TLS_CERT is for that name."
            return warning(text, run_named)
    text = f"{url}/app/ is not trusted; Tailscale runs here and can have a trusted address."
    cert = shlex.quote(str(seen.conf.bridge_data_dir / "tls" / "tailscale"))
    return warning(
        text,
        f"tailscale serve --bg https+insecure://127.0.0.1:{port}",
        serve,
        f"tailscale cert --cert-file {cert}.crt --key-file {cert}.key {tailnet}"
        "   # or this: nothing between, but codes have another pin, and it is renewed by hand",
        f"BRIDGE_TLS_CERT={cert}.crt BRIDGE_TLS_KEY={cert}.key {run_named}",
    )


def _distrust(url: str) -> str:
    """Return why this machine does not trust an address's certificate; "" if it does."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    try:
        with (
            socket.create_connection((host, port), ANSWER_SECONDS) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _ask_tailscale(*words: str) -> dict[str, Any]:
    """Return what `tailscale WORDS --json` says; empty where it is not installed."""
    if not (command := shutil.which("tailscale")):
        return {}
    try:
        asked = [command, *words, "--json"]
        answer = json.loads(subprocess.check_output(asked, timeout=ANSWER_SECONDS))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}
