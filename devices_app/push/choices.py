"""Keep what devices want to be told, and decide by it (D74)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from django.db import transaction

from bridge_project.protocol.notify_messages import Notify, NotifySet
from devices_app.models import Device, NotifyChoices
from devices_app.push import subscriptions


@dataclass(frozen=True, slots=True)
class About:
    """Hold what choices go by, of a notification or of a call that waits."""

    kind: str
    session_id: str | None
    created_at: datetime
    risk: str = ""


def of(device: Device) -> NotifyChoices:
    return NotifyChoices.objects.filter(device=device).first() or NotifyChoices(device=device)


def change(device: Device, given: NotifySet) -> NotifyChoices:
    """Store those of the fields that a device has sent."""
    sent = given.model_fields_set
    with transaction.atomic():
        Device.objects.select_for_update(no_key=True).get(pk=device.pk)  # one after the other
        chosen = of(device)
        if given.kinds is not None:
            chosen.kinds = list(dict.fromkeys(given.kinds))
        if given.muted is not None:
            chosen.muted = list(dict.fromkeys(given.muted))
        if given.reminder_minutes is not None:
            chosen.reminder_minutes = given.reminder_minutes
        if given.detail is not None:
            chosen.detail = given.detail
        if "quiet" in sent:
            quiet = given.quiet
            chosen.quiet_from, chosen.quiet_to, chosen.quiet_zone = (
                (quiet.from_, quiet.to, quiet.zone) if quiet else ("", "", "")
            )
        chosen.save()
    subscriptions.changed.set()
    return chosen


def shown(chosen: NotifyChoices) -> Notify:
    """Return choices as a device is sent them."""
    hours = {"from": chosen.quiet_from, "to": chosen.quiet_to, "zone": chosen.quiet_zone}
    names = ("kinds", "muted", "reminder_minutes", "detail")
    fields = {name: getattr(chosen, name) for name in names}
    return Notify.model_validate(fields | {"quiet": hours if chosen.quiet_zone else None})


def verdict(chosen: NotifyChoices, about: About, now: datetime) -> Literal["push", "hold", "drop"]:
    """Decide what becomes of a push; one that is held is sent when quiet hours end."""
    is_approval = about.kind == "approval_required"
    if about.kind not in chosen.kinds:
        return "drop"
    if is_approval and about.risk in ("high", "critical"):
        return "push"
    if about.session_id in chosen.muted:
        return "drop"
    if is_quiet(chosen, now):
        return "hold" if is_approval else "drop"
    return "drop" if not is_approval and is_quiet(chosen, about.created_at) else "push"


def is_quiet(chosen: NotifyChoices, at: datetime) -> bool:
    """Return whether the clock of the device's zone shows a time of its quiet hours."""
    if not chosen.quiet_zone:
        return False
    begins, ends = chosen.quiet_from, chosen.quiet_to
    shows = at.astimezone(ZoneInfo(chosen.quiet_zone)).strftime("%H:%M")
    if begins < ends:
        return begins <= shows < ends
    return shows >= begins or shows < ends  # over midnight
