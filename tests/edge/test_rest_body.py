"""The six fields of an HTTP error (D9)."""

from __future__ import annotations

import uuid

import pytest

from bridge_project.http.error_body import error_body, request_id
from bridge_project.kernel.errors import ERRORS
from bridge_project.protocol.types import parse_timestamp


@pytest.mark.parametrize("code", ERRORS)
def test_every_code_has_a_body_of_six_fields(code: str) -> None:
    body = error_body(code, "abc", base_url="https://10.0.0.1:8443")
    assert set(body) == {"error", "message", "code", "request_id", "timestamp", "documentation_url"}
    assert all(isinstance(value, str) and value for value in body.values())
    assert body["documentation_url"] == f"https://10.0.0.1:8443/docs/errors/{code}"
    parse_timestamp(body["timestamp"])


def test_what_is_given_stands() -> None:
    body = error_body(
        "RATE_LIMIT_EXCEEDED",
        "abc",
        base_url="https://b",
        message="Slower.",
        timestamp="2026-01-01T00:00:00.000Z",
        retry_after=7,
    )
    assert body == {
        "error": "Too Many Requests",
        "message": "Slower.",
        "code": "RATE_LIMIT_EXCEEDED",
        "request_id": "abc",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "documentation_url": "https://b/docs/errors/RATE_LIMIT_EXCEEDED",
        "retry_after": 7,
    }
    assert (
        error_body("INTERNAL_ERROR", "abc", base_url="https://b", status=503)["error"]
        == "Service Unavailable"
    )


@pytest.mark.parametrize("given", ["abc", "a" * 128, "0f-9.A_b:c"])
def test_a_sane_request_id_is_kept(given: str) -> None:
    assert request_id(given) == given


@pytest.mark.parametrize(
    "given", [None, "", "a" * 129, "a b", "a\r\nSet-Cookie: x", "<script>", "é", "a\n"]
)
def test_any_other_is_replaced(given: str | None) -> None:
    made = request_id(given)
    assert made != given and str(uuid.UUID(made)) == made
