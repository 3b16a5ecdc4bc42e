"""What a phone that trusts the bridge's authority trusts (D55), by other people's verifiers."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates
from bridge_project.network.certificate_files import Certificates, general_name

INSIDE = ("desk.local", "box.lan", "a.ts.net", "192.168.7.7", "100.80.1.2", "fd00::7", "127.0.0.1")
OUTSIDE = ("bank.example", "example.com", "notlocal", "8.8.8.8", "2001:db8::1")


@pytest.fixture
def conf(tmp_path: Path) -> Callable[..., Conf]:
    return lambda **settings: Conf(bridge_data_dir=tmp_path / "data", **settings)


def authority(found: Certificates) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    assert found.ca
    key = serialization.load_pem_private_key((found.ca.parent / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(found.ca.read_bytes()), key


def forged(found: Certificates, name: str) -> tuple[Path, Path]:
    """A leaf for any name, as one who has stolen the authority's key would make it."""
    ca, ca_key = authority(found)
    assert found.ca
    key, general = ec.generate_private_key(ec.SECP256R1()), general_name(name)
    assert general is not None
    leaf = (
        x509.CertificateBuilder(ca.subject, x509.Name([]), key.public_key(), 1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([general]), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    chain, secret = found.ca.parent / "forged.crt", found.ca.parent / "forged.key"
    chain.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return chain, secret


def python_verifies(ca: Path, chain: Path, key: Path, name: str) -> bool:
    """A handshake in memory, checked by OpenSSL as Python uses it."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(chain, key)
    client_side = ssl.create_default_context(cafile=str(ca))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = client_side.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(6):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return client.cipher() is not None


@pytest.mark.parametrize("name", [*INSIDE, *OUTSIDE])
def test_the_authority_is_good_for_private_names_only(conf: Callable[..., Conf], name: str) -> None:
    found = certificates.load_or_renew(conf())
    chain, key = forged(found, name)
    assert found.ca
    assert python_verifies(found.ca, chain, key, name) == (name in INSIDE)
    if shutil.which("openssl"):
        command = ["openssl", "verify", "-CAfile", str(found.ca), str(chain)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode == 0) == (name in INSIDE), done.stderr


def test_all_that_the_bridge_is_called_verifies(conf: Callable[..., Conf]) -> None:
    found = certificates.load_or_renew(conf(bridge_public_url="https://bridge.example:444"))
    assert found.ca and "bridge.example" in found.names
    for name in found.names:
        assert python_verifies(found.ca, found.chain, found.key, name), name


def test_names_that_come_later_spoil_nothing(
    conf: Callable[..., Conf], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hostname, public address and URL change: the old names still verify."""
    first = certificates.load_or_renew(conf(bridge_public_url="https://one.example"))
    monkeypatch.setattr(socket, "gethostname", lambda: "new-desk")
    later = conf(bridge_public_url="https://two.example", bridge_host="9.9.9.9")
    second = certificates.load_or_renew(later)
    new = {"two.example", "9.9.9.9", "new-desk"}
    assert second.ca and not new & set(second.names)
    assert "two.example" in caplog.text and "new_ca" in caplog.text
    for name in ("localhost", "127.0.0.1", "new-desk.local"):
        assert python_verifies(second.ca, second.chain, second.key, name)
    made = certificates.replace_authority(later)
    assert made.pin == first.pin and new < set(made.names)
    for name in made.names:
        assert python_verifies(second.ca, made.chain, made.key, name), name


def test_an_authority_of_before_stays_as_it_is(conf: Callable[..., Conf]) -> None:
    """One without constraints signs any name, as it did."""
    found = certificates.load_or_renew(conf())
    assert found.ca
    old, key = authority(found)
    who = (old.issuer, old.subject, old.public_key(), old.serial_number)
    builder = x509.CertificateBuilder(*who, old.not_valid_before_utc, old.not_valid_after_utc)
    for extension in old.extensions:
        if not isinstance(extension.value, x509.NameConstraints):
            builder = builder.add_extension(extension.value, extension.critical)
    plain = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    found.ca.write_bytes(plain)
    again = certificates.load_or_renew(conf(bridge_host="8.8.8.8"))
    assert found.ca.read_bytes() == plain
    assert "8.8.8.8" in again.names
    assert python_verifies(found.ca, again.chain, again.key, "8.8.8.8")


def test_renewal_keeps_name_key_and_constraints(
    conf: Callable[..., Conf], caplog: pytest.LogCaptureFixture
) -> None:
    found = certificates.load_or_renew(conf(bridge_public_url="https://one.example"))
    old, _ = authority(found)
    with time_machine.travel(old.not_valid_after_utc + timedelta(days=1), tick=False):
        again = certificates.load_or_renew(conf(bridge_public_url="https://two.example"))
        new, _ = authority(found)
        assert new.not_valid_after_utc > datetime.now(UTC)
    assert again.pin == found.pin and "install /ca.crt again" in caplog.text
    assert new != old
    assert (new.public_key(), new.subject) == (old.public_key(), old.subject)
    kept, renewed = (
        one.extensions.get_extension_for_class(x509.NameConstraints) for one in (old, new)
    )
    assert renewed.value == kept.value and not renewed.critical
