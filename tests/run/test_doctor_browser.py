"""What `doctor` says of the address for a phone's browser (D55), and of Tailscale."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates, server_address
from bridge_project.operations.doctor import bridge as parts
from bridge_project.operations.doctor import browser
from bridge_project.operations.doctor.findings import Finding, Level
from bridge_project.operations.doctor.snapshot import Reached, Snapshot
from tests.run.findings import only

NAME = "desk.tail1234.ts.net"
RUNNING = {"BackendState": "Running", "Self": {"DNSName": f"{NAME}."}}
PORT = 8443
# nobody resolves it, so nothing is asked of the network
URL = f"https://bridge.internal:{PORT}"

FAKE = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
case $1 in serve) cat "$(dirname "$0")/serve";; *) cat "$(dirname "$0")/status";; esac
"""


@pytest.fixture
def tailscale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Install a `tailscale` that says what it is told to; its directory."""

    def install(status: dict[str, Any], serve: dict[str, Any] | None = None) -> Path:
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        (place / "tailscale").write_text(FAKE)
        (place / "tailscale").chmod(0o755)
        (place / "status").write_text(json.dumps(status))
        (place / "serve").write_text(json.dumps(serve or {}))
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        return place

    return install


def look(directory: Path, **settings: Any) -> Finding:
    settings = {"bridge_public_url": URL} | settings
    conf = Conf(bridge_data_dir=directory / "data", **settings)
    found = certificates.load_or_renew(conf)
    local = f"wss://127.0.0.1:{PORT}/api/v1/ws"
    url = settings["bridge_public_url"]
    here = server_address.Address(url, "wss://x", found.pin, found.fingerprint, local)
    leaf = x509.load_pem_x509_certificate(found.chain.read_bytes()).public_bytes(Encoding.DER)
    health = Reached(200, {}, leaf)
    seen = browser.address(Snapshot(conf, here, f"https://127.0.0.1:{PORT}", health=health))
    assert seen is not None
    return seen


def test_without_tailscale_the_authority_is_named_with_its_fingerprint(tmp_path: Path) -> None:
    text = look(tmp_path).text
    assert "/ca.mobileconfig" in text and "/app/ is trusted once" in text
    assert "Tailscale" not in text
    conf = Conf(bridge_data_dir=tmp_path / "data", bridge_public_url=URL)
    ca = x509.load_pem_x509_certificate((tmp_path / "data/tls/ca.crt").read_bytes())
    fingerprint = ca.fingerprint(hashes.SHA256()).hex(":").upper()
    only(parts.certificate(Snapshot(conf)), Level.OK, fingerprint)


def test_an_address_is_not_trusted_whose_name_the_authority_may_not_sign(tmp_path: Path) -> None:
    assert "is trusted once" in look(tmp_path, bridge_public_url="https://one.invalid").text
    other = look(tmp_path, bridge_public_url="https://other.invalid")
    only(other, other.level, "not for other.invalid", mend=("new_ca",))
    conf = Conf(bridge_data_dir=tmp_path / "data", bridge_public_url="https://other.invalid")
    named = parts.certificate(Snapshot(conf))
    only(named, Level.WARNING, "It is not for other.invalid", mend=("manage.py new_ca",))


def test_tailscale_is_offered_where_it_runs_and_never_configured(
    tmp_path: Path, tailscale: Callable[..., Path]
) -> None:
    place = tailscale(RUNNING)
    mend = (
        f"tailscale serve --bg https+insecure://127.0.0.1:{PORT}",
        f"BRIDGE_PUBLIC_URL=https://{NAME} BRIDGE_TRUSTED_PROXIES=127.0.0.1",
        "tailscale cert --cert-file ",
        f".key {NAME}",
        f"BRIDGE_PUBLIC_URL=https://{NAME}:{PORT}",
    )
    only(look(tmp_path), Level.WARNING, mend=mend)
    asked = set((place / "asked").read_text().splitlines())
    assert asked == {"status --json", "serve status --json"}
    for state in ("Stopped", "NeedsLogin"):
        tailscale({"BackendState": state})
        assert "Tailscale" not in look(tmp_path).text


def test_a_tailscale_serve_that_leads_here_is_recognised(
    tmp_path: Path, tailscale: Callable[..., Path]
) -> None:
    handlers = {"/": {"Proxy": f"https+insecure://127.0.0.1:{PORT}"}}
    tailscale(RUNNING, {"Web": {f"{NAME}:443": {"Handlers": handlers}}})
    found = look(tmp_path)
    assert f"leads from https://{NAME} to this bridge" in found.text
    assert found.mend[0].startswith(f"BRIDGE_PUBLIC_URL=https://{NAME} BRIDGE_TRUSTED_PROXIES=")


def test_a_tailscale_certificate_is_recognised(
    tmp_path: Path, tailscale: Callable[..., Path]
) -> None:
    tailscale(RUNNING)
    issued = trustme.CA().issue_cert(NAME)
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(chain)
    issued.private_key_pem.write_to_path(key)
    found = look(tmp_path, bridge_tls_cert=chain, bridge_tls_key=key)
    trusted = f"https://{NAME}:{PORT}/app/ is trusted by every browser"
    only(found, found.level, trusted, mend=(f"URL=https://{NAME}",))
