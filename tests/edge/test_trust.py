"""Certificates on disk (D19, D44); and what a phone that trusts their authority trusts (D55)."""

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.network import certificates
from bridge_project.network.certificate_files import Certificates, general_name

INSIDE = ("desk.local", "box.lan", "a.ts.net", "192.168.7.7", "100.80.1.2", "fd00::7", "127.0.0.1")
OUTSIDE = ("bank.example", "example.com", "notlocal", "8.8.8.8", "2001:db8::1")

Load = Callable[..., Certificates]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """What is served with these settings, made or renewed where it must be."""

    def load(**settings: Any) -> Certificates:
        return certificates.load_or_renew(Conf(bridge_data_dir=tmp_path / "data", **settings))

    return load


def refused(load: Load, **settings: Any) -> str:
    with pytest.raises(ConfError) as raised:
        load(**settings)
    assert "\n" not in str(raised.value)
    return str(raised.value)


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
    of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key())  # type: ignore[arg-type]
    leaf = (
        x509.CertificateBuilder(ca.subject, x509.Name([]), key.public_key(), 1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([general]), critical=True)
        .add_extension(of_authority, critical=False)  # as Python 3.13 wants it
        .sign(ca_key, hashes.SHA256())
    )
    chain, secret = found.ca.parent / "forged.crt", found.ca.parent / "forged.key"
    chain.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return chain, secret


def verifies(found: Certificates, name: str, *forged: Path) -> bool:
    """A handshake in memory with the leaf, or a forged one, checked by OpenSSL as Python has it."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain, key = forged or (found.chain, found.key)
    server_side.load_cert_chain(chain, key)
    client_side = ssl.create_default_context(cafile=str(found.ca))
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


def test_the_leaf_is_what_phones_accept(load: Load) -> None:
    found = load(bridge_public_url="https://Bridge.example:444")
    leaf, ca = x509.load_pem_x509_certificates(found.chain.read_bytes())
    for name in found.names:
        assert verifies(found, name), name
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc <= timedelta(days=397)
    assert leaf.not_valid_before_utc <= datetime.now(UTC) - timedelta(hours=1)
    assert set(found.names) >= {"localhost", "127.0.0.1", "::1", "bridge.example"}
    assert any(name.endswith(".local") for name in found.names)
    [use] = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert use.dotted_string == "1.3.6.1.5.5.7.3.1"
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert len(found.pin) == len(found.fingerprint) == 64


def test_renewal_keeps_the_pin_and_the_authority(load: Load) -> None:
    first = load()
    due = first.not_after - timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS)
    with time_machine.travel(due - timedelta(hours=1), tick=False):
        assert load() == first
    with time_machine.travel(due + timedelta(hours=1), tick=False):
        second = load()
    assert second.pin == first.pin and second.fingerprint != first.fingerprint
    assert second.not_after > first.not_after
    assert first.ca and second.ca and first.ca.read_bytes() == second.ca.read_bytes()


def test_new_names_renew_and_lost_names_do_not(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(*addresses: str) -> Certificates:
        monkeypatch.setattr(certificates, "local_addresses", lambda: ("127.0.0.1", *addresses))
        return load()

    first, second = at(), at("10.99.0.1", "8.8.8.8")
    assert "10.99.0.1" in second.names and second.pin == first.pin
    assert "8.8.8.8" not in second.names, "nothing is let in there"
    assert at() == second


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.key"])
@pytest.mark.parametrize("text", [b"", trustme.CA().cert_pem.bytes()])
def test_what_clients_rely_on_is_never_replaced(
    load: Load, tmp_path: Path, name: str, text: bytes
) -> None:
    load()
    path = tmp_path / "data" / "tls" / name
    path.write_bytes(text)
    said = refused(load)
    assert said.startswith("BRIDGE_DATA_DIR: ") and str(path) in said
    assert path.read_bytes() == text


@pytest.mark.parametrize("name", ["ca.key", "server.key"])
def test_a_lost_key_is_said_and_a_new_start_possible(load: Load, tmp_path: Path, name: str) -> None:
    first = load()
    (tmp_path / "data" / "tls" / name).unlink()
    assert "is missing" in refused(load)
    (tmp_path / "data" / "tls" / name.replace(".key", ".crt")).unlink()
    assert (load().pin == first.pin) is (name == "ca.key")


def test_open_permissions_of_a_key_are_closed(load: Load) -> None:
    load().key.chmod(0o644)
    assert load().key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", [*INSIDE, *OUTSIDE])
def test_the_authority_is_good_for_private_names_only(load: Load, name: str) -> None:
    found = load()
    assert verifies(found, name, *forged(found, name)) == (name in INSIDE)


def test_names_that_come_later_spoil_nothing(
    load: Load, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hostname, public address and URL change: the old names still verify."""
    first = load(bridge_public_url="https://one.example")
    monkeypatch.setattr(socket, "gethostname", lambda: "new-desk")
    later: dict[str, Any] = {"bridge_public_url": "https://two.example", "bridge_host": "9.9.9.9"}
    second = load(**later)
    new = {"two.example", "9.9.9.9", "new-desk"}
    assert not new & set(second.names)
    assert "two.example" in caplog.text and "new_ca" in caplog.text
    for name in ("localhost", "127.0.0.1", "new-desk.local"):
        assert verifies(second, name)
    data = first.chain.parent.parent
    made = certificates.load_or_renew(Conf(bridge_data_dir=data, **later), new_authority=True)
    assert made.pin == first.pin and new < set(made.names)
    for name in made.names:
        assert verifies(made, name), name


