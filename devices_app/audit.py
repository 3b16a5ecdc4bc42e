"""Record decisions and changes by clients; entries are only ever added."""

from typing import Any

from devices_app.models import AuditEntry, Device


def record(
    action: str,
    *,
    actor: str = "",
    device: Device | None = None,
    who: str = "",
    session_id: str = "",
    subject: str = "",
    **details: Any,
) -> None:
    """Write an entry in the caller's transaction.

    ``actor``: default the device. ``details``: JSON values, nothing secret and nothing large.
    """
    AuditEntry.objects.create(
        action=action,
        actor=actor or AuditEntry.Actor.DEVICE,
        who=storable(who or (device.name if device else ""))[:200],
        device_number=device.pk if device else None,
        session_id=session_id[:256],
        subject=storable(subject)[:256],
        details={
            name: storable(value) if isinstance(value, str) else value
            for name, value in details.items()
            if value not in (None, "")
        },
    )


def storable(text: str) -> str:
    """Remove NULs and lone surrogates, which PostgreSQL takes in no text."""
    return text.replace("\x00", "").encode("utf-8", "ignore").decode()
