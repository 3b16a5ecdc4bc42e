"""The hooks room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks_app"
    verbose_name = "Hook events"

    def ready(self) -> None:
        from bridge_project.http import health
        from bridge_project.kernel import background, logging, metrics
        from hooks_app import config
        from hooks_app.intake import store as intake
        from hooks_app.producer import program, server_forwarder
        from sessions_app import chores
        from sessions_app.agents import risk

        risk.register(program.risk_level)
        chores.chores["memories of events removed"] = intake.forget_old
        background.register("forwarder", server_forwarder.start, server_forwarder.stop)
        health.register_feature("hook_events")
        metrics.register("hooks", server_forwarder.figures)
        if logging.is_serving():
            config.start()
