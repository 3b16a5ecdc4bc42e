"""Store trusted repositories, and work trees of sessions (D63, D64)."""

from django.db import models
from django.utils import timezone


class TrustedRepository(models.Model):
    """Store that a person has trusted the programs of a repository, as they were then."""

    path = models.CharField(max_length=4096, help_text="The work tree's top.")
    git_dir = models.CharField(max_length=4096)
    digest = models.CharField(
        max_length=64, help_text="Of the programs' paths, contents and settings."
    )
    programs = models.JSONField(default=list)
    device = models.CharField(max_length=200, default="", help_text="Who trusted it; empty: here.")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["path", "-at"]
        verbose_name_plural = "trusted repositories"

    def __str__(self) -> str:
        return self.path


class WorkTree(models.Model):
    """Store a work tree that the bridge made for a session (D64)."""

    session_id = models.CharField(max_length=256, unique=True)
    path = models.CharField(max_length=4096)
    start = models.CharField(max_length=64, help_text="The commit at which it began.")

    def __str__(self) -> str:
        return self.path
