"""Store devices, their tokens, what they are told, and the audit trail (D14)."""

from typing import Any, NoReturn

from django.db import models
from django.utils import timezone

from bridge_project.kernel import limits


class Device(models.Model):
    """Store a paired phone, tablet or terminal; it outlives its tokens."""

    class AckStyle(models.TextChoices):
        """List what a device acknowledges; heartbeats prove receipt of the rest (D27)."""

        NOTHING = "nothing"
        NOTIFICATIONS = "notifications"
        RESULTS = "results", "Notifications and tool results"
        EVERYTHING = "everything"

    name = models.CharField(max_length=80)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    paired_at = models.DateTimeField(
        null=True, editable=False, help_text="First use of a token of this device."
    )
    revoked_at = models.DateTimeField(null=True, editable=False)
    start_seq = models.BigIntegerField(
        default=0,
        editable=False,
        help_text=(
            "The newest row of the log when the device was paired: it starts at the present (D28)."
        ),
    )
    last_seen_at = models.DateTimeField(null=True, editable=False)
    last_address = models.CharField(max_length=45, default="", editable=False)
    platform = models.CharField(max_length=16, default="", editable=False)
    client_version = models.CharField(max_length=64, default="", editable=False)
    ack_style = models.CharField(
        max_length=16, choices=AckStyle.choices, default=AckStyle.NOTHING, editable=False
    )
    warning_acknowledged_until = models.DateTimeField(
        null=True,
        editable=False,
        help_text=(
            "D24: DIRECT_PUBLIC_CONNECTION was acknowledged and need not be again before this."
        ),
    )

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.name} (#{self.pk})"


class Token(models.Model):
    """Store a device token as its SHA-256; 256 random bits need no slow hash."""

    device = models.ForeignKey(Device, on_delete=models.CASCADE, related_name="tokens")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    minted_at = models.DateTimeField(default=timezone.now, editable=False)
    use_by = models.DateTimeField(
        editable=False, help_text="Void when it was not used before this."
    )
    used_at = models.DateTimeField(null=True, editable=False)
    replaces = models.OneToOneField(
        "self",
        on_delete=models.CASCADE,
        null=True,
        editable=False,
        related_name="replacement",
        help_text="The pairing code's token that this one takes the place of, at any time (D62).",
    )
    replaced_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="First use of the token that replaces it: refused since then, sockets live on.",
    )
    authenticated_at = models.DateTimeField(
        null=True, editable=False, help_text="The first `auth` over a WebSocket."
    )
    client_device_id = models.CharField(
        max_length=256,
        null=True,
        editable=False,
        help_text="The `device_id` of the first `auth` that had one; the token is bound to it.",
    )
    expires_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"token {self.pk} of {self.device}"


def default_kinds() -> list[str]:
    """Return the types of notifications that a device is told of by default."""
    return ["approval_required", "task_complete", "error"]


class NotifyChoices(models.Model):
    """Store what a device wants to be told, and when (D74); none: the defaults."""

    class Detail(models.TextChoices):
        QUIET = "quiet"
        FULL = "full"

    device = models.OneToOneField(Device, on_delete=models.CASCADE, related_name="notify")
    kinds = models.JSONField(default=default_kinds)
    muted = models.JSONField(default=list, help_text="Ids of sessions.")
    reminder_minutes = models.IntegerField(default=0, help_text="0: no reminders.")
    # by the clock of that zone, as HH:MM; empty: no quiet hours
    quiet_from = models.CharField(max_length=5, default="")
    quiet_to = models.CharField(max_length=5, default="")
    quiet_zone = models.CharField(max_length=64, default="")
    detail = models.CharField(max_length=5, choices=Detail.choices, default=Detail.QUIET)


