"""The certificate on disk: made once, renewed with the same key, never replaced where somebody
relies on it (D19, D44).
"""

from __future__ import annotations

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
from bridge_project.network import certificates, interfaces


@pytest.fixture
def conf(tmp_path: Path) -> Callable[..., Conf]:
    def make(**settings: Any) -> Conf:
        return Conf(bridge_data_dir=tmp_path / "data", **settings)

    return make


def test_the_leaf_is_what_phones_accept(conf: Callable[..., Conf]) -> None:
    found = certificates.load_or_renew(conf(bridge_public_url="https://Bridge.example:444"))
    leaf, ca = x509.load_pem_x509_certificates(found.chain.read_bytes())
    leaf.verify_directly_issued_by(ca)
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc <= timedelta(days=397)
    assert leaf.not_valid_before_utc <= datetime.now(UTC) - timedelta(hours=1)
    assert set(found.names) >= {"localhost", "127.0.0.1", "::1", "bridge.example"}
    assert any(name.endswith(".local") for name in found.names)
    assert [
        use.dotted_string
        for use in leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    ] == ["1.3.6.1.5.5.7.3.1"]
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert len(found.pin) == len(found.fingerprint) == 64


def test_renewal_keeps_the_pin_and_the_authority(conf: Callable[..., Conf]) -> None:
    first = certificates.load_or_renew(conf())
    with time_machine.travel(
        first.not_after - timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS, hours=1), tick=False
    ):
        assert certificates.load_or_renew(conf()) == first
    with time_machine.travel(
        first.not_after - timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS, hours=-1), tick=False
    ):
        second = certificates.load_or_renew(conf())
    assert second.pin == first.pin and second.fingerprint != first.fingerprint
    assert second.not_after > first.not_after
    assert first.ca and second.ca and first.ca.read_bytes() == second.ca.read_bytes()


def test_new_names_renew_and_lost_names_do_not(
    conf: Callable[..., Conf], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = certificates.load_or_renew(conf())
    monkeypatch.setattr(
        interfaces, "local_addresses", lambda: ("127.0.0.1", "::1", "10.99.0.1", "8.8.8.8")
    )
    second = certificates.load_or_renew(conf())
    assert "10.99.0.1" in second.names and second.pin == first.pin
    assert "8.8.8.8" not in second.names, "nothing is let in there"
    monkeypatch.setattr(interfaces, "local_addresses", lambda: ("127.0.0.1", "::1"))
    assert certificates.load_or_renew(conf()) == second
    third = certificates.load_or_renew(conf(bridge_host="8.8.8.8"))
    assert "8.8.8.8" not in third.names, "the authority is not for it"
    fourth = certificates.replace_authority(conf(bridge_host="8.8.8.8"))
    assert "8.8.8.8" in fourth.names and fourth.pin == first.pin


@pytest.mark.parametrize("days", [-3000, -2])
def test_a_clock_that_was_set_back(conf: Callable[..., Conf], days: int) -> None:
    first = certificates.load_or_renew(conf())
    with time_machine.travel(datetime.now(UTC) + timedelta(days=days), tick=False):
        back = certificates.load_or_renew(conf())
        leaf = x509.load_pem_x509_certificate(back.chain.read_bytes())
        assert leaf.not_valid_before_utc <= datetime.now(UTC) <= back.not_after
    assert back.pin == first.pin


def test_the_authority_is_renewed_with_its_key_before_it_ends(
    conf: Callable[..., Conf], caplog: pytest.LogCaptureFixture
) -> None:
    first = certificates.load_or_renew(conf())
    assert first.ca
    old = x509.load_pem_x509_certificate(first.ca.read_bytes())
    with time_machine.travel(old.not_valid_after_utc + timedelta(days=1), tick=False):
        second = certificates.load_or_renew(conf())
        new = x509.load_pem_x509_certificate(first.ca.read_bytes())
        assert new.not_valid_after_utc > datetime.now(UTC)
    assert new.public_key() == old.public_key()
    assert new.subject == old.subject
    assert second.pin == first.pin
    assert "install /ca.crt again" in caplog.text


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nMIIB", b"\x00\xff", None])
def test_a_damaged_or_lost_leaf_is_made_again(
    conf: Callable[..., Conf], text: bytes | None
) -> None:
    first = certificates.load_or_renew(conf())
    first.chain.unlink() if text is None else first.chain.write_bytes(text)
    second = certificates.load_or_renew(conf())
    assert second.pin == first.pin and second.fingerprint != first.fingerprint


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "server.key"])
@pytest.mark.parametrize("text", [b"", b"-----BEGIN", b"\x00\xff"])
def test_what_clients_rely_on_is_never_replaced(
    conf: Callable[..., Conf], tmp_path: Path, name: str, text: bytes
) -> None:
    certificates.load_or_renew(conf())
    path = tmp_path / "data" / "tls" / name
    path.write_bytes(text)
    with pytest.raises(ConfError) as raised:
        certificates.load_or_renew(conf())
    assert str(path) in str(raised.value)
    assert str(raised.value).startswith("BRIDGE_DATA_DIR: ")
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == text


