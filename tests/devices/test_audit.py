"""The audit trail is append only: whatever could change or delete an entry refuses to."""

from functools import partial

import pytest
from django.db import IntegrityError, transaction

from devices_app import audit
from devices_app.models import AuditEntry, Device
from tests.devices.conftest import mint

pytestmark = pytest.mark.django_db


def test_nothing_changes_deletes_or_replaces_an_entry() -> None:
    audit.record("commit", actor=AuditEntry.Actor.TERMINAL, who="Ada", subject="abc")
    entries, entry = AuditEntry.objects, AuditEntry.objects.get()
    entry.who = "Mallory"
    for change in (
        entry.save,
        entry.delete,
        entries.all().delete,
        partial(entries.update, who="Mallory"),
        partial(entries.bulk_update, [entry], ["who"]),
        partial(entries.bulk_create, [entry]),
    ):
        with pytest.raises(TypeError, match="never changed or deleted"):
            change()
    with pytest.raises(IntegrityError), transaction.atomic():
        AuditEntry(pk=entry.pk, action="commit", actor="terminal", who="Mallory").save()
    assert entries.get().who == "Ada"


def test_an_entry_outlives_its_device() -> None:
    device, _, _ = mint("Ada's phone")
    audit.record("decision", device=device)
    number = device.pk
    Device.objects.all().delete()
    entry = AuditEntry.objects.get(action="decision")
    assert (entry.who, entry.device_number) == ("Ada's phone", number)
