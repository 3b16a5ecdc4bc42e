"""Which connections a process must end, whoever caused it (D15, D23, D46)."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from devices_app.models import Device, Token
from sessions_app import leases
from sessions_app.models import Connection
from sessions_app.socket import presence
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def process() -> uuid.UUID:
    return leases.start("here")


def connected(process: uuid.UUID, name: str) -> Connection:
    """A device with a token that ends tomorrow, and its connection."""
    device = helpers.device(name)
    token = Token.objects.create(
        device=device,
        digest=f"{name:>064}",
        use_by=timezone.now(),
        expires_at=timezone.now() + timedelta(days=1),
    )
    return Connection.objects.get(
        pk=presence.open_connection(process, device, token.digest, "127.0.0.1")
    )


def test_nothing_to_end(process: uuid.UUID) -> None:
    """Nor what belongs to another process, nor a connection whose token has no end, or is not known
    any more.
    """
    connected(process, "one")
    endless = connected(process, "two")
    Token.objects.filter(device=endless.device).update(expires_at=None)
    Connection.objects.filter(pk=connected(process, "three").pk).update(token=None)
    elsewhere = connected(leases.start("elsewhere"), "four")
    Device.objects.filter(pk=elsewhere.device_id).update(revoked_at=timezone.now())
    assert presence.ended_elsewhere(process) == (set(), set())


def test_what_ends_a_connection(process: uuid.UUID) -> None:
    """A newer connection of the device; a revoked device; a revoked token; a token that has come to
    its end.
    """
    replaced, device, token, expired, untouched = (
        connected(process, name) for name in ("replaced", "device", "token", "expired", "untouched")
    )
    newest = presence.open_connection(process, replaced.device, "", "127.0.0.1")
    now = timezone.now()
    Device.objects.filter(pk=device.device_id).update(revoked_at=now)
    Token.objects.filter(device=token.device_id).update(revoked_at=now)
    Token.objects.filter(device=expired.device_id).update(expires_at=now)
    assert presence.ended_elsewhere(process) == ({replaced.pk}, {device.pk, token.pk, expired.pk})
    Device.objects.filter(pk=replaced.device_id).update(revoked_at=now)
    assert presence.ended_elsewhere(process) == (
        {replaced.pk},
        {replaced.pk, newest, device.pk, token.pk, expired.pk},
    )
    assert untouched.pk in presence.held(process)
