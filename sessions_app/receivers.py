"""Notify devices of a new one; withdraw the prompts of a revoked one (D15)."""

from typing import Any

import structlog
from django.db import transaction
from django.dispatch import receiver

from bridge_project.protocol.catalogue import encode
from devices_app.models import Device
from devices_app.signals import device_paired, device_revoked
from sessions_app import notifications
from sessions_app.agents import inbox
from sessions_app.approvals.rules import store as rules
from sessions_app.log import cursors
from sessions_app.log.outbox import outbox
from sessions_app.models import Command

log = structlog.get_logger("bridge.pairing")


@receiver(device_paired)
def on_device_paired(
    sender: type[Device], device: Device, first: bool, quiet: bool, notification_id: str, **_: Any
) -> None:
    """Tell the other devices; let a new device begin after the log's newest row."""
    paired = notifications.paired(device, notification_id)
    with outbox() as box:
        if not quiet:
            box.append_to_all(encode(paired))
        if first:
            device.start_seq = box.seq
            device.save(update_fields=["start_seq"])
    if not quiet:
        if not first:  # it knows of itself
            cursors.acknowledge(device.pk, (), answered=[paired.notification_id])
        transaction.on_commit(lambda: log.info("device_paired", device=device.pk, name=device.name))


@receiver(device_revoked)
def on_device_revoked(sender: type[Device], device: Device, **_: Any) -> None:
    """Withdraw its waiting prompts and its rules; polling closes its sockets."""
    with outbox() as box:
        rules.remove_of(device.pk)
        for session in inbox.withdraw(box, Command.objects.all(), "device", device.pk):
            why = f"{device.name}, which had sent them, was revoked before the agent took them."
            box.append_to_all(encode(notifications.happened(session, "withdrawn", why)))
