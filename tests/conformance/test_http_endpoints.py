"""GET /health and /info, POST /admin/reload-hooks (spec, Endpoints; D14, D49)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.conftest import COMMAND, HOOKS_CONFIG
from tests.conformance.https import Response, assert_error, assert_now, assert_types
from tests.conformance.samples import EVENTS, hook, new_session


@pytest.fixture
def config(shared: Bridge) -> Iterator[Path]:
    path = Path(shared.settings["BRIDGE_HOOKS_CONFIG"])
    yield path
    path.write_text(json.dumps(HOOKS_CONFIG))


def reload(bridge: Bridge) -> Response:
    return bridge.https().post("/api/v1/admin/reload-hooks", token=bridge.admin_token)


@pytest.mark.spec("http.admin.reload auth.admin producer.map producer.matcher producer.hook")
def test_a_reload(shared: Bridge, public: Bridge, config: Path, tmp_path: Path) -> None:
    """D49: no command is run, no name but the spec's counts, and no event without a hook."""
    asked = {"type": "prompt", "prompt": "complete?", "timeout": 30}
    touching = COMMAND | {"command": f"touch {tmp_path}/ran"}
    entries = [{"matcher": "Bash|Edit", "hooks": [touching]}, {"hooks": [COMMAND]}]
    config.write_text(json.dumps({"Stop": [{"hooks": [asked]}], "PostToolUse": entries}))
    answer = reload(shared)
    assert answer.status == 200, answer
    body = answer.json()
    assert body["reloaded"] is True and sorted(body["active_hooks"]) == ["PostToolUse", "Stop"]
    assert_now(body["timestamp"])
    shared.accept(hook("PostToolUse", new_session()))
    assert not (tmp_path / "ran").exists()
    hooks = {"SessionStart": [{"hooks": [COMMAND], "note": 1}], "PermissionRequest": "whatever"}
    empty: dict[str, list[Any]] = {"Stop": [], "PreCompact": [{"hooks": []}]}
    config.write_text(json.dumps({"hooks": hooks | empty, "model": "x"}))
    assert reload(shared).json()["active_hooks"] == ["SessionStart"]
    assert reload(public).json()["active_hooks"] == []


def one(**fields: object) -> dict[str, Any]:
    return {"Stop": [{"hooks": [fields]}]}


# the place that is named → what is wrong there
WRONG: dict[str, tuple[Any, ...]] = {
    "hooks": ({"hooks": []},),
    "Stop": ({"Stop": {}},),
    "Stop[0].hooks": ({"Stop": [{}]},),
    "hooks.Stop[0].matcher": ({"hooks": {"Stop": [{"matcher": 1, "hooks": []}]}},),
    "Stop[0].hooks[0]": ({"Stop": [{"hooks": ["x"]}]}, one(type="dance")),
    "Stop[0].hooks[0].command": (one(type="command"),),
    "Stop[0].hooks[0].prompt": (one(type="prompt"),),
    "Stop[0].hooks[0].timeout": tuple(one(**COMMAND | {"timeout": bad}) for bad in ("10", 0)),
    "file": ([], "{", " " * 10_000_000, None),
}


def test_an_invalid_configuration(shared: Bridge, config: Path) -> None:
    """D49: the place is named; the bridge goes on."""
    for place, content in [(place, one) for place, each in WRONG.items() for one in each]:
        if content is None:
            config.unlink()
        else:
            config.write_text(content if isinstance(content, str) else json.dumps(content))
        body = assert_error(reload(shared), 400, "HOOK_INVALID_PAYLOAD")
        assert body["details"]["field"] == place and body["details"]["constraint"]
        assert place in body["message"]
    config.write_text(json.dumps(HOOKS_CONFIG))
    assert reload(shared).json()["active_hooks"] == ["PreToolUse"]


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


@pytest.mark.spec("http.info", "info_body.*", "limit.max_sessions", "limit.hook_timeout")
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
