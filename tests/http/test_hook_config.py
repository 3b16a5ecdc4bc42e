"""No hook configuration, and one that is wrong at the start (D49); the others are read in
tests/conformance/test_admin_http.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge_project.kernel.config import conf
from hooks_app import config
from tests.http.conftest import Api


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


def test_without_a_configuration_nothing_is_active(
    admin: Api, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "conf", conf.model_copy(update={"bridge_hooks_config": None}))
    body = admin.post("/api/v1/admin/reload-hooks").json()
    assert (body["reloaded"], body["active_hooks"]) == (True, [])


def test_a_wrong_one_does_not_keep_the_bridge_from_starting(write: Callable[[Any], Path]) -> None:
    write("{")
    with capture_logs() as logs:
        config.check()
    assert [(entry["log_level"], entry["event"]) for entry in logs] == [
        ("warning", "hook_configuration_invalid")
    ]
    write({"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]})
    with capture_logs() as logs:
        config.check()
    assert not logs
