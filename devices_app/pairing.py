"""Create, bind, replace and revoke the tokens of devices (D15, D24, D43, D62)."""

from datetime import timedelta
from typing import Literal

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.database import delete_in_steps
from bridge_project.kernel.errors import BridgeError
from devices_app import audit, signals, tokens
from devices_app.models import AuditEntry, Device, NotifyChoices, PushSubscription, Token
from devices_app.tokens import Principal

State = Literal["waiting", "paired", "void", "expired", "revoked"]

SEEN_EVERY = timedelta(minutes=1)
BOUND_ELSEWHERE = "The token is bound to another device."


def mint(
    name: str, *, ttl: timedelta, lifetime: timedelta | None, device: Device | None = None
) -> tuple[Device, Token, str]:
    """Make a token for a new device, or for a known ``device`` (D43).

    Returns device, token and its plain text, which exists nowhere else. An empty ``name`` becomes
    "Device" and its number. ``ttl``: void when not used for that long; ``lifetime``: expires then,
    None for never. Raises ValueError when ``device`` was revoked.
    """
    plain, now = tokens.new_token(), timezone.now()
    with transaction.atomic():
        if device is None:
            device = Device.objects.create(name=name, created_at=now)
            if not name:
                device.name = f"Device {device.pk}"
                device.save(update_fields=["name"])
        else:
            device = Device.objects.select_for_update(no_key=True).get(pk=device.pk)
            if device.revoked_at is not None:
                raise ValueError(f"{device} was revoked; pair it as a new device")
        token = Token.objects.create(
            device=device,
            digest=tokens.digest(plain),
            minted_at=now,
            use_by=now + ttl,
            expires_at=None if lifetime is None else now + lifetime,
        )
    return device, token, plain


def mint_claimed(name: str, client_device_id: str, *, lifetime: timedelta) -> tuple[Device, str]:
    """Create a paired device for `doctor`, without a pairing code.

    Nobody is told, since no code of it exists: a claim that comes over the network is always
    announced. Returns the device and the token's plain text.
    """
    with transaction.atomic():
        device, token, plain = mint(name, ttl=lifetime, lifetime=lifetime)
        token.client_device_id, token.authenticated_at = client_device_id, timezone.now()
        token.save(update_fields=["client_device_id", "authenticated_at"])
        _announce(token, first=_use_first(token), quiet=True)
    return device, plain


def forget_void() -> int:
    """Delete devices whose code nobody used, a day after it expired."""
    since = ages.now() - timedelta(seconds=limits.VOID_DEVICE_KEEP_SECONDS)
    unpaired = Device.objects.filter(paired_at=None, created_at__lt=since)
    return delete_in_steps(unpaired.exclude(tokens__use_by__gt=since))


def record_token_use(principal: Principal, *, address: str) -> None:
    """Note a token's use over HTTP; the first use claims the token (D15).

    HTTP never binds a token to a device's id. Raises BridgeError AUTH_INVALID_TOKEN when the token
    was revoked or expired since ``identify`` checked it.
    """
    token, device = principal.token, principal.device
    if token is None or device is None:
        return
    if token.used_at is not None:
        touch(device, address)
        return
    with transaction.atomic():
        locked = _lock(token.digest)
        if locked is None:
            raise BridgeError("AUTH_INVALID_TOKEN")
        touch(locked.device, address)
        if locked.used_at is None:
            first = _use_first(locked)
            if locked.replaces_id is None:
                _announce(locked, first=first)
    token.used_at = locked.used_at


def authenticate(
    token_text: str,
    *,
    client_device_id: str | None,
    platform: str,
    client_version: str,
    address: str,
    notification_id: str = "",
) -> tuple[Device, str | None]:
    """Check a WebSocket's ``auth``; return the device and a fresh token (D15, D62).

    The first use claims the token, and the first ``device_id`` binds it: of several simultaneous
    ones exactly one binds. The fresh token replaces that of a pairing code; None for any other.
    ``notification_id``: of the notification about the device, if the others get one. Raises
    BridgeError AUTH_FAILED for whatever is wrong, in the same words for a token that is unknown,
    revoked, replaced, expired or void.
    """
    client_device_id = client_device_id or None
    if client_device_id is not None and audit.storable(client_device_id) != client_device_id:
        raise BridgeError("AUTH_FAILED")
    with transaction.atomic():
        token = _lock(tokens.digest(token_text))
        if token is None:
            raise BridgeError("AUTH_FAILED")
        if token.client_device_id not in (None, client_device_id):
            raise BridgeError("AUTH_FAILED", BOUND_ELSEWHERE)
        # before it is announced, so that the notification can say from where
        touch(token.device, address, platform, client_version)
        first = token.used_at is None and _use_first(token)
        if token.authenticated_at is None or token.client_device_id != client_device_id:
            token.authenticated_at = token.authenticated_at or timezone.now()
            token.client_device_id = client_device_id
            token.save(update_fields=["authenticated_at", "client_device_id"])
            if token.replaces_id is None:
                _announce(token, first=first, notification_id=notification_id)
        return token.device, _fresh(token)


