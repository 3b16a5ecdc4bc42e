"""GET /health, GET /info and GET /ws without an upgrade (SPEC; D14, D48)."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pytest
from django.db import OperationalError

from bridge_project.composition import health
from bridge_project.kernel import limits
from bridge_project.protocol.http import Info
from sessions_app.agents import registry
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind
from sessions_app.socket import presence
from tests.http.conftest import Api

pytestmark = pytest.mark.django_db(transaction=True)  # the checks run in threads of their own


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[health.Check]]:
    """The checks, which the test may change."""
    own = {part: list(found) for part, found in health.CHECKS.items()}
    monkeypatch.setattr(health, "CHECKS", own)
    return own


def test_a_check_that_breaks_has_failed(hook: Api, checks: dict[str, list[health.Check]]) -> None:
    def breaks() -> None:
        raise ZeroDivisionError

    checks["agent_sdk"].append(breaks)
    assert hook.get("/api/v1/health").json()["checks"]["agent_sdk"] == "unhealthy"
    checks["agent_sdk"].pop()
    assert hook.get("/api/v1/health").status_code == 200


def test_a_check_that_hangs_has_failed_and_runs_once(
    hook: Api, checks: dict[str, list[health.Check]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.2)
    free = threading.Event()
    runs: list[int] = []

    def hangs() -> None:
        runs.append(1)
        free.wait(180)

    checks["websocket_server"].append(hangs)
    try:
        for _ in range(3):
            assert hook.get("/api/v1/health").json()["checks"]["websocket_server"] == "unhealthy"
        assert runs == [1]
    finally:
        free.set()


class Usage(NamedTuple):
    free: int


@pytest.mark.parametrize(
    ("free", "reason"), [(100 * limits.MB, None), (100 * limits.MB - 1, "99 MB free")]
)
def test_disk_space(monkeypatch: pytest.MonkeyPatch, free: int, reason: str | None) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(free))
    assert health.check_disk_space() == reason


def test_a_database_that_goes_during_the_answer(hook: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> int:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(presence, "active_sessions", gone)
    response = hook.get("/api/v1/health")
    assert (response.status_code, response.json()["checks"]["hook_endpoint"]) == (503, "unhealthy")


def test_info_lists_the_agents_that_can_start_now(
    hook: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D41: supported_agents lists what can start here and now; beside it, why another cannot. A
    version is only told when it is known.
    """
    why = "It is not installed."
    kinds = [
        AgentKind("demo", DemoDriver, version=lambda: "1.0", real=False),
        AgentKind("absent", DemoDriver, lambda: why, can_modify=False, asks=lambda: None),
    ]
    monkeypatch.setattr(registry, "KINDS", {kind.name: kind for kind in kinds})
    registry.ask_versions()
    can = {"can_start": True, "can_modify": True, "asks": True}
    cannot = {"can_start": False, "can_modify": False, "reason": why}
    body = hook.get("/api/v1/info").json()
    Info.model_validate(body)
    assert body["supported_agents"] == ["demo"]
    assert body["agents"] == [{"name": "demo", "version": "1.0"} | can, {"name": "absent"} | cannot]
