"""The certificate on disk: made once, renewed with the same key, never replaced (D19, D44)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.network import certificates
from bridge_project.network.certificate_files import Certificates

Load = Callable[..., Certificates]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """What is served with these settings, made or renewed where it must be."""

    def load(**settings: Any) -> Certificates:
        return certificates.load_or_renew(Conf(bridge_data_dir=tmp_path / "data", **settings))

    return load


@pytest.fixture
def refused(load: Load) -> Callable[..., str]:
    """Why it cannot be loaded: one line."""

    def refused(**settings: Any) -> str:
        with pytest.raises(ConfError) as raised:
            load(**settings)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    return refused


def test_the_leaf_is_what_phones_accept(load: Load) -> None:
    found = load(bridge_public_url="https://Bridge.example:444")
    leaf, ca = x509.load_pem_x509_certificates(found.chain.read_bytes())
    leaf.verify_directly_issued_by(ca)
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


@pytest.mark.parametrize("days", [-3000, -2])
def test_a_clock_that_was_set_back(load: Load, days: int) -> None:
    first = load()
    with time_machine.travel(datetime.now(UTC) + timedelta(days=days), tick=False):
        back = load()
        leaf = x509.load_pem_x509_certificate(back.chain.read_bytes())
        assert leaf.not_valid_before_utc <= datetime.now(UTC) <= back.not_after
    assert back.pin == first.pin


@pytest.mark.parametrize("text", [b"-----BEGIN CERTIFICATE-----\nMIIB", b"\x00\xff", None])
def test_a_damaged_or_lost_leaf_is_made_again(load: Load, text: bytes | None) -> None:
    first = load()
    first.chain.unlink() if text is None else first.chain.write_bytes(text)
    second = load()
    assert second.pin == first.pin and second.fingerprint != first.fingerprint


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.key"])
@pytest.mark.parametrize("text", [b"", trustme.CA().cert_pem.bytes()])
def test_what_clients_rely_on_is_never_replaced(
    load: Load, refused: Callable[..., str], tmp_path: Path, name: str, text: bytes
) -> None:
    load()
    path = tmp_path / "data" / "tls" / name
    path.write_bytes(text)
    said = refused()
    assert said.startswith("BRIDGE_DATA_DIR: ") and str(path) in said
    assert path.read_bytes() == text


@pytest.mark.parametrize("name", ["ca.key", "server.key"])
def test_a_lost_key_is_said_and_a_new_start_possible(
    load: Load, refused: Callable[..., str], tmp_path: Path, name: str
) -> None:
    first = load()
    (tmp_path / "data" / "tls" / name).unlink()
    assert "is missing" in refused()
    (tmp_path / "data" / "tls" / name.replace(".key", ".crt")).unlink()
    assert (load().pin == first.pin) is (name == "ca.key")


def test_open_permissions_of_a_key_are_closed(load: Load) -> None:
    load().key.chmod(0o644)
    assert load().key.stat().st_mode & 0o777 == 0o600


# -- a given certificate ---------------------------------------------------------------------------


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., dict[str, Path]]:
    def make(**options: Any) -> dict[str, Path]:
        issued = trustme.CA().issue_cert("bridge.example", "10.0.0.9", **options)
        cert, key = tmp_path / "given.pem", tmp_path / "given.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return {"bridge_tls_cert": cert, "bridge_tls_key": key}

    return make


@pytest.mark.parametrize("kind", list(trustme.KeyType))
def test_a_given_certificate_is_used_as_it_is(
    load: Load, given: Callable[..., dict[str, Path]], tmp_path: Path, kind: trustme.KeyType
) -> None:
    files = given(key_type=kind)
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
    refused: Callable[..., str],
    given: Callable[..., dict[str, Path]],
    setting: str,
    text: bytes | None,
    said: str,
) -> None:
    files = given()
    path = files[setting.lower()]
    path.unlink() if text is None else path.write_bytes(text)
    answer = refused(**files)
    assert answer.startswith(f"{setting}: {path}") and said in answer


def test_an_expired_certificate_is_said(
    refused: Callable[..., str], given: Callable[..., dict[str, Path]]
) -> None:
    begun, ended = datetime(2019, 6, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC)
    assert "it expired on 2020-01-02" in refused(**given(not_before=begun, not_after=ended))
