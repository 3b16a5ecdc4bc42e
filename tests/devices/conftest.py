"""What the tests of devices share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from devices_app import pairing, signals
from devices_app.models import Device, Token

Minted = tuple[Device, Token, str]
TEN_MINUTES = timedelta(minutes=10)


@pytest.fixture
def mint() -> Callable[..., Minted]:
    def make(
        name: str = "phone",
        *,
        ttl: timedelta = TEN_MINUTES,
        lifetime: timedelta | None = None,
        device: Device | None = None,
    ) -> Minted:
        return pairing.mint(name, ttl=ttl, lifetime=lifetime, device=device)

    return make


@pytest.fixture
def paired() -> Iterator[list[dict[str, Any]]]:
    """The keyword arguments of every ``device_paired`` so far."""
    seen: list[dict[str, Any]] = []

    def receive(**kwargs: Any) -> None:
        seen.append(kwargs)

    signals.device_paired.connect(receive)
    yield seen
    signals.device_paired.disconnect(receive)


@pytest.fixture
def revoked() -> Iterator[list[Device]]:
    seen: list[Device] = []

    def receive(device: Device, **kwargs: Any) -> None:
        seen.append(device)

    signals.device_revoked.connect(receive)
    yield seen
    signals.device_revoked.disconnect(receive)


def auth(plain: str, device_id: str | None = "id-1", **changes: str) -> Device:
    """A WebSocket's ``auth``."""
    given = {"platform": "ios", "client_version": "1.2.3", "address": "192.168.1.7", **changes}
    return pairing.authenticate(plain, client_device_id=device_id, **given)[0]