@pytest.mark.parametrize("name", ["ca.key", "server.key"])
def test_a_lost_key_is_said_and_a_new_start_possible(
    conf: Callable[..., Conf], tmp_path: Path, name: str
) -> None:
    first = certificates.load_or_renew(conf())
    (tmp_path / "data" / "tls" / name).unlink()
    with pytest.raises(ConfError, match="is missing"):
        certificates.load_or_renew(conf())
    (tmp_path / "data" / "tls" / name.replace(".key", ".crt")).unlink()
    second = certificates.load_or_renew(conf())
    assert (second.pin == first.pin) is (name == "ca.key")


def test_an_authority_that_is_not_its_keys(conf: Callable[..., Conf], tmp_path: Path) -> None:
    certificates.load_or_renew(conf())
    (tmp_path / "data" / "tls" / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    with pytest.raises(ConfError, match="do not belong together"):
        certificates.load_or_renew(conf())


def test_open_permissions_of_a_key_are_closed(conf: Callable[..., Conf]) -> None:
    first = certificates.load_or_renew(conf())
    first.key.chmod(0o644)
    certificates.load_or_renew(conf())
    assert first.key.stat().st_mode & 0o777 == 0o600


# -- a given certificate ---------------------------------------------------------------------------


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., dict[str, Path]]:
    def make(*names: str, **options: Any) -> dict[str, Path]:
        issued = trustme.CA().issue_cert(*(names or ("bridge.example", "10.0.0.9")), **options)
        cert, key = tmp_path / "given.pem", tmp_path / "given.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return {"bridge_tls_cert": cert, "bridge_tls_key": key}

    return make


def test_a_given_certificate_is_used_as_it_is(
    conf: Callable[..., Conf], given: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    files = given()
    found = certificates.load_or_renew(conf(**files))
    assert found.chain == files["bridge_tls_cert"]
    assert found.key == files["bridge_tls_key"]
    assert found.ca is None
    assert found.ca is None
    assert set(found.names) == {"bridge.example", "10.0.0.9"}
    assert not (tmp_path / "data" / "tls").exists()


def test_a_given_key_of_another_kind(
    conf: Callable[..., Conf], given: Callable[..., dict[str, Path]]
) -> None:
    assert len(certificates.load_or_renew(conf(**given(key_type=trustme.KeyType.RSA))).pin) == 64


@pytest.mark.parametrize(
    ("setting", "text", "said"),
    [
        ("BRIDGE_TLS_CERT", None, "cannot be read"),
        ("BRIDGE_TLS_CERT", b"nothing", "is not a PEM certificate"),
        ("BRIDGE_TLS_CERT", b"", "is not a PEM certificate"),
        ("BRIDGE_TLS_KEY", None, "cannot be read"),
        ("BRIDGE_TLS_KEY", b"nothing", "is not a PEM private key"),
        (
            "BRIDGE_TLS_KEY",
            trustme.CA().issue_cert("other.example").private_key_pem.bytes(),
            "is not the key of",
        ),
    ],
)
def test_a_given_file_that_cannot_be_used(
    conf: Callable[..., Conf],
    given: Callable[..., dict[str, Path]],
    setting: str,
    text: bytes | None,
    said: str,
) -> None:
    files = given()
    path = files[setting.lower()]
    path.unlink() if text is None else path.write_bytes(text)
    with pytest.raises(ConfError) as raised:
        certificates.load_or_renew(conf(**files))
    assert str(raised.value).startswith(f"{setting}: {path}")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_encrypted_key_is_said(
    conf: Callable[..., Conf], given: Callable[..., dict[str, Path]]
) -> None:
    files = given()
    key = serialization.load_pem_private_key(files["bridge_tls_key"].read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"x")
    files["bridge_tls_key"].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    )
    with pytest.raises(ConfError, match=r"BRIDGE_TLS_KEY: .* is encrypted"):
        certificates.load_or_renew(conf(**files))


def test_an_expired_certificate_is_said(
    conf: Callable[..., Conf], given: Callable[..., dict[str, Path]]
) -> None:
    with pytest.raises(ConfError, match=r"BRIDGE_TLS_CERT: .* expired on 2020-"):
        certificates.load_or_renew(
            conf(
                **given(
                    not_before=datetime(2019, 6, 1, tzinfo=UTC),
                    not_after=datetime(2020, 1, 2, tzinfo=UTC),
                )
            )
        )
