"""The hooks as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks_app"
    verbose_name = "Hook events"

    def ready(self) -> None:
        from hooks_app.producer.risk import risk_level
        from sessions_app.agents import risk

        risk.register(risk_level)
