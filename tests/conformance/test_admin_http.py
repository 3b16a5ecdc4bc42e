"""POST /admin/reload-hooks (spec, Endpoints; D14, D49)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.conftest import HOOKS_CONFIG
from tests.conformance.https import Response, assert_error, assert_now
from tests.conformance.samples import hook, new_session

pytestmark = pytest.mark.spec("http.admin.reload", "auth.admin")


@pytest.fixture
def config(shared: Bridge) -> Iterator[Path]:
    path = Path(shared.settings["BRIDGE_HOOKS_CONFIG"])
    yield path
    path.write_text(json.dumps(HOOKS_CONFIG))


def reload(bridge: Bridge) -> Response:
    return bridge.https().post("/api/v1/admin/reload-hooks", token=bridge.admin_token)


def entry(command: str = "true") -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": command, "timeout": 10}]}


@pytest.mark.spec("producer.map", "producer.matcher", "producer.hook")
def test_a_reload(shared: Bridge, config: Path, tmp_path: Path) -> None:
    """D49: the bridge never runs the commands."""
    asked = {"type": "prompt", "prompt": "complete?", "timeout": 30}
    matching = {"matcher": "Bash|Edit", **entry(f"touch {tmp_path}/ran")}
    hooks = {"Stop": [{"hooks": [asked]}], "PostToolUse": [matching, entry()]}
    config.write_text(json.dumps(hooks))
    answer = reload(shared)
    assert answer.status == 200, answer
    body = answer.json()
    assert body["reloaded"] is True and sorted(body["active_hooks"]) == ["PostToolUse", "Stop"]
    assert_now(body["timestamp"])
    shared.accept(hook("PostToolUse", new_session()))
    assert not (tmp_path / "ran").exists()


def test_the_map_under_hooks(shared: Bridge, config: Path) -> None:
    """D49: what is none of the spec's is ignored, and an event without a hook is not active."""
    hooks = {"SessionStart": [entry() | {"note": 1}], "PermissionRequest": "whatever"}
    empty: dict[str, list[Any]] = {"Stop": [], "PreCompact": [{"hooks": []}]}
    config.write_text(json.dumps({"hooks": hooks | empty, "model": "x"}))
    assert reload(shared).json()["active_hooks"] == ["SessionStart"]


def one(**fields: object) -> dict[str, Any]:
    """A configuration with this one hook."""
    return {"Stop": [{"hooks": [fields]}]}


# what is wrong with it, and the place that is named
WRONG: list[tuple[Any, str]] = [
    ([], "file"),
    ({"hooks": []}, "hooks"),
    ({"Stop": {}}, "Stop"),
    ({"Stop": ["x"]}, "Stop[0]"),
    ({"Stop": [{}]}, "Stop[0].hooks"),
    ({"Stop": [{"hooks": {}}]}, "Stop[0].hooks"),
    ({"hooks": {"Stop": [{"matcher": 1, "hooks": []}]}}, "hooks.Stop[0].matcher"),
    ({"Stop": [{"hooks": ["x"]}]}, "Stop[0].hooks[0]"),
    (one(command="x"), "Stop[0].hooks[0]"),
    (one(type="dance"), "Stop[0].hooks[0]"),
    (one(type="command"), "Stop[0].hooks[0].command"),
    (one(type="command", command=""), "Stop[0].hooks[0].command"),
    (one(type="prompt"), "Stop[0].hooks[0].prompt"),
    (one(type="prompt", prompt=1), "Stop[0].hooks[0].prompt"),
    (one(type="command", command="x", timeout="10"), "Stop[0].hooks[0].timeout"),
    (one(type="command", command="x", timeout=True), "Stop[0].hooks[0].timeout"),
    (one(type="command", command="x", timeout=0), "Stop[0].hooks[0].timeout"),
    ("{", "file"),
    ('{"Stop": NaN}', "file"),
    (" " * 10_000_000, "file"),
    (None, "file"),
]


def test_an_invalid_configuration(shared: Bridge, config: Path) -> None:
    """D49: the place is named; the bridge goes on."""
    for content, place in WRONG:
        if content is None:
            config.unlink()
        else:
            config.write_text(content if isinstance(content, str) else json.dumps(content))
        body = assert_error(reload(shared), 400, "HOOK_INVALID_PAYLOAD")
        assert body["details"]["field"] == place and body["details"]["constraint"]
        assert place in body["message"]
    config.write_text(json.dumps(HOOKS_CONFIG))
    assert reload(shared).json()["active_hooks"] == ["PreToolUse"]


def test_without_a_configuration(public: Bridge) -> None:
    answer = reload(public)
    assert answer.status == 200 and answer.json()["active_hooks"] == []
