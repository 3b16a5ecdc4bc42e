"""Subscribe and unsubscribe devices, and list usable subscriptions (D56)."""

import hashlib
import threading
from datetime import datetime
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.formats import date_format
from py_vapid.utils import b64urldecode

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.push_messages import PushSubscription as Given
from devices_app import audit
from devices_app.models import DeadEndpoint, Device, NotifyChoices, PushSubscription, Token
from devices_app.push import endpoints, vapid

changed: Final = threading.Event()  # by this process, since pushes were last looked for


def subscribe(
    device: Device,
    subscription: Given,
    detail: str | None = None,
    position: int | None = None,
) -> PushSubscription:
    """Store the address of a device's pushes; ``position``: the log's newest row.

    Without these it is a renewal, and both stay. What was not pushed to an older address is pushed
    to this one. The same browser, paired once more, takes its subscription along. Raises
    BridgeError PUSH_ENDPOINT_REFUSED: an address that is not sent to, another device's, or a
    renewal of nothing; PUSH_ENDPOINT_GONE; ValueError: no public key.
    """
    check_allowed()
    p256dh, auth = subscription.keys.p256dh, subscription.keys.auth
    ec.EllipticCurvePublicKey.from_encoded_point(
        ec.SECP256R1(), b64urldecode(p256dh.encode("ascii"))
    )
    endpoint = endpoints.check(subscription.endpoint).geturl()
    where = {"endpoint": endpoint, "p256dh": p256dh, "auth": auth}
    where["public_key"] = vapid.public_key()
    try:
        subscribed = _subscribe(device, where, detail, position)
    except IntegrityError:  # another device subscribed there on another process just now
        subscribed = _subscribe(device, where, detail, position)
    changed.set()
    return subscribed


def _subscribe(
    device: Device, where: dict[str, str], detail: str | None, position: int | None
) -> PushSubscription:
    with transaction.atomic():
        # one after the other, and none for a device that is being revoked
        current = Device.objects.select_for_update(no_key=True).get(pk=device.pk)
        if current.revoked_at is not None:
            raise BridgeError("PUSH_ENDPOINT_REFUSED", "The device was revoked.")
        if DeadEndpoint.objects.filter(digest=_digest(where["endpoint"])).exists():
            raise BridgeError("PUSH_ENDPOINT_GONE")
        there = PushSubscription.objects.filter(endpoint=where["endpoint"])
        for other in there.exclude(device=device):
            if (other.p256dh, other.auth) != (where["p256dh"], where["auth"]):
                raise BridgeError("PUSH_ENDPOINT_REFUSED", "Another device is subscribed there.")
            other.delete()
        known, same = PushSubscription.objects.filter(device=device), dict[str, Any]()
        if not known.filter(**where).exists():
            same |= where | {"dead_at": None, "next_at": None, "tries": 0}
        if not known.update(**same or where):
            if position is None:
                raise BridgeError("PUSH_ENDPOINT_REFUSED", "This device has asked for no pushes.")
            PushSubscription.objects.create(device=device, position=position, **same)
        if "endpoint" in same:
            host = endpoints.host_of(where["endpoint"])
            audit.record("push_subscribed", device=device, subject=host)
        if detail is not None:
            NotifyChoices.objects.update_or_create({"detail": detail}, device=device)
        return known.get()


def check_allowed() -> None:
    """Raise PUSH_ENDPOINT_REFUSED where BRIDGE_PUSH forbids pushes."""
    if conf.bridge_push == "off":
        raise BridgeError("PUSH_ENDPOINT_REFUSED", "Push is switched off: BRIDGE_PUSH is off.")


def bury(subscription: PushSubscription) -> None:
    """Note that the push service knows an address no more: it is never taken again."""
    with transaction.atomic():
        DeadEndpoint.objects.get_or_create(digest=_digest(subscription.endpoint))
        same = PushSubscription.objects.filter(pk=subscription.pk, endpoint=subscription.endpoint)
        same.update(dead_at=timezone.now())


def record_shown(device: Device, notification_id: str) -> bool:
    """Note that a device has shown its last push; return whether it was that one."""
    last = PushSubscription.objects.filter(device=device, last_id=notification_id)
    return last.exclude(last_id="").filter(shown_at=None).update(shown_at=timezone.now()) == 1


def last_word(device: Device) -> str:
    """Return in words what became of a device's last push (D74)."""
    found = PushSubscription.objects.filter(device=device).first()
    if found is None:
        return "It has asked for no pushes."
    if found.last_at is None:
        return "None yet."
    service = endpoints.service_of(found.last_host)
    words = f"failed at {service}: {found.problem}" if found.problem else f"accepted by {service}"
    words += f", {moment(found.last_at)}"
    if found.shown_at:
        words += f"; shown {moment(found.shown_at)}"
    return f"{words}; it has no address since {moment(found.dead_at)}" if found.dead_at else words


def moment(at: datetime) -> str:
    """Return a moment in the words of the admin site."""
    return date_format(timezone.localtime(at), "DATETIME_FORMAT")


def _digest(endpoint: str) -> str:
    return hashlib.sha256(endpoint.encode()).hexdigest()


def unsubscribe(device: Device) -> None:
    if PushSubscription.objects.filter(device=device).delete()[0]:
        audit.record("push_unsubscribed", device=device)


def usable() -> QuerySet[PushSubscription]:
    """Return subscriptions of valid devices that this process can send to."""
    used = Token.objects.filter(device=OuterRef("device"), used_at__isnull=False)
    tokens = used.filter(revoked_at=None, replaced_at=None)
    valid = tokens.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()))
    return PushSubscription.objects.select_related("device__notify").filter(
        Exists(valid), device__revoked_at=None, dead_at=None, public_key=vapid.public_key()
    )
