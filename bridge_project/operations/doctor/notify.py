"""Check the addresses of BRIDGE_NOTIFY_URLS, and send a test there (D74)."""

from django.db import connection

from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot
from devices_app.models import NotifyAddress
from devices_app.push import addresses


def configured(seen: Snapshot) -> list[Finding]:
    """Say whether each address is understood, and what became of its last message."""
    if not seen.conf.bridge_notify_urls:
        return []
    return [_word(seen, one, addresses.last_word(one)) for one in _listed()]


def trial(seen: Snapshot) -> list[Finding]:
    """Send a test to each address."""
    if not seen.conf.bridge_notify_urls:
        return [warning("BRIDGE_NOTIFY_URLS names no address.")]
    return [_word(seen, one, addresses.test(one)) for one in _listed()]


def _listed() -> list[NotifyAddress]:
    try:
        return addresses.listed()
    finally:
        connection.close()


def _word(seen: Snapshot, address: NotifyAddress, word: str) -> Finding:
    if not addresses.is_understood(address):
        return broken(f"{address}: {addresses.NOT_UNDERSTOOD}")
    text = f"{address}: {word}"
    return warning(text, seen.manage("doctor --send")) if address.problem else ok(text)
