"""Methods that the specification does not name, and every endpoint has (RFC 9110)."""

from tests.http.conftest import Api


def test_head_and_options(hook: Api, db: None) -> None:
    response = hook("HEAD", "/api/v1/info")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Cache-Control"] == "no-store"
    response = hook("OPTIONS", "/api/v1/info")
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
