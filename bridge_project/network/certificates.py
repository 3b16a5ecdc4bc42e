"""The certificate: an own authority made once, a leaf renewed in time with the same key, or the one
that is given (D19, D44).
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.network import interfaces
from bridge_project.network.transport import accepts_on, parse_address

log = logging.getLogger("bridge.tls")

# a clock that is set back a little, here or at a client, finds the certificate valid
BACKDATED = timedelta(days=1)
# the authority must outlast worse clocks: it cannot be made anew without being installed anew
CA_BACKDATED = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificate in use, as files and as what others need of it.

    ``chain``: PEM, leaf first; ``key``: PEM; ``ca``: PEM of the own authority, None with a given
    certificate; ``names``: DNS names and addresses in the leaf; ``pin``: hex SHA-256 of the public
    key (SPKI), which renewal keeps; ``fingerprint``: hex SHA-256 of the leaf.
    """

    chain: Path
    key: Path
    ca: Path | None
    names: tuple[str, ...]
    pin: str
    fingerprint: str
    not_before: datetime
    not_after: datetime
    own: bool


def ensure(conf: Conf) -> Certificates:
    """The certificate to serve now, made or renewed if need be; cheap enough to be called every
    minute, from any process.

    Raises ConfError, one line naming the setting, when a given certificate cannot be used or an own
    file is damaged that nothing may replace.
    """
    if conf.bridge_tls_cert and conf.bridge_tls_key:
        return _given(conf.bridge_tls_cert, conf.bridge_tls_key)
    try:
        directory = make_private_dir(conf.bridge_data_dir, "tls")
        with _locked(directory / "lock"):
            return _own(conf, directory)
    except OSError as error:
        raise ConfError(
            f"BRIDGE_DATA_DIR: the certificate cannot be kept in it ({error.strerror}: {error.filename})"
        ) from None


def wanted_names(conf: Conf) -> tuple[str, ...]:
    """What the leaf must be valid for (D19): this machine's names and addresses, and those that the
    settings name.
    """
    host = socket.gethostname().lower().rstrip(".")
    names = ["localhost", host, f"{host.partition('.')[0] or 'bridge'}.local"]
    names += [
        address for address in interfaces.local_addresses() if accepts_on(conf.bridge_host, address)
    ]
    names += [conf.bridge_host, urlsplit(conf.bridge_public_url).hostname or ""]
    kept = [
        name
        for name in names
        if name not in ("", "auto", "0.0.0.0", "::")  # noqa: S104 - compared, not listened on
        and _general_name(name) is not None
    ]
    return tuple(dict.fromkeys(kept))


# -- the own authority and leaf --------------------------------------------------------------------


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the system lets go when a process dies."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _own(conf: Conf, directory: Path) -> Certificates:
    ca_path, chain_path, key_path = (
        directory / "ca.crt",
        directory / "server.crt",
        directory / "server.key",
    )
    ca_key = _own_key(directory / "ca.key", ca_path, "trusts the authority")
    ca = _authority(ca_path, ca_key)
    key = _own_key(key_path, chain_path, "knows the bridge by its key")
    names = wanted_names(conf)
    leaf = _usable_leaf(chain_path, key, ca, names)
    if leaf is None:
        leaf = _make_leaf(key, ca_key, ca, names)
        write_private_file(chain_path, _pem(leaf) + _pem(ca))
    return _describe(leaf, chain=chain_path, key=key_path, ca=ca_path)


