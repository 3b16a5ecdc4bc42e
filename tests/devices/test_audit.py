"""The audit trail is append only: whatever could change or delete an entry refuses to."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from devices_app import audit
from devices_app.models import AuditEntry, Device
from tests.devices.conftest import mint

pytestmark = pytest.mark.django_db


def changed(entry: AuditEntry) -> AuditEntry:
    entry.who = "Mallory"
    return entry


CHANGES: dict[str, Callable[[AuditEntry], Any]] = {
    "save": lambda entry: changed(entry).save(),
    "update": lambda entry: AuditEntry.objects.update(who="Mallory"),
    "bulk_update": lambda entry: AuditEntry.objects.bulk_update([changed(entry)], ["who"]),
    "bulk_create": lambda entry: AuditEntry.objects.bulk_create([changed(entry)]),
    "update_or_create": lambda entry: AuditEntry.objects.update_or_create(
        pk=entry.pk, defaults={"who": "Mallory"}
    ),
    "delete": lambda entry: entry.delete(),
    "delete all": lambda entry: AuditEntry.objects.all().delete(),
}


def test_nothing_changes_deletes_or_replaces_an_entry() -> None:
    audit.record("commit", actor=AuditEntry.Actor.TERMINAL, who="Ada", subject="abc")
    for change in CHANGES.values():
        with pytest.raises(TypeError, match="never changed or deleted"):
            change(AuditEntry.objects.get())
        assert AuditEntry.objects.get().who == "Ada"
    number = AuditEntry.objects.get().pk
    with pytest.raises(IntegrityError), transaction.atomic():
        AuditEntry(pk=number, action="commit", actor="terminal", who="Mallory").save()
    assert AuditEntry.objects.get().who == "Ada"


def test_an_entry_outlives_its_device() -> None:
    device, _, _ = mint("Ada's phone")
    audit.record("decision", device=device)
    number = device.pk
    Device.objects.all().delete()
    entry = AuditEntry.objects.get(action="decision")
    assert (entry.who, entry.device_number) == ("Ada's phone", number)
