"""Know the names under which this bridge answers (D18)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import structlog

from bridge_project.kernel.config import ConfError, conf
from bridge_project.network import certificates, interfaces, transport

log = structlog.get_logger("bridge.http")

NAMES_SECONDS: Final = 30  # an interface may come up while the bridge runs


_known: tuple[float, frozenset[str]] = (0.0, frozenset())


def own_names(scope: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the certificate, the public URL, the interfaces and this connection."""
    global _known
    until, names = _known
    if time.monotonic() >= until:
        certified = certificates.wanted_names(conf)
        if conf.bridge_tls_cert:
            try:
                certified += certificates.ensure(conf).names
            except ConfError as error:  # the file is being replaced; the names in use stay
                log.warning("certificate_unreadable", error=str(error))
                certified += tuple(names)
        names = transport.allowed_names(conf, certified, interfaces.local_addresses())
        _known = (time.monotonic() + NAMES_SECONDS, names)
    accepted_on = (scope.get("server") or ("",))[0]
    return names | {transport.normalise(str(accepted_on or ""))}
