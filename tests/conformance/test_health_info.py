"""GET /health and GET /info (spec, Endpoints; D14)."""

from __future__ import annotations

import re

import pytest

from tests.conformance.bridge import Bridge, eventually
from tests.conformance.https import assert_now
from tests.conformance.phone import Phone

SEMVER = re.compile(r"\d+\.\d+\.\d+")


@pytest.mark.spec("http.health", "health.*")
def test_health(shared: Bridge) -> None:
    """Spec: the fields of the 200 body and their types."""
    answer = shared.get("/api/v1/health", shared.hook_token)
    assert answer.status == 200
    body = answer.json()
    assert body["status"] == "healthy" and body["connection_mode"] == "local_only"
    for name in ("uptime_seconds", "active_sessions", "active_websockets"):
        assert type(body[name]) is int and body[name] >= 0, name
    assert set(body["system"]) >= {"platform", "runtime_version", "memory_mb"}
    assert isinstance(body["system"]["platform"], str)
    assert isinstance(body["system"]["runtime_version"], str)
    assert 10 < body["system"]["memory_mb"] < 2000
    assert SEMVER.match(body["version"])
    assert_now(body["timestamp"])


def test_websockets_are_counted(shared: Bridge) -> None:
    """Spec: active_websockets. Other tests' sockets may come and go beside."""

    def count() -> int:
        return int(shared.get("/api/v1/health", shared.hook_token).json()["active_websockets"])

    with shared.phones(4):
        eventually(lambda: count() >= 4)
        most = count()
    eventually(lambda: count() < most)


@pytest.mark.spec(
    "http.info",
    "info_body.*",
    "limit.max_sessions",
    "limit.hook_timeout",
    "limit.max_websocket_connections",
    "limit.max_message_size_mb",
)
def test_info(shared: Bridge) -> None:
    """Spec: the capabilities object; seven supported hooks, limits as configured."""
    body = shared.get("/api/v1/info", shared.hook_token).json()
    assert isinstance(body["name"], str) and body["name"]
    assert SEMVER.match(body["version"]) and SEMVER.match(body["protocol_version"])
    assert set(body["features"]) <= {
        "websocket_sessions",
        "hook_events",
        "agent_sdk",
        "pty_sessions",
        "file_sync",
    }
    assert {"websocket_sessions", "hook_events"} <= set(body["features"])
    assert all(isinstance(agent, str) and agent for agent in body["supported_agents"])
    assert [agent["name"] for agent in body["agents"] if agent["can_start"]] == body[
        "supported_agents"
    ]
    assert all(agent["can_start"] or agent["reason"] for agent in body["agents"])
    assert sorted(body["supported_hooks"]) == sorted(
        [
            "SessionStart",
            "SessionEnd",
            "PreToolUse",
            "PostToolUse",
            "UserPromptSubmit",
            "Stop",
            "SubagentStop",
        ]
    )
    assert body["limits"] == {
        "max_sessions": 10,
        "max_websocket_connections": 100,
        "max_message_size_mb": 10,
        "hook_timeout_seconds": 30,
    }


@pytest.mark.spec("versioning.names")
def test_one_version_everywhere(shared: Bridge, device: Phone) -> None:
    """Spec, Versioning 2: /info, /health and connection_ack name the server's version."""
    device.connect()
    acknowledged = device.auth()["payload"]["server_version"]
    assert shared.get("/api/v1/info", shared.hook_token).json()["version"] == acknowledged
    assert shared.get("/api/v1/health", shared.hook_token).json()["version"] == acknowledged
