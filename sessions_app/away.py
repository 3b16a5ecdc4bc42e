"""Store whether the owner is away, and tell every device (D66)."""

import os
import time
from datetime import timedelta
from pathlib import Path

from django.db import transaction

from bridge_project.kernel import limits
from bridge_project.kernel.ages import ages
from bridge_project.kernel.config import conf
from bridge_project.kernel.private_files import write_private_file
from bridge_project.protocol import resources
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.server_messages import PresenceState
from bridge_project.protocol.types import now_text
from devices_app import audit
from devices_app.models import AuditEntry, Device
from sessions_app.log.outbox import Outbox, outbox
from sessions_app.models import Presence


def set_away(
    away: bool, *, device: Device | None = None, who: str = "", row_id: str | None = None
) -> PresenceState | None:
    """Store that the owner is away, or back; return None, or what was so already.

    ``device``: which says so; ``who``: the user of a command at the machine. ``row_id``: the id of
    the ``presence_state`` that tells the devices.
    """
    with outbox() as box:
        actor = AuditEntry.Actor.DEVICE if device else AuditEntry.Actor.TERMINAL
        changed = _store(box, away, actor, device=device, who=who, row_id=row_id)
        return None if changed else PresenceState(**(current() or _of(Presence())).model_dump())


def _store(
    box: Outbox,
    away: bool,
    actor: str,
    *,
    device: Device | None = None,
    who: str = "",
    row_id: str | None = None,
) -> bool:
    """Store and tell it if it is news; return whether it was."""
    known = Presence.objects.filter(pk=1).first() or Presence(pk=1)
    if known.away == away:
        return False
    known.away, known.since = away, box.now
    known.device_name = device.name if device else ""
    known.save()
    if away:
        mark(True)  # before the devices are told; if this is not stored, `follow` takes it back
    else:
        transaction.on_commit(lambda: mark(is_away()))
    box.append_to_all(encode(PresenceState(**_of(known).model_dump()), id=row_id))
    audit.record("away" if away else "back", actor=actor, device=device, who=who)
    return True


def come_back(box: Outbox, actor: str) -> None:
    """Store that the owner is back, in the caller's transaction."""
    _store(box, False, actor)


def is_away() -> bool:
    return Presence.objects.filter(pk=1, away=True).exists()


def current() -> resources.Presence | None:
    """Return what devices are told; None as long as nobody has ever been away."""
    known = Presence.objects.filter(pk=1).first()
    return None if known is None else _of(known)


def _of(known: Presence) -> resources.Presence:
    since, device = now_text(known.since), known.device_name or None
    return resources.Presence(away=known.away, device=device, since=since)


def follow() -> None:
    """End it after AWAY_SECONDS, and show the hooks of this machine how it is."""
    long = ages.now() - timedelta(seconds=limits.AWAY_SECONDS)
    if Presence.objects.filter(pk=1, away=True, since__lte=long).exists():
        with outbox() as box:
            come_back(box, AuditEntry.Actor.BRIDGE)
    elif is_away():
        mark(True)
    elif os.path.lexists(_path()):
        with outbox():  # nobody stores meanwhile that the owner is away
            mark(is_away())


def mark(away: bool) -> None:
    """Make or remove the file by which the hooks of this machine know (D66).

    It is renewed now and then: a hook that nobody sees waits for no bridge that hangs.
    """
    path = _path()
    try:
        age = time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        age = None
    if not away and age is not None:
        path.unlink(missing_ok=True)
    elif away and age is None and path.parent.is_dir():
        write_private_file(path, b"")
    elif away and age is not None and not 0 <= age < limits.AWAY_MARK_SECONDS:
        os.utime(path)


def _path() -> Path:
    return conf.bridge_data_dir / "spool" / "away"
