"""GET /health, GET /info and GET /ws without an upgrade (SPEC; D14, D48)."""

from __future__ import annotations

import threading

import pytest

from bridge_project.composition import health
from bridge_project.protocol.http import Info
from sessions_app.agents import registry
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind
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