class Queue(models.Model):
    """Store how far the pushes of the log to one place have got (D56)."""

    position = models.BigIntegerField(
        help_text="Every row of the log up to here was pushed, or is not to be."
    )
    # Not before: a process is sending now, or the place wants to be left alone.
    next_at = models.DateTimeField(null=True)
    tries = models.IntegerField(default=0, help_text="Failed tries since the last success.")
    problem = models.CharField(max_length=200, default="", help_text="Why the last one failed.")
    last_at = models.DateTimeField(null=True, help_text="The place's word on the last push.")

    class Meta:
        abstract = True

    @property
    def claimed_by(self) -> dict[str, Any]:
        """Return what another process would have changed that took a push of this queue."""
        return {"position": self.position, "next_at": self.next_at, "tries": self.tries}


class NotifyAddress(Queue):
    """Store how far the pushes to an address of BRIDGE_NOTIFY_URLS have got (D74)."""

    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256, hexadecimal.")
    name = models.CharField(max_length=200, help_text="Its schema, and its host if it shows one.")

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "notify addresses"

    def __str__(self) -> str:
        return self.name


class PushSubscription(Queue):
    """Store where a device's pushes go (D56).

    It goes with the device, when it is revoked too. When the push service knows it no more, it is
    kept without being used: for the next address, and to say what happened.
    """

    device = models.OneToOneField(Device, on_delete=models.CASCADE, related_name="push")
    endpoint = models.CharField(max_length=limits.PUSH_ENDPOINT_MAX_CHARS, unique=True)
    p256dh = models.CharField(max_length=87, help_text="The browser's public key.")
    auth = models.CharField(max_length=22, help_text="Its secret.")
    public_key = models.CharField(
        max_length=87, help_text="The key it was made for: only who has it can send."
    )
    held = models.JSONField(
        default=list, help_text="Rows before the position that wait for the end of quiet hours."
    )
    reminded = models.JSONField(
        default=dict, help_text="Call that waits → moments for a reminder that have passed."
    )
    dead_at = models.DateTimeField(null=True, help_text="The push service knows it no more.")
    last_id = models.CharField(max_length=36, default="", help_text="Its notification_id.")
    last_host = models.CharField(max_length=253, default="")
    shown_at = models.DateTimeField(null=True, help_text="The device has shown it.")

    def __str__(self) -> str:
        return f"push to {self.device}"

    @property
    def claimed_by(self) -> dict[str, Any]:
        own = {"endpoint": self.endpoint, "held": self.held, "reminded": self.reminded}
        return super().claimed_by | own


class DeadEndpoint(models.Model):
    """Store addresses that a push service knows no more; they are not taken again."""

    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256, hexadecimal.")


class AppendOnly(models.QuerySet["AuditEntry"]):
    """Let rows be added one by one and read; anything else raises TypeError."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("audit entries are never changed or deleted")

    update = bulk_update = bulk_create = delete = _refuse


class AuditEntry(models.Model):
    """Store who decided or changed something; never changed, never deleted."""

    class Actor(models.TextChoices):
        """List who acts: device, rule, admin, terminal, person at the agent, bridge."""

        DEVICE = "device"
        RULE = "rule"
        ADMIN = "admin"
        TERMINAL = "terminal"
        AGENT = "agent"
        BRIDGE = "bridge"

    at = models.DateTimeField(default=timezone.now, db_index=True)
    action = models.CharField(max_length=32)
    actor = models.CharField(max_length=8, choices=Actor.choices)
    who = models.CharField(
        max_length=200,
        default="",
        help_text="The device or the person, by name, as it was called then.",
    )
    device_number = models.BigIntegerField(
        null=True, help_text="The device's id; it may be forgotten, the entry is not."
    )
    session_id = models.CharField(max_length=256, default="")
    subject = models.CharField(
        max_length=256,
        default="",
        help_text="What it was done to: a tool call, a commit, a device.",
    )
    details = models.JSONField(default=dict)

    objects = AppendOnly.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "audit trail"

    def __str__(self) -> str:
        return f"{self.action} by {self.who or self.actor}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("an audit entry is never changed or deleted")
        # else an entry with the number of another would replace it
        super().save(*args, **kwargs | {"force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("an audit entry is never changed or deleted")