def test_an_authority_of_before_stays_as_it_is(load: Load) -> None:
    """One without constraints signs any name, as it did."""
    found = load()
    assert found.ca
    old, key = authority(found)
    who = (old.issuer, old.subject, old.public_key(), old.serial_number)
    builder = x509.CertificateBuilder(*who, old.not_valid_before_utc, old.not_valid_after_utc)
    for extension in old.extensions:
        if not isinstance(extension.value, x509.NameConstraints):
            builder = builder.add_extension(extension.value, extension.critical)
    plain = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    found.ca.write_bytes(plain)
    again = load(bridge_host="8.8.8.8")
    assert found.ca.read_bytes() == plain
    assert "8.8.8.8" in again.names
    assert verifies(again, "8.8.8.8")


def test_renewal_keeps_name_key_and_constraints(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    found = load(bridge_public_url="https://one.example")
    old, _ = authority(found)
    with time_machine.travel(old.not_valid_after_utc + timedelta(days=1), tick=False):
        again = load(bridge_public_url="https://two.example")
        new, _ = authority(found)
        assert new.not_valid_after_utc > datetime.now(UTC)
    assert again.pin == found.pin and "install /ca.crt again" in caplog.text
    assert new != old
    assert (new.public_key(), new.subject) == (old.public_key(), old.subject)
    kept, renewed = (
        one.extensions.get_extension_for_class(x509.NameConstraints) for one in (old, new)
    )
    assert renewed.value == kept.value and not renewed.critical


def given(place: Path, **options: Any) -> dict[str, Path]:
    issued = trustme.CA().issue_cert("bridge.example", "10.0.0.9", **options)
    cert, key = place / "given.pem", place / "given.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return {"bridge_tls_cert": cert, "bridge_tls_key": key}


@pytest.mark.parametrize("kind", list(trustme.KeyType))
def test_a_given_certificate_is_used_as_it_is(
    load: Load, tmp_path: Path, kind: trustme.KeyType
) -> None:
    files = given(tmp_path, key_type=kind)
    found = load(**files)
    assert (found.chain, found.key, found.ca) == (*files.values(), None)
    assert set(found.names) == {"bridge.example", "10.0.0.9"} and len(found.pin) == 64
    assert not (tmp_path / "data" / "tls").exists()


def encrypted() -> bytes:
    pem = trustme.CA().issue_cert("bridge.example").private_key_pem.bytes()
    secret = serialization.BestAvailableEncryption(b"x")
    return serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret
    )


@pytest.mark.parametrize(
    ("setting", "text", "said"),
    [
        ("BRIDGE_TLS_CERT", None, "No such file"),
        ("BRIDGE_TLS_CERT", b"nothing", "cannot be used"),
        ("BRIDGE_TLS_KEY", None, "No such file"),
        ("BRIDGE_TLS_KEY", b"nothing", "cannot be used"),
        ("BRIDGE_TLS_KEY", encrypted(), "is encrypted"),
        ("BRIDGE_TLS_KEY", trustme.CA().issue_cert("x").private_key_pem.bytes(), "not the key of"),
    ],
    ids=range(6),
)
def test_a_given_file_that_cannot_be_used(
    load: Load, tmp_path: Path, setting: str, text: bytes | None, said: str
) -> None:
    files = given(tmp_path)
    path = files[setting.lower()]
    path.unlink() if text is None else path.write_bytes(text)
    answer = refused(load, **files)
    assert answer.startswith(f"{setting}: {path}") and said in answer


def test_an_expired_certificate_is_said(load: Load, tmp_path: Path) -> None:
    begun, ended = datetime(2019, 6, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC)
    files = given(tmp_path, not_before=begun, not_after=ended)
    assert "it expired on 2020-01-02" in refused(load, **files)
