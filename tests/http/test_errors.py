"""What an answer of the API is when nothing at the wire shows it."""

import threading

import pytest

from bridge_project.composition import health
from tests.http.conftest import Api, check_error


def test_head_and_options(hook: Api, db: None) -> None:
    response = hook("HEAD", "/api/v1/info")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Cache-Control"] == "no-store"
    response = hook("OPTIONS", "/api/v1/info")
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_an_error_of_the_admin_site_is_a_page(admin: Api, db: None) -> None:
    response = admin.get("/admin/nothing-is-here/")
    assert response.status_code in (302, 404)
    assert response.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("body", ["NaN", "[]"])
def test_a_body_that_is_no_object(admin: Api, db: None, body: str) -> None:
    found = check_error(admin.post("/api/v1/sessions/x/events", body), "VALIDATION_ERROR", 400)
    assert found["details"]["field"] == "body"


@pytest.mark.django_db(transaction=True)  # the checks run in threads of their own
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
