"""The sessions room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Agent sessions"

    def ready(self) -> None:
        from bridge_project import agents, background, health, metrics
        from sessions_app import figures, housekeeping, presence, receivers  # noqa: F401 - importing the receivers connects them
        from sessions_app.agents import breaker, commands
        from sessions_app.agents.runtime import runtime

        background.register("sessions", housekeeping.start, housekeeping.stop)
        background.register("agents", runtime.start, runtime.stop)
        background.register("agent versions", agents.start, agents.stop)  # after the agents, which the runtime registers
        housekeeping.chores["commands to agents removed"] = commands.forget_old
        health.register("agent_sdk", breaker.check)
        health.register_feature("agent_sdk")
        health.register_count("active_sessions", presence.active_sessions)
        health.register_count("active_websockets", presence.active_websockets)
        health.register_feature("websocket_sessions")
        metrics.register("sessions", figures.collect)
