"""GET /health while a check hangs (D48)."""

from __future__ import annotations

import threading

import pytest

from bridge_project.composition import health
from tests.http.conftest import Api

pytestmark = pytest.mark.django_db(transaction=True)  # the checks run in threads of their own


def test_a_check_that_hangs_has_failed_and_runs_once(
    hook: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.2)
    free = threading.Event()
    runs: list[int] = []

    def hangs() -> None:
        runs.append(1)
        free.wait(180)

    checks = dict(health.CHECKS)
    checks["websocket_server"] = (*checks["websocket_server"], hangs)
    monkeypatch.setattr(health, "CHECKS", checks)
    try:
        for _ in range(3):
            assert hook.get("/api/v1/health").json()["checks"]["websocket_server"] == "unhealthy"
        assert runs == [1]
    finally:
        free.set()