def touch(device: Device, address: str, platform: str = "", version: str = "") -> None:
    """Record when a device was last seen, at most once a minute.

    At once when its address, platform or version has changed.
    """
    now = timezone.now()
    seen = {
        "last_address": address[:45],
        "platform": audit.storable(platform)[:16],
        "client_version": audit.storable(version)[:64],
    }
    changed = {
        name: value for name, value in seen.items() if value and getattr(device, name) != value
    }
    if not changed and device.last_seen_at is not None and now - device.last_seen_at < SEEN_EVERY:
        return
    Device.objects.filter(pk=device.pk).update(last_seen_at=now, **changed)
    device.last_seen_at = now
    for name, value in changed.items():
        setattr(device, name, value)


def check_not_revoked(device_pk: int) -> None:
    """Raise AUTH_FAILED for a revoked device: its socket may still be open (D15)."""
    if not Device.objects.filter(pk=device_pk, revoked_at=None).exists():
        raise BridgeError("AUTH_FAILED")


def revoke(device: Device, *, actor: str = AuditEntry.Actor.TERMINAL, who: str = "") -> bool:
    """Refuse all tokens of a device and close its sockets; False if done before."""
    now = timezone.now()
    with transaction.atomic():
        if not Device.objects.filter(pk=device.pk, revoked_at=None).update(revoked_at=now):
            device.refresh_from_db(fields=["revoked_at"])
            return False
        Token.objects.filter(device=device, revoked_at=None).update(revoked_at=now)
        PushSubscription.objects.filter(device=device).delete()
        NotifyChoices.objects.filter(device=device).delete()
        device.revoked_at = now
        audit.record("revoke", actor=actor, who=who, subject=str(device))
        signals.device_revoked.send(sender=Device, device=device)
    return True


def state(device: Device) -> State:
    """Return a device's state; ``void``: its code was not used in time."""
    now = timezone.now()
    if device.revoked_at is not None:
        return "revoked"
    valid = [
        token
        for token in device.tokens.all()
        if token.revoked_at is None and (token.expires_at is None or now < token.expires_at)
    ]
    if any(token.used_at for token in valid):
        return "paired"
    if any(now < token.use_by for token in valid):
        return "waiting"
    return "void" if device.paired_at is None and valid else "expired"


def acknowledge_warning(device: Device) -> None:
    """Store that the person has acknowledged the warning of a public address (D24)."""
    until = timezone.now() + timedelta(seconds=limits.ACKNOWLEDGED_WARNING_SECONDS)
    with transaction.atomic():
        if not warning_acknowledged(device):
            audit.record("warning_acknowledged", device=device)
        Device.objects.filter(pk=device.pk).update(warning_acknowledged_until=until)
    device.warning_acknowledged_until = until


def warning_acknowledged(device: Device) -> bool:
    """Return whether that acknowledgement is still valid."""
    until = device.warning_acknowledged_until
    return until is not None and timezone.now() < until


def _lock(token_digest: str) -> Token | None:
    """Return a valid token, locked together with its device.

    Always lock the device before its token, so that transactions never deadlock.
    """
    found = Token.objects.filter(digest=token_digest).first()
    if found is None:
        return None
    device = Device.objects.select_for_update(no_key=True).get(pk=found.device_id)
    token = Token.objects.filter(digest=token_digest).first()  # None if it was replaced meanwhile
    if token is not None:
        token.device = device
    return token if token is not None and tokens.is_valid(token, timezone.now()) else None


def _use_first(token: Token) -> bool:
    """Use a token for the first time; return whether that pairs the device.

    The token of a pairing code claims the device: its older codes and the tokens that replaced them
    end. A fresh token's first use ends its code's token, which is refused from now on but not
    revoked: a socket that was opened with it stays open (D62).
    """
    device, now = token.device, timezone.now()
    token.used_at = now
    token.save(update_fields=["used_at"])
    if token.replaces_id is not None:
        Token.objects.filter(replacement=token).update(replaced_at=now)
        subject = f"token {token.replaces_id} by token {token.pk}"
        audit.record("token_replaced", device=device, subject=subject, address=device.last_address)
        return False
    older = Q(pk__lt=token.pk, replaces=None) | Q(replaces__lt=token.pk)
    device.tokens.filter(older, revoked_at=None).update(revoked_at=now)
    # another app may acknowledge less than the one before
    Device.objects.filter(pk=device.pk).update(ack_style=Device.AckStyle.NOTHING)
    seen = {"address": device.last_address, "platform": device.platform}
    audit.record("pairing", device=device, subject=f"token {token.pk}", **seen)
    if device.paired_at is not None:
        return False
    device.paired_at = now
    device.save(update_fields=["paired_at"])
    return True


def _fresh(token: Token) -> str | None:
    """Make the token that replaces a pairing code's, or None (D62).

    There is one row for each code: a fresh token that was not used is void as soon as the next one
    is made.
    """
    if token.client_device_id is None or token.replaces_id is not None:
        return None
    plain = tokens.new_token()
    same = ("device", "client_device_id", "use_by", "expires_at")
    made = {name: getattr(token, name) for name in same}
    made |= {"digest": tokens.digest(plain), "minted_at": timezone.now()}
    Token.objects.update_or_create(replaces=token, defaults=made)
    return plain


def _announce(token: Token, *, first: bool, quiet: bool = False, notification_id: str = "") -> None:
    details = {"device": token.device, "token": token, "first": first, "quiet": quiet}
    signals.device_paired.send(sender=Device, notification_id=notification_id, **details)
