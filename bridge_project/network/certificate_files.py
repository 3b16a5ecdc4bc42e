"""Read the certificate's files: its chain, key, names and pin (D19, D44)."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization

from bridge_project.kernel.config import ConfError
from bridge_project.network.transport import parse_address


@dataclass(frozen=True, slots=True)
class Certificates:
    """Hold the certificate in use: its files, names and pin.

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
    not_after: datetime


def read_configured(chain_path: Path, key_path: Path) -> Certificates:
    """Read the certificate that the settings name. Raises ConfError, one line."""
    setting, path = "BRIDGE_TLS_CERT", chain_path
    try:
        leaf = x509.load_pem_x509_certificates(chain_path.read_bytes())[0]
        if (end := leaf.not_valid_after_utc) <= now():
            raise ValueError(f"it expired on {end:%Y-%m-%d}")
        public = leaf.public_key()
        setting, path = "BRIDGE_TLS_KEY", key_path
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        if key.public_key() != public:
            raise ValueError(f"it is not the key of the first certificate in {chain_path}")
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfError(f"{setting}: {path} cannot be used ({why})") from None
    return describe(leaf, chain_path, key_path, None)


def pin_of(certificate: bytes) -> str:
    """Return the pin of a certificate in DER: the hex SHA-256 of its public key (D43)."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    encoded = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(encoded).hexdigest()


def describe(leaf: x509.Certificate, chain: Path, key: Path, ca: Path | None) -> Certificates:
    return Certificates(
        chain=chain,
        key=key,
        ca=ca,
        names=names_in(leaf),
        pin=pin_of(leaf.public_bytes(serialization.Encoding.DER)),
        fingerprint=leaf.fingerprint(hashes.SHA256()).hex(),
        not_after=leaf.not_valid_after_utc,
    )


def names_in(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return (
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    )


def general_name(name: str) -> x509.GeneralName | None:
    """Return the name for a certificate; None if it cannot hold it (non-ASCII hosts)."""
    address = parse_address(name)
    if address is not None:
        return x509.IPAddress(address)
    try:
        return x509.DNSName(name)
    except ValueError:
        return None


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