def _own_key(path: Path, certificate: Path, who: str) -> ec.EllipticCurvePrivateKey:
    """A key file's key, made when neither it nor its certificate is there. A lost or damaged key is
    never replaced in silence: clients rely on it.
    """
    advice = f"restore it from a backup, or delete it and {certificate.name}; then every device that {who} must be paired again"
    if not path.exists():
        if certificate.exists():
            raise ConfError(f"BRIDGE_DATA_DIR: {path} is missing; {advice}")
        made = ec.generate_private_key(ec.SECP256R1())
        write_private_file(
            path,
            made.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfError(f"BRIDGE_DATA_DIR: {path} is damaged; {advice}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfError(f"BRIDGE_DATA_DIR: {path} is not a key of this bridge; {advice}")
    return key


def _authority(path: Path, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """The authority's certificate: made once; near its end it is made again with the same name and
    key, so that what it signed stays good.
    """
    if not path.exists():
        return _make_authority(
            path, key, f"Bridge CA {socket.gethostname()[:24]} {os.urandom(3).hex()}"
        )
    try:
        ca = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise ConfError(
            f"BRIDGE_DATA_DIR: {path} is damaged; restore it, or delete it: phones must then install /ca.crt again"
        ) from None
    if ca.public_key() != key.public_key():
        raise ConfError(
            f"BRIDGE_DATA_DIR: {path} and ca.key do not belong together; restore the pair, or delete both: phones must then install /ca.crt again"
        )
    if ca.not_valid_after_utc - _now() < timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS):
        log.warning(
            "The certificate authority ends on %s and was renewed with the same key; phones that trust it must install /ca.crt again.",
            ca.not_valid_after_utc.date(),
        )
        return _make_authority(
            path, key, str(ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        )
    return ca


def _make_authority(
    path: Path, key: ec.EllipticCurvePrivateKey, common_name: str
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = _now()
    usage = x509.KeyUsage(
        False,
        False,
        False,
        False,
        False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    ca = (
        x509.CertificateBuilder(
            issuer_name=name,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
        )
        .not_valid_before(now - CA_BACKDATED)
        .not_valid_after(now + timedelta(days=limits.CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private_file(path, _pem(ca))
    return ca


def _usable_leaf(
    path: Path, key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, names: tuple[str, ...]
) -> x509.Certificate | None:
    """The leaf that is there, unless it is damaged, another's, too old or too new for the clock, or
    lacks a name. A name too many does no harm.
    """
    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
        leaf = chain[0]
        leaf.verify_directly_issued_by(ca)
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature):
        return None
    now = _now()
    fresh = (
        leaf.not_valid_before_utc
        <= now
        < leaf.not_valid_after_utc - timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS)
    )
    whole = len(chain) == 2 and chain[1] == ca and leaf.public_key() == key.public_key()
    return leaf if fresh and whole and set(names) <= set(_names(leaf)) else None


def _make_leaf(
    key: ec.EllipticCurvePrivateKey,
    ca_key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    names: tuple[str, ...],
) -> x509.Certificate:
    start = _now() - BACKDATED
    end = min(start + timedelta(days=limits.LEAF_DAYS), ca.not_valid_after_utc)
    usage = x509.KeyUsage(
        True,
        False,
        False,
        False,
        key_agreement=True,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    general = [name for name in map(_general_name, names) if name is not None]
    return (
        x509.CertificateBuilder(
            issuer_name=ca.subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
        )
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Bridge")]))
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(general), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )


# -- a given certificate ---------------------------------------------------------------------------


def _given(chain_path: Path, key_path: Path) -> Certificates:
    text = _read(chain_path, "BRIDGE_TLS_CERT")
    try:
        leaf = x509.load_pem_x509_certificates(text)[0]
    except ValueError:
        raise ConfError(f"BRIDGE_TLS_CERT: {chain_path} is not a PEM certificate") from None
    key = _given_key(key_path)
    try:
        matching = key.public_key() == leaf.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise ConfError(
            f"BRIDGE_TLS_CERT: {chain_path} has a public key of an unknown kind"
        ) from None
    if not matching:
        raise ConfError(
            f"BRIDGE_TLS_KEY: {key_path} is not the key of the first certificate in {chain_path}"
        )
    if leaf.not_valid_after_utc <= _now():
        raise ConfError(
            f"BRIDGE_TLS_CERT: {chain_path} expired on {leaf.not_valid_after_utc:%Y-%m-%d}"
        )
    return _describe(leaf, chain=chain_path, key=key_path, ca=None)


def _given_key(path: Path) -> PrivateKeyTypes:
    text = _read(path, "BRIDGE_TLS_KEY")
    try:
        return serialization.load_pem_private_key(text, None)
    except TypeError:
        raise ConfError(
            f"BRIDGE_TLS_KEY: {path} is encrypted; give a key without a passphrase"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfError(f"BRIDGE_TLS_KEY: {path} is not a PEM private key") from None


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfError(f"{setting}: {path} cannot be read ({error.strerror})") from None


# -- common ----------------------------------------------------------------------------------------


def _describe(leaf: x509.Certificate, *, chain: Path, key: Path, ca: Path | None) -> Certificates:
    spki = leaf.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Certificates(
        chain=chain,
        key=key,
        ca=ca,
        names=_names(leaf),
        pin=hashlib.sha256(spki).hexdigest(),
        fingerprint=leaf.fingerprint(hashes.SHA256()).hex(),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        own=ca is not None,
    )


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return (
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    )


def _general_name(name: str) -> x509.GeneralName | None:
    """None for what no certificate can hold, such as a host name outside ASCII."""
    address = parse_address(name)
    if address is not None:
        return x509.IPAddress(ipaddress.ip_address(address))
    try:
        return x509.DNSName(name)
    except ValueError:
        return None


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
