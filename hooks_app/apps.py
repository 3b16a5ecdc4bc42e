"""The hooks room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks_app"
    verbose_name = "Hook events"

    def ready(self) -> None:
        from bridge_project import background
        from hooks_app import forwarding, ingest
        from sessions_app import housekeeping

        housekeeping.chores.append(ingest.forget_old)
        background.register("forwarder", forwarding.start, forwarding.stop)
