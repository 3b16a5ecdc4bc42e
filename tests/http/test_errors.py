"""Every failure leaves with the six fields of D9, whoever noticed it first."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path
from rest_framework import exceptions as drf
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project import urls
from bridge_project.composition import health
from bridge_project.http import view
from bridge_project.http.json import json_model
from bridge_project.kernel.errors import ERRORS, BridgeError
from bridge_project.protocol.base import Received
from tests.http.conftest import Api, check_error

FOREIGN: list[tuple[Exception, str, int]] = [
    (OperationalError("database is locked"), "STORAGE_UNAVAILABLE", 503),
    (InterfaceError("connection already closed"), "STORAGE_UNAVAILABLE", 503),
    (SuspiciousOperation(), "VALIDATION_ERROR", 400),
    (PermissionDenied(), "AUTH_INSUFFICIENT_SCOPE", 403),
    (Http404(), "NOT_FOUND", 404),
    (drf.ParseError(), "VALIDATION_ERROR", 400),
    (drf.ValidationError(), "VALIDATION_ERROR", 400),
    (drf.NotAuthenticated(), "AUTH_INVALID_TOKEN", 401),
    (drf.AuthenticationFailed(), "AUTH_INVALID_TOKEN", 401),
    (drf.PermissionDenied(), "AUTH_INSUFFICIENT_SCOPE", 403),
    (drf.NotFound(), "NOT_FOUND", 404),
    (drf.MethodNotAllowed("PUT"), "METHOD_NOT_ALLOWED", 405),
    (drf.UnsupportedMediaType("text/xml"), "UNSUPPORTED_MEDIA_TYPE", 415),
    (ZeroDivisionError("secret detail"), "INTERNAL_ERROR", 500),
]


class Failing:
    """What the two views of this module raise or return."""

    now: Any = None


class FailingView(view.BridgeAPIView):
    rate_group = "status"
    authentication_classes = []
    permission_classes = []

    def get(self, request: Request) -> Response:
        return Response(fail())

    def post(self, request: Request) -> Response:
        return Response(json_model(request, Received).wire())


def fail() -> Any:
    if isinstance(Failing.now, Exception):
        raise Failing.now
    return Failing.now


def plain_view(request: HttpRequest) -> HttpResponse:
    found = fail()
    assert isinstance(found, HttpResponse)
    return found


urlpatterns = [
    *urls.urlpatterns,
    path("api/v1/failing", FailingView.as_view()),
    path("plain", plain_view),
    path("admin/plain", plain_view),
]
urlpatterns.sort(key=lambda pattern: str(pattern.pattern) == "admin/")
handler500 = urls.handler500


@pytest.fixture
def failing() -> Iterator[Callable[[Any], None]]:
    with override_settings(ROOT_URLCONF="tests.http.test_errors"):
        yield lambda what: setattr(Failing, "now", what)


def test_every_code_of_the_table(failing: Callable[[Any], None], stranger: Api) -> None:
    for code, status in {code: row.status for code, row in ERRORS.items() if row.status}.items():
        failing(BridgeError(code, "In other words.", headers={"X-Extra": "1"}, retry_after=7))
        for address in ("/api/v1/failing", "/plain"):
            response = stranger.get(address)
            body = check_error(response, code, status)
            assert (body["message"], body["retry_after"]) == ("In other words.", 7)
            assert response.headers["X-Extra"] == "1"
            assert ("WWW-Authenticate" in response.headers) == (status == 401)


def test_every_exception_of_the_frameworks(failing: Callable[[Any], None], stranger: Api) -> None:
    for exception, code, status in FOREIGN:
        failing(exception)
        for address in ("/api/v1/failing", "/plain"):
            response = stranger.get(address)
            check_error(response, code, status)
            assert b"secret detail" not in response.content
            assert ("Retry-After" in response.headers) == (status in (429, 503))
            assert response.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)


def test_an_error_that_somebody_else_answered_in_html(
    failing: Callable[[Any], None], stranger: Api
) -> None:
    for status, code in {413: "PAYLOAD_TOO_LARGE", 418: "VALIDATION_ERROR"}.items():
        failing(HttpResponse("<h1>No</h1>", status=status))
        check_error(stranger.get("/plain"), code, status)


def test_the_admin_site_keeps_its_pages(failing: Callable[[Any], None], stranger: Api) -> None:
    wrong = (ZeroDivisionError(), Http404(), PermissionDenied(), SuspiciousOperation())
    for exception in (*wrong, drf.NotFound()):
        failing(exception)
        assert stranger.get("/admin/plain").headers["Content-Type"].startswith("text/html")


# -- bodies ----------------------------------------------------------------------------------------


def test_a_body_that_is_not_json(failing: Callable[[Any], None], stranger: Api) -> None:
    """What is none: tests/protocol/test_jsontext.py."""
    found = check_error(stranger.post("/api/v1/failing", "NaN"), "VALIDATION_ERROR", 400)
    assert found["details"] == {"field": "body", "constraint": "JSON"}


def test_nan_cannot_go_out(failing: Callable[[Any], None], stranger: Api) -> None:
    failing({"number": float("nan")})
    check_error(stranger.get("/api/v1/failing"), "INTERNAL_ERROR", 500)


# -- hosts and methods -----------------------------------------------------------------------------


def test_head_and_options(hook: Api, db: None) -> None:
    response = hook("HEAD", "/api/v1/info")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Cache-Control"] == "no-store"
    response = hook("OPTIONS", "/api/v1/info")
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"


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
