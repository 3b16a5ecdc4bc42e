"""GET /health and GET /info (spec, Endpoints; D14)."""

from __future__ import annotations

import re

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_now, assert_types
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS

SEMVER = re.compile(r"\d+\.\d+\.\d+")
FEATURES = {"websocket_sessions", "hook_events", "agent_sdk", "pty_sessions", "file_sync"}


@pytest.mark.spec("http.health", "health.*")
def test_health(shared: Bridge) -> None:
    answer = shared.get("/api/v1/health", shared.hook_token)
    assert answer.status == 200
    body = answer.json()
    assert (body["status"], body["connection_mode"]) == ("healthy", "local_only")
    assert_types(body, uptime_seconds=int, active_sessions=int, active_websockets=int)
    assert min(body["uptime_seconds"], body["active_sessions"], body["active_websockets"]) >= 0
    assert_types(body["system"], platform=str, runtime_version=str)
    assert 10 < body["system"]["memory_mb"] < 2000
    assert SEMVER.match(body["version"])
    assert_now(body["timestamp"])


@pytest.mark.spec(
    "http.info info_body.* limit.max_sessions limit.hook_timeout limit.max_websocket_connections",
    "limit.max_message_size_mb",
)
def test_info(shared: Bridge) -> None:
    """Seven supported hooks, limits as configured."""
    body = shared.get("/api/v1/info", shared.hook_token).json()
    assert isinstance(body["name"], str) and body["name"]
    assert SEMVER.match(body["version"]) and SEMVER.match(body["protocol_version"])
    assert {"websocket_sessions", "hook_events"} <= set(body["features"]) <= FEATURES
    can_start = [agent["name"] for agent in body["agents"] if agent["can_start"]]
    assert can_start == body["supported_agents"] and all(can_start)
    assert all(agent["can_start"] or agent["reason"] for agent in body["agents"])
    assert set(body["supported_hooks"]) == set(EVENTS) - {"PreCompact", "Notification"}
    assert len(body["supported_hooks"]) == 7
    sizes = {"max_message_size_mb": 10, "hook_timeout_seconds": 30}
    assert body["limits"] == {"max_sessions": 10, "max_websocket_connections": 100} | sizes


@pytest.mark.spec("versioning.names")
def test_one_version_everywhere(shared: Bridge, device: Phone) -> None:
    """Of /info, /health and connection_ack."""
    acknowledged = device.connect().auth()["payload"]["server_version"]
    for path in ("/api/v1/info", "/api/v1/health"):
        assert shared.get(path, shared.hook_token).json()["version"] == acknowledged
