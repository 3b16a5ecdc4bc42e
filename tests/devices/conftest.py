"""Make and pair devices without a socket."""

from datetime import timedelta

from devices_app import pairing
from devices_app.models import Device, Token


def mint(name: str = "phone", lifetime: timedelta | None = None) -> tuple[Device, Token, str]:
    return pairing.mint(name, ttl=timedelta(minutes=10), lifetime=lifetime)


def auth(plain: str, device_id: str | None = "id-1", **changes: str) -> Device:
    given = {"platform": "ios", "client_version": "1.2.3", "address": "192.168.1.7", **changes}
    return pairing.authenticate(plain, client_device_id=device_id, **given)[0]
