"""The hooks room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks_app"
    verbose_name = "Hook events"

    def ready(self) -> None:
        from bridge_project import background, health, logs, metrics
        from hooks_app import config, forwarding, ingest, producer
        from sessions_app import housekeeping
        from sessions_app.agents import risk

        risk.register(producer.risk_level)
        housekeeping.chores["memories of events removed"] = ingest.forget_old
        background.register("forwarder", forwarding.start, forwarding.stop)
        health.register_feature("hook_events")
        metrics.register("hooks", forwarding.figures)
        if logs.is_serving():
            config.start()
