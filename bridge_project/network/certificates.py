"""Make and renew the server's certificate (D19, D44).

It is a leaf of the bridge's own authority, renewed in time with the same key, or one that is given.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.network import interfaces
from bridge_project.network.certificate_files import (
    Certificates,
    describe,
    general_name,
    names_in,
    now,
    read_given,
)
from bridge_project.network.transport import EVERYWHERE, accepts_on

log = logging.getLogger("bridge.tls")

# a clock that is set back a little, here or at a client, finds the certificate valid
BACKDATED = timedelta(days=1)
# the authority must outlast worse clocks: it cannot be made anew without being installed anew
CA_BACKDATED = timedelta(days=365)
RENEW_BEFORE = timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS)


def load_or_renew(conf: Conf) -> Certificates:
    """Return the certificate to serve, made or renewed if need be.

    Cheap enough for every minute, from any process. Raises ConfError, one line naming the setting,
    when a given certificate cannot be used or an own file is damaged that nothing may replace.
    """
    if conf.bridge_tls_cert and conf.bridge_tls_key:
        return read_given(conf.bridge_tls_cert, conf.bridge_tls_key)
    try:
        directory = make_private_dir(conf.bridge_data_dir, "tls")
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # one process at a time
            return _renew_own(directory, wanted_names(conf))
    except OSError as error:
        raise ConfError(
            f"BRIDGE_DATA_DIR: the certificate cannot be kept in it ({error.strerror}:"
            f" {error.filename})"
        ) from None


def wanted_names(conf: Conf) -> tuple[str, ...]:
    """Return the names that the leaf must have (D19).

    They are this machine's names and addresses, and those that the settings name.
    """
    host = socket.gethostname().lower().rstrip(".")
    names = ["localhost", host, f"{host.partition('.')[0] or 'bridge'}.local"]
    names += [one for one in interfaces.local_addresses() if accepts_on(conf.bridge_host, one)]
    if conf.bridge_host not in EVERYWHERE:
        names.append(conf.bridge_host)
    names.append(urlsplit(conf.bridge_public_url).hostname or "")
    return tuple(dict.fromkeys(name for name in names if name and general_name(name) is not None))


# -- the own authority and leaf --------------------------------------------------------------------


def _renew_own(directory: Path, names: tuple[str, ...]) -> Certificates:
    """Make what is missing, and renew authority and leaf when it is time."""
    ca_path, chain, key_path = (directory / f for f in ("ca.crt", "server.crt", "server.key"))
    ca_key = _load_or_make_key(directory / "ca.key", ca_path, "trusts the authority")
    ca = _load_or_renew_authority(ca_path, ca_key)
    key = _load_or_make_key(key_path, chain, "knows the bridge by its key")
    leaf = _load_leaf(chain, key, ca, names)
    if leaf is None:
        leaf = _make_leaf(key, ca_key, ca, names)
        write_private_file(chain, _pem(leaf) + _pem(ca))
    return describe(leaf, chain=chain, key=key_path, ca=ca_path)


def _load_or_make_key(path: Path, certificate: Path, who: str) -> ec.EllipticCurvePrivateKey:
    """Return a file's key; make it when its certificate is missing too.

    A lost or damaged key is never replaced in silence: clients rely on it.
    """
    advice = (
        f"restore it from a backup, or delete it and {certificate.name}; then every"
        f" device that {who} must be paired again"
    )
    if not path.exists():
        if certificate.exists():
            raise ConfError(f"BRIDGE_DATA_DIR: {path} is missing; {advice}")
        made = ec.generate_private_key(ec.SECP256R1())
        plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        write_private_file(path, made.private_bytes(serialization.Encoding.PEM, *plain))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfError(f"BRIDGE_DATA_DIR: {path} is damaged; {advice}")
    return key


def _load_or_renew_authority(path: Path, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Return the authority's certificate, renewed near its end.

    It keeps its name and key, so that what it signed stays good.
    """
    again = "phones must then install /ca.crt again"
    if not path.exists():
        return _make_authority(
            path, key, f"Bridge CA {socket.gethostname()[:24]} {os.urandom(3).hex()}"
        )
    try:
        ca = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise ConfError(
            f"BRIDGE_DATA_DIR: {path} is damaged; restore it, or delete it: {again}"
        ) from None
    if ca.public_key() != key.public_key():
        raise ConfError(
            f"BRIDGE_DATA_DIR: {path} and ca.key do not belong together; restore the pair,"
            f" or delete both: {again}"
        )
    if ca.not_valid_after_utc - now() >= RENEW_BEFORE:
        return ca
    log.warning(
        (
            "The certificate authority ends on %s and was renewed with the same key; phones"
            " that trust it must install /ca.crt again."
        ),
        ca.not_valid_after_utc.date(),
    )
    name = ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    return _make_authority(path, key, str(name))


def _make_authority(
    path: Path, key: ec.EllipticCurvePrivateKey, common_name: str
) -> x509.Certificate:
    name, today = _name(common_name), now()
    ca = (
        _builder(name, name, key, ca=True, start=today - CA_BACKDATED)
        .not_valid_after(today + timedelta(days=limits.CA_DAYS))
        .sign(key, hashes.SHA256())
    )
    write_private_file(path, _pem(ca))
    return ca


def _load_leaf(
    path: Path, key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, names: tuple[str, ...]
) -> x509.Certificate | None:
    """Return the leaf, or None when it cannot be served any longer.

    It may be damaged, another's, too old or too new for the clock, or lack a name. A name too many
    does no harm.
    """
    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
        leaf = chain[0]
        leaf.verify_directly_issued_by(ca)
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature):
        return None
    fresh = leaf.not_valid_before_utc <= now() < leaf.not_valid_after_utc - RENEW_BEFORE
    whole = len(chain) == 2 and chain[1] == ca and leaf.public_key() == key.public_key()
    return leaf if fresh and whole and set(names) <= set(names_in(leaf)) else None


def _make_leaf(
    key: ec.EllipticCurvePrivateKey,
    ca_key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    names: tuple[str, ...],
) -> x509.Certificate:
    start = now() - BACKDATED
    general = [name for name in map(general_name, names) if name is not None]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(_name("Bridge"), ca.subject, key, ca=False, start=start)
        .not_valid_after(min(start + timedelta(days=limits.LEAF_DAYS), ca.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(general), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    start: datetime,
) -> x509.CertificateBuilder:
    """Begin a certificate with what authority and leaf have in common."""
    usage = x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder(
            issuer_name=issuer,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
        )
        .not_valid_before(start)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
