"""Make and renew the server's certificate (D19, D44).

The bridge's own authority signs it (it is that authority's *leaf*), and it is renewed in time with
the same key; or the settings give one.
"""

import fcntl
import logging
import os
import socket
from datetime import timedelta
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.network import authority
from bridge_project.network.certificate_files import (
    Certificates,
    describe,
    general_name,
    names_in,
    now,
    read_configured,
)
from bridge_project.network.server_address import local_addresses
from bridge_project.network.transport import EVERYWHERE, accepts_on

log = logging.getLogger("bridge.tls")

# a clock that is set back a little, here or at a client, finds the certificate valid
BACKDATED = timedelta(days=1)


def load_or_renew(conf: Conf, *, new_authority: bool = False) -> Certificates:
    """Return the certificate to serve, made or renewed if need be.

    Cheap enough for every minute, from any process. ``new_authority``: also make a new authority;
    the leaf keeps its key, so that pins hold, and a running bridge serves it within a minute (D55).
    Raises ConfError, in one line with the setting, when a given certificate cannot be used, or when
    an own file is damaged that must not be replaced.
    """
    if conf.bridge_tls_cert and conf.bridge_tls_key:
        return read_configured(conf.bridge_tls_cert, conf.bridge_tls_key)
    try:
        directory = make_private_dir(conf.bridge_data_dir, "tls")
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(lock, "rb"):
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time
            names = wanted_names(conf)
            # in this order: after an end in between, the next call completes authority and leaf
            for name in ("ca.crt", "ca.key") if new_authority else ():
                (directory / name).unlink(missing_ok=True)
            return _renew_own(directory, names)
    except OSError as error:
        raise ConfError(
            f"BRIDGE_DATA_DIR: the certificate cannot be kept in it ({error.strerror}:"
            f" {error.filename})"
        ) from None


def wanted_names(conf: Conf) -> tuple[str, ...]:
    """Return the names that the leaf must have (D19)."""
    host = socket.gethostname().lower().rstrip(".")
    names = ["localhost", host, f"{host.partition('.')[0] or 'bridge'}.local"]
    if conf.bridge_host in EVERYWHERE:
        names += [one for one in local_addresses() if accepts_on(conf.bridge_host, one)]
    else:
        names += ["127.0.0.1", "::1", conf.bridge_host]
    names.append(urlsplit(conf.bridge_public_url).hostname or "")
    return tuple(dict.fromkeys(name for name in names if name and general_name(name) is not None))


def _renew_own(directory: Path, names: tuple[str, ...]) -> Certificates:
    """Make missing files, and renew authority and leaf when it is time."""
    ca_path, chain, key_path = (directory / f for f in ("ca.crt", "server.crt", "server.key"))
    ca_key = _load_or_make_key(directory / "ca.key", ca_path)
    ca = authority.load_or_renew_authority(ca_path, ca_key, names)
    left_out = [name for name in names if not authority.permits(ca, name)]
    names = tuple(name for name in names if name not in left_out)
    key = _load_or_make_key(key_path, chain)
    leaf = _load_leaf(chain, key, ca, names)
    if leaf is None:
        leaf = _make_leaf(key, ca_key, ca, names)
        write_private_file(chain, authority.pem(leaf) + authority.pem(ca))
    if left_out:
        _log_left_out(", ".join(left_out))
    return describe(leaf, chain, key_path, ca_path)


@cache
def _log_left_out(left_out: str) -> None:
    """Log once the bridge's names that the authority may not sign."""
    log.warning(
        "The certificate authority may not sign for %s, so the certificate lacks it;"
        " the command `new_ca` makes one that may.",
        left_out,
    )


def _load_or_make_key(path: Path, certificate: Path) -> ec.EllipticCurvePrivateKey:
    """Return a file's key; make it when its certificate is missing too.

    A lost or damaged key is never replaced in silence: clients rely on it.
    """
    if not path.exists() and not certificate.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        write_private_file(path, made.private_bytes(serialization.Encoding.PEM, *plain))
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfError(
            f"BRIDGE_DATA_DIR: {path} is missing or damaged; restore it from a backup, or delete it"
            f" and {certificate.name}; then every device that trusts it must be paired again"
        )
    return key


def _load_leaf(
    path: Path, key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, names: tuple[str, ...]
) -> x509.Certificate | None:
    """Return the leaf, or None when it cannot be served any longer."""
    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
        leaf = chain[0]
        leaf.verify_directly_issued_by(ca)
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature):
        return None
    fresh = leaf.not_valid_before_utc <= now() < leaf.not_valid_after_utc - authority.RENEW_BEFORE
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
        authority.begin_certificate(
            authority.common_name("Bridge"), ca.subject, key, ca=False, start=start
        )
        .not_valid_after(min(start + timedelta(days=limits.LEAF_DAYS), ca.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(general), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
