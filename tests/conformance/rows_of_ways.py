"""Rows of the contract: endpoints, WebSocket operations, authentication, events."""

from __future__ import annotations

from bridge_project.protocol.base import Payload
from bridge_project.protocol.catalogue import CATALOGUE


def _fields_of(model: type[Payload]) -> str:
    answers = f"; answered by {' or '.join(model.reply)}" if model.reply else ""
    return f"{model.type}: {', '.join(model.model_fields) or 'a timestamp'}{answers}"


SECTIONS: dict[str, dict[str, str]] = {
    "HTTP endpoints": {
        "http.health": "GET /health: 200 and the health object",
        "http.info": "GET /info: 200 and the capabilities",
        "http.hooks.event": "POST /hooks/event: 200 and the ingestion result; with and without /api/v1",
        "http.hooks.batch": "POST /hooks/batch: 200 and the batch result; with and without /api/v1",
        "http.sessions": "GET /sessions: 200, sessions and total",
        "http.session": "GET /sessions/:id: 200, the session with recent_events",
        "http.session.events": "POST /sessions/:id/events: 202, accepted, event_id, session_id",
        "http.ws": "GET /ws: 101 for an upgrade, 400 for anything else",
        "http.files.tree": "GET /files/tree: path and depth; 200, path and entries",
        "http.files.content": "GET /files/content: path; 200, path, content, size, encoding, modified_at",
        "http.admin.reload": "POST /admin/reload-hooks: 200, reloaded, timestamp, active_hooks",
    },
    "GET /health": {
        "health.status": "`status` healthy",
        "health.version": "`version`",
        "health.uptime_seconds": "`uptime_seconds`",
        "health.connection_mode": "`connection_mode`",
        "health.active_sessions": "`active_sessions`",
        "health.active_websockets": "`active_websockets`",
        "health.system": "`system`: platform, runtime_version, memory_mb",
        "health.timestamp": "`timestamp`",
        "http.health.degraded": "503: status degraded, version, checks of websocket_server, hook_endpoint, agent_sdk and disk_space, timestamp",
    },
    "GET /info": {
        "info_body.name": "`name`",
        "info_body.version": "`version`, `protocol_version`",
        "info_body.features": "`features`",
        "info_body.supported_agents": "`supported_agents`",
        "info_body.supported_hooks": "`supported_hooks`: seven of the nine",
        "info_body.limits": "`limits`: max_sessions, max_websocket_connections, max_message_size_mb, hook_timeout_seconds",
    },
    "POST /hooks/event": {
        "event_post.headers": "Content-Type JSON, Authorization; X-Hook-Source and X-Hook-Version may be there",
        "event_post.order": "token, base, freshness, payload, in this order",
        "event_post.broadcast": "each client that has joined the session gets an agent_event; broadcast_count counts them",
        "event_post.result": "received, event_id, broadcast_count, timestamp",
        "event_post.invalid": "400 with details {field, constraint} and validation_errors {field, message, code}",
        "event_post.unauthorized": "401 HOOK_AUTH_FAILED",
    },
    "POST /hooks/batch": {
        "batch.result": "received, count, accepted, rejected, event_ids",
        "batch.errors": "one by one: the good are stored in order, the bad are named by index",
    },
    "WebSocket operations": {
        **{f"ws.{type}": _fields_of(model) for type, model in CATALOGUE.items()},
        "ws.replay_buffer.reconnect": "replay_buffer: sent after coming back to a session in its grace period",
    },
    "Authentication": {
        "auth.required": "every endpoint asks for a bearer token",
        "auth.device": "device token: from pairing by QR code; health, sessions, files, the WebSocket",
        "auth.hook": "hook token: /hooks/*, from the server's settings",
        "auth.admin": "admin token: /admin/*, from the server's settings",
        "auth.hook.wrong": "a bearer that is not the hook token: 401",
        "auth.invalid": "missing, malformed, expired: 401 AUTH_INVALID_TOKEN",
        "auth.scope": "valid, but not for this: 403 AUTH_INSUFFICIENT_SCOPE",
        "auth.first": "over the WebSocket auth comes first, with token, version and platform",
        "auth.tls": "TLS everywhere; without it INSECURE_TRANSPORT",
        "auth.hardening": "payloads validated, hook ingestion limited in rate, no page of another origin",
    },
    "Connection modes": {
        "mode.local_only": "local_only: loopback",
        "mode.private_network": "private_network: the private ranges",
        "mode.secure_remote": "secure_remote: a mesh or a tunnel",
        "mode.direct_public": "direct_public: public; a warning must be acknowledged first",
        "mode.misconfigured": "misconfigured: rejected",
    },
    "Hook events consumed": {
        "event.SessionStart": "SessionStart: the session is listed, session_started to the clients",
        "event.SessionEnd": "SessionEnd: the session has ended",
        "event.PreToolUse": "PreToolUse: approval_required with source hooks",
        "event.PostToolUse": "PostToolUse: tool_result",
        "event.UserPromptSubmit": "UserPromptSubmit: passed on",
        "event.Stop": "Stop: the agent has finished",
        "event.SubagentStop": "SubagentStop: passed on",
        "event.PreCompact": "PreCompact: passed on",
        "event.Notification": "Notification: passed on",
        "event.other": "any other event is refused",
    },
    "Hook producer configuration": {
        "producer.map": "a map from event to entries, each with hooks",
        "producer.matcher": "an entry may have a matcher",
        "producer.hook": "a hook is a command or a prompt, with a timeout",
    },
    "Offline": {
        "offline.pending": "what comes while nobody is there is kept",
        "offline.replay": "after auth and connection_ack it is replayed, and acknowledged by notification_ack",
        "offline.client": "banner, local notification or replay: as the client is in front, behind or away",
        "offline.flush": "what a client could not send it sends later: nothing is done twice",
        "offline.ask": "a client may ask for what came since the last message it has",
    },
}
