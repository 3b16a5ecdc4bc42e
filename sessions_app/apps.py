"""The sessions room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Agent sessions"

    def ready(self) -> None:
        from bridge_project.http import health
        from bridge_project.kernel import background, metrics
        from sessions_app import chores, receivers  # noqa: F401 - importing the receivers connects them
        from sessions_app import metrics as session_metrics
        from sessions_app.agents import breaker, inbox, listing
        from sessions_app.agents.supervisor import runtime
        from sessions_app.socket import presence

        background.register("sessions", chores.start, chores.stop)
        background.register("agents", runtime.start, runtime.stop)
        # after the agents, which the runtime registers
        background.register("agent versions", listing.start, listing.stop)
        chores.chores["commands to agents removed"] = inbox.forget_old
        health.register("agent_sdk", breaker.check)
        health.register_feature("agent_sdk")
        health.register_count("active_sessions", presence.active_sessions)
        health.register_count("active_websockets", presence.active_websockets)
        health.register_feature("websocket_sessions")
        metrics.register("sessions", session_metrics.collect)
