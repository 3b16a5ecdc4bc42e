# ruff: noqa: N802 - the names are twisted's
"""Serve the newest certificate (D19)."""

import asyncio
import logging
from typing import Any

import daphne.server  # noqa: F401  installs the asyncio reactor: before anything else of twisted's
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.ssl import CertificateOptions, TLSVersion
from zope.interface import implementer

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf, ConfError
from bridge_project.network.certificate_files import Certificates
from bridge_project.network.certificates import load_or_renew

log = logging.getLogger("bridge.server")


@implementer(IOpenSSLServerConnectionCreator)
class TLSContextHolder:
    """Hold the newest TLS context; open connections keep their old one (D19)."""

    def __init__(self, certificates: Certificates) -> None:
        self.use(certificates)

    def use(self, certificates: Certificates) -> None:
        """Serve this certificate from now on.

        Raises ConfError, and keeps the old one, when OpenSSL refuses it.
        """
        context = CertificateOptions(
            raiseMinimumTo=TLSVersion.TLSv1_2, acceptableProtocols=[b"http/1.1"]
        ).getContext()
        context.set_passwd_cb(lambda *_: b"")  # or OpenSSL would ask for one on the terminal
        try:
            context.use_certificate_chain_file(str(certificates.chain))
            context.use_privatekey_file(str(certificates.key))
        except SSL.Error as error:
            text = f"BRIDGE_TLS_CERT: {certificates.chain} and its key cannot be used ({error})"
            raise ConfError(text) from None
        self.certificates = certificates
        self._context = context

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        return SSL.Connection(self._context, None)

    async def keep_newest(self, conf: Conf) -> None:
        """Load a renewed certificate without a restart, whichever process renewed it."""
        while True:
            await asyncio.sleep(limits.CERTIFICATE_CHECK_SECONDS)
            try:
                newest = await asyncio.to_thread(load_or_renew, conf)
                if newest.fingerprint != self.certificates.fingerprint:
                    self.use(newest)
                    until = newest.not_after.date()
                    log.info("A new certificate is served, valid until %s.", until)
            except ConfError as error:
                message = "The certificate could not be renewed, the old one stays in use: %s"
                log.error(message, error)
