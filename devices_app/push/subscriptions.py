"""Subscribe and unsubscribe devices, and list usable subscriptions (D56)."""

from cryptography.hazmat.primitives.asymmetric import ec
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from py_vapid.utils import b64urldecode

from bridge_project.kernel.errors import BridgeError
from devices_app import audit
from devices_app.models import Device, PushSubscription, Token
from devices_app.push import endpoints, vapid


def subscribe(
    device: Device, endpoint: str, p256dh: str, auth: str, detail: str, position: int
) -> PushSubscription:
    """Store the address of a device's pushes; ``position``: the log's newest row.

    The same browser, paired once more, takes its subscription along. Raises BridgeError
    PUSH_ENDPOINT_REFUSED: an address that is not sent to, or another device's; ValueError: no
    public key.
    """
    ec.EllipticCurvePublicKey.from_encoded_point(
        ec.SECP256R1(), b64urldecode(p256dh.encode("ascii"))
    )
    where = {"endpoint": endpoints.check(endpoint).geturl(), "p256dh": p256dh, "auth": auth}
    where["public_key"] = vapid.public_key()
    try:
        return _subscribe(device, where, detail, position)
    except IntegrityError:  # another device subscribed there on another process just now
        return _subscribe(device, where, detail, position)


def _subscribe(
    device: Device, where: dict[str, str], detail: str, position: int
) -> PushSubscription:
    with transaction.atomic():
        # one after the other, and none for a device that is being revoked
        current = Device.objects.select_for_update(no_key=True).get(pk=device.pk)
        if current.revoked_at is not None:
            raise BridgeError("PUSH_ENDPOINT_REFUSED", "The device was revoked.")
        there = PushSubscription.objects.filter(endpoint=where["endpoint"])
        for other in there.exclude(device=device):
            if (other.p256dh, other.auth) != (where["p256dh"], where["auth"]):
                raise BridgeError("PUSH_ENDPOINT_REFUSED", "Another device is subscribed there.")
            other.delete()
        known = PushSubscription.objects.filter(device=device)
        if not known.filter(**where).update(detail=detail):
            known.delete()
            PushSubscription.objects.create(
                device=device, detail=detail, position=position, **where
            )
            host = endpoints.host_of(where["endpoint"])
            audit.record("push_subscribed", device=device, subject=host)
        return known.get()


def unsubscribe(device: Device) -> None:
    if PushSubscription.objects.filter(device=device).delete()[0]:
        audit.record("push_unsubscribed", device=device)


def usable() -> QuerySet[PushSubscription]:
    """Return subscriptions of valid devices that this process can send to."""
    used = Token.objects.filter(device=OuterRef("device"), used_at__isnull=False)
    tokens = used.filter(revoked_at=None, replaced_at=None)
    valid = tokens.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))
    return PushSubscription.objects.select_related("device").filter(
        Exists(valid), device__revoked_at=None, public_key=vapid.public_key()
    )
