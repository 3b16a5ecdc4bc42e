"""Register the sessions with Django."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Agent sessions"

    def ready(self) -> None:
        from sessions_app import receivers  # noqa: F401 - importing them connects them
