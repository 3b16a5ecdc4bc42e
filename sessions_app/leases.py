"""Register this process with a lease that its connections depend on (D46).

Those of a killed process stop counting when its lease ends, or as soon as its successor starts on
the same data directory (D35).
"""

import uuid
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils import timezone

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.private_files import write_private_file
from sessions_app.models import Process

_current = uuid.UUID(int=0)


def current() -> uuid.UUID:
    """Return this process's id in the lease table; zeros in a management command."""
    return _current


def instance() -> str:
    """Return the data directory's id, by which a process knows its predecessor (D35)."""
    path = conf.bridge_data_dir / "instance"
    if not path.exists():
        write_private_file(path, f"{uuid.uuid4()}\n".encode())
    return path.read_text().strip()


def start(name: str) -> uuid.UUID:
    """Register this process and end its predecessor's lease; return its id."""
    global _current
    with transaction.atomic():
        Process.objects.filter(Q(instance=name) | Q(lease_until__lt=clock())).delete()
        _current = Process.objects.create(instance=name, lease_until=end_of_lease()).pk
    return _current


def stop() -> None:
    """End this process's lease; keep its row for sockets that are still closing."""
    Process.objects.filter(pk=_current).update(lease_until=clock())


def renew() -> bool:
    """Extend the lease. False: it had ended, and the row is gone."""
    return Process.objects.filter(pk=_current).update(lease_until=end_of_lease()) == 1


def is_alive(process_id: uuid.UUID) -> bool:
    """Return whether a process serves, as far as its lease says."""
    return Process.objects.filter(pk=process_id, lease_until__gt=clock()).exists()


def clock() -> Combinable | datetime:
    """Return the time that leases are measured by.

    It is the database's clock where several hosts share one: their own clocks may differ.
    """
    return Now() if connection.vendor == "postgresql" else timezone.now()


def end_of_lease() -> Combinable | datetime:
    return clock() + timedelta(seconds=limits.LEASE_SECONDS)
