"""The audit trail is append only: whatever could change or delete an entry refuses to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from devices_app import audit
from devices_app.models import AuditEntry, Device
from tests.devices.conftest import Minted

pytestmark = pytest.mark.django_db


@pytest.fixture
def entry() -> AuditEntry:
    audit.record("commit", actor=AuditEntry.Actor.TERMINAL, who="Ada", subject="abc")
    return AuditEntry.objects.get()


def changed(entry: AuditEntry) -> AuditEntry:
    entry.who = "Mallory"
    return entry


CHANGES: dict[str, Callable[[AuditEntry], Any]] = {
    "save": lambda entry: changed(entry).save(),
    "save some fields": lambda entry: changed(entry).save(update_fields=["who"]),
    "update": lambda entry: AuditEntry.objects.update(who="Mallory"),
    "update some": lambda entry: AuditEntry.objects.filter(pk=entry.pk).update(who="Mallory"),
    "bulk_update": lambda entry: AuditEntry.objects.bulk_update([changed(entry)], ["who"]),
    "bulk_create": lambda entry: AuditEntry.objects.bulk_create([changed(entry)]),
    "update_or_create": lambda entry: AuditEntry.objects.update_or_create(
        pk=entry.pk, defaults={"who": "Mallory"}
    ),
    "delete": lambda entry: entry.delete(),
    "delete all": lambda entry: AuditEntry.objects.all().delete(),
    "delete some": lambda entry: AuditEntry.objects.exclude(who="Eve").delete(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_changes_or_deletes_an_entry(change: str, entry: AuditEntry) -> None:
    with pytest.raises(TypeError, match="never changed or deleted"):
        CHANGES[change](entry)
    assert AuditEntry.objects.values_list("who", flat=True).get() == "Ada"


def test_none_takes_the_place_of_another(entry: AuditEntry) -> None:
    """One that is made with the number of one that is there is refused by the database."""
    with pytest.raises(IntegrityError), transaction.atomic():
        AuditEntry(pk=entry.pk, action="commit", actor="terminal", who="Mallory").save()
    assert AuditEntry.objects.get().who == "Ada"


def test_an_entry_outlives_its_device(mint: Callable[..., Minted]) -> None:
    """Who it was is in the entry itself: nothing that removes a device asks for its entries."""
    device, _, _ = mint("Ada's phone")
    audit.record("decision", device=device)
    number = device.pk
    Device.objects.all().delete()
    assert AuditEntry.objects.values_list("who", "device_number").get(action="decision") == (
        "Ada's phone",
        number,
    )
