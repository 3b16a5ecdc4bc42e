"""Make and renew the bridge's own certificate authority (D19, D55).

A phone that trusts it trusts it only for private names and addresses and for the bridge's own.
"""

import ipaddress
import logging
import os
import plistlib
import socket
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bridge_project.kernel import limits
from bridge_project.kernel.config import ConfError
from bridge_project.kernel.private_files import write_private_file
from bridge_project.kernel.setting_types import IPNetwork
from bridge_project.network.certificate_files import now
from bridge_project.network.transport import PRIVATE_NETWORKS, parse_address

log = logging.getLogger("bridge.tls")

# the authority allows for worse clocks: a new one would have to be installed on each device again
CA_BACKDATED = timedelta(days=365)
RENEW_BEFORE = timedelta(days=limits.LEAF_RENEW_BEFORE_DAYS)
PRIVATE_DOMAINS: Final = ("localhost", "local", "lan", "home.arpa", "internal", "ts.net")


def load_or_renew_authority(
    path: Path, key: ec.EllipticCurvePrivateKey, names: Iterable[str]
) -> x509.Certificate:
    """Return the authority's certificate, renewed near its end.

    It keeps its name, key and constraints, so that certificates it signed stay valid. ``names``:
    the bridge's names, for which a new authority is valid. Raises ConfError.
    """
    if not path.exists():
        name = common_name(f"Bridge CA {socket.gethostname()[:24]} {os.urandom(3).hex()}")
        return _make_authority(path, key, name, _constraints(names))
    try:
        ca = x509.load_pem_x509_certificate(path.read_bytes())
        if ca.public_key() != key.public_key():
            raise ValueError
    except ValueError:
        raise ConfError(
            f"BRIDGE_DATA_DIR: {path} is damaged, or does not belong to ca.key; restore both, or"
            " delete both: phones must then install /ca.crt again"
        ) from None
    if ca.not_valid_after_utc - now() >= RENEW_BEFORE:
        return ca
    log.warning(
        "The certificate authority ends on %s and was renewed with the same key; phones that trust"
        " it must install /ca.crt again.",
        ca.not_valid_after_utc.date(),
    )
    return _make_authority(path, key, ca.subject, constraints_of(ca))


def _make_authority(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    name: x509.Name,
    constraints: x509.NameConstraints | None,
) -> x509.Certificate:
    today = now()
    builder = begin_certificate(name, name, key, ca=True, start=today - CA_BACKDATED)
    builder = builder.not_valid_after(today + timedelta(days=limits.CA_DAYS))
    if constraints is not None:
        builder = builder.add_extension(constraints, critical=False)
    ca = builder.sign(key, hashes.SHA256())
    write_private_file(path, pem(ca))
    return ca


def constraints_of(ca: x509.Certificate) -> x509.NameConstraints | None:
    """Return the names an authority may sign; None: all, as before D55."""
    try:
        return ca.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return None


def permits(ca: x509.Certificate, name: str) -> bool:
    """Return whether a certificate signed by the authority may have a name or address.

    Because of one name that it may not have, clients refuse the whole certificate.
    """
    constraints, address = constraints_of(ca), parse_address(name)
    for one in (constraints and constraints.permitted_subtrees) or ():
        if isinstance(one, x509.DNSName):
            if address is None and f".{name}".endswith(f".{one.value}"):
                return True
        elif address is not None and address in one.value:
            return True
    return constraints is None


def _constraints(names: Iterable[str]) -> x509.NameConstraints:
    """Return the names a new authority may sign: private ones and the bridge's own."""
    domains = dict.fromkeys(PRIVATE_DOMAINS)
    networks: dict[IPNetwork, None] = dict.fromkeys(PRIVATE_NETWORKS)
    for name in names:
        if (address := parse_address(name)) is None:
            domains[name] = None
        elif not any(address in network for network in networks):
            networks[ipaddress.ip_network(address)] = None
    permitted = [*map(x509.DNSName, domains), *map(x509.IPAddress, networks)]
    return x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None)


def fingerprint(ca: x509.Certificate) -> str:
    """Return the SHA-256 of an authority as systems show it, to be compared by eye."""
    return ca.fingerprint(hashes.SHA256()).hex(":").upper()


def apple_profile(ca: x509.Certificate) -> bytes:
    """Return an unsigned profile that installs the authority on an Apple device.

    It is named by the authority's key, so that a second download replaces the first.
    """
    key_id = x509.SubjectKeyIdentifier.from_public_key(ca.public_key()).digest.hex()
    called = str(ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    def payload(type_: str, part: str) -> dict[str, object]:
        identifier = f"bridge.{key_id}{part}"
        return {
            "PayloadType": type_,
            "PayloadVersion": 1,
            "PayloadIdentifier": identifier,
            "PayloadUUID": str(uuid.uuid5(uuid.NAMESPACE_OID, identifier)).upper(),
            "PayloadDisplayName": called,
        }

    root = payload("com.apple.security.root", ".authority") | {
        "PayloadCertificateFileName": "bridge-ca.cer",
        "PayloadContent": ca.public_bytes(serialization.Encoding.DER),
    }
    profile = payload("Configuration", "") | {
        "PayloadDescription": "Lets this device trust the certificate of your bridge.",
        "PayloadContent": [root],
    }
    return plistlib.dumps(profile)


def begin_certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    start: datetime,
) -> x509.CertificateBuilder:
    """Begin a certificate with the fields that authority and server share."""
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


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
