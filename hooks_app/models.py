"""Store which hook events were accepted, to recognise repetitions (D31)."""

from django.db import models


class HookEvent(models.Model):
    """Store that a hook event was accepted; its text is the log row with its ``seq``."""

    event_id = models.CharField(max_length=36, primary_key=True)
    event = models.CharField(max_length=32)
    session_id = models.CharField(max_length=256)
    tool = models.CharField(max_length=128, default="")
    seq = models.BigIntegerField()
    broadcast_count = models.IntegerField(default=0, help_text="What the first answer said (D33).")
    received_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-seq"]

    def __str__(self) -> str:
        return f"{self.event} of {self.session_id}"
