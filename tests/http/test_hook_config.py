"""The hook configuration and POST /admin/reload-hooks (SPEC Hook producer configuration; D49)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.http import ReloadResult
from hooks_app import config
from tests.http.conftest import Api, check_error

COMMAND = {"type": "command", "command": "send-event", "timeout": 10}
PROMPT = {"type": "prompt", "prompt": "Is this safe? $ARGUMENTS", "timeout": 30}
GOOD: dict[str, Any] = {
    "PreToolUse": [
        {"matcher": "Bash|Edit", "hooks": [COMMAND, PROMPT]},
        {"hooks": [{"type": "command", "command": "log", "timeout": 0.5}]},
    ],
    "Stop": [{"hooks": [PROMPT]}],
    "SessionStart": [{"matcher": "", "hooks": [{"type": "command", "command": "start"}]}],
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Path]:
    """Puts a configuration where BRIDGE_HOOKS_CONFIG points; text as it is, anything else as
    JSON.
    """
    path = tmp_path / "hooks.json"
    monkeypatch.setattr(config, "conf", conf.model_copy(update={"bridge_hooks_config": path}))

    def write(value: Any) -> Path:
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


@pytest.mark.parametrize(
    "wrap",
    [lambda map_: map_, lambda map_: {"hooks": map_, "other": 1}],
    ids=["map", "under hooks"],
)
def test_reload_reports_the_active_hooks(
    write: Callable[[Any], Path], admin: Api, db: None, wrap: Callable[[Any], Any]
) -> None:
    write(wrap(GOOD))
    response = admin.post("/api/v1/admin/reload-hooks")
    assert response.status_code == 200
    body = response.json()
    ReloadResult.model_validate(body)
    assert body["reloaded"] is True
    assert body["active_hooks"] == ["SessionStart", "PreToolUse", "Stop"]


def test_without_a_configuration_nothing_is_active(
    admin: Api, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "conf", conf.model_copy(update={"bridge_hooks_config": None}))
    body = admin.post("/api/v1/admin/reload-hooks").json()
    assert (body["reloaded"], body["active_hooks"]) == (True, [])


def test_other_names_and_fields_are_ignored(write: Callable[[Any], Path]) -> None:
    write(
        {
            "PermissionRequest": "whatever",
            "$schema": "x",
            "Notification": [{"hooks": [{**COMMAND, "async": True}], "note": 1}],
            "Stop": [],
            "PreCompact": [{"hooks": []}],
        }
    )
    assert config.active_hooks() == ["Notification"]


WRONG: list[tuple[str, Any, str]] = [
    ("not an object", [], "file"),
    ("hooks not an object", {"hooks": []}, "hooks"),
    ("entries not a list", {"Stop": {}}, "Stop"),
    ("entry not an object", {"Stop": ["x"]}, "Stop[0]"),
    ("no hooks", {"Stop": [{}]}, "Stop[0].hooks"),
    ("hooks not a list", {"Stop": [{"hooks": {}}]}, "Stop[0].hooks"),
    (
        "matcher not a string",
        {"hooks": {"Stop": [{"matcher": 1, "hooks": []}]}},
        "hooks.Stop[0].matcher",
    ),
    ("hook not an object", {"Stop": [{"hooks": ["x"]}]}, "Stop[0].hooks[0]"),
    ("no type", {"Stop": [{"hooks": [{"command": "x"}]}]}, "Stop[0].hooks[0]"),
    ("unknown type", {"Stop": [{"hooks": [{"type": "http"}]}]}, "Stop[0].hooks[0]"),
    (
        "no command",
        {"Stop": [{"hooks": [COMMAND, {"type": "command"}]}]},
        "Stop[0].hooks[1].command",
    ),
    (
        "empty command",
        {"Stop": [{"hooks": [{"type": "command", "command": ""}]}]},
        "Stop[0].hooks[0].command",
    ),
    ("no prompt", {"Stop": [{"hooks": [{"type": "prompt"}]}]}, "Stop[0].hooks[0].prompt"),
    (
        "prompt of a number",
        {"Stop": [{"hooks": [{"type": "prompt", "prompt": 1}]}]},
        "Stop[0].hooks[0].prompt",
    ),
    (
        "timeout a string",
        {"Stop": [{"hooks": [{**COMMAND, "timeout": "10"}]}]},
        "Stop[0].hooks[0].timeout",
    ),
    (
        "timeout a boolean",
        {"Stop": [{"hooks": [{**COMMAND, "timeout": True}]}]},
        "Stop[0].hooks[0].timeout",
    ),
    (
        "timeout zero",
        {"Stop": [{"hooks": [{**COMMAND, "timeout": 0}]}]},
        "Stop[0].hooks[0].timeout",
    ),
    ("not JSON", "{", "file"),
    ("NaN", '{"Stop":[{"hooks":[{"type":"command","command":"x","timeout":NaN}]}]}', "file"),
    ("too large", " " * (config.MAX_BYTES + 1), "file"),
]


@pytest.mark.parametrize(
    ("value", "place"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_wrong_one_is_refused_with_the_place(
    write: Callable[[Any], Path], admin: Api, db: None, value: Any, place: str
) -> None:
    write(value)
    body = check_error(admin.post("/api/v1/admin/reload-hooks"), "HOOK_INVALID_PAYLOAD", 400)
    assert body["details"]["field"] == place
    assert body["details"]["constraint"]
    assert place in body["message"]


def test_every_fault_is_named(write: Callable[[Any], Path]) -> None:
    write({"Stop": [{}], "PreToolUse": [{"hooks": [{"type": "command"}]}]})
    with pytest.raises(BridgeError) as caught:
        config.active_hooks()
    assert [found["field"] for found in caught.value.fields["violations"]] == [
        "PreToolUse[0].hooks[0].command",
        "Stop[0].hooks",
    ]


def test_a_file_that_is_not_there(write: Callable[[Any], Path], admin: Api, db: None) -> None:
    body = check_error(admin.post("/api/v1/admin/reload-hooks"), "HOOK_INVALID_PAYLOAD", 400)
    assert body["details"] == {"field": "file", "constraint": "readable"}


def test_a_wrong_one_does_not_keep_the_bridge_from_starting(write: Callable[[Any], Path]) -> None:
    write("{")
    with capture_logs() as logs:
        config.check()
    assert [(entry["log_level"], entry["event"]) for entry in logs] == [
        ("warning", "hook_configuration_invalid")
    ]
    write(GOOD)
    with capture_logs() as logs:
        config.check()
    assert not logs
