"""Register the sessions with Django."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Agent sessions"

    def ready(self) -> None:
        from sessions_app import receivers  # noqa: F401 - importing them connects them
