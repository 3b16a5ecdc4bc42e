"""The six fields of an HTTP error (D9)."""

from __future__ import annotations

import uuid

import pytest

from bridge_project.http.error_body import error_answer, request_id
from bridge_project.kernel.errors import ERRORS, BridgeError
from bridge_project.protocol.types import parse_timestamp


@pytest.mark.parametrize("code", ERRORS)
def test_every_code_has_a_body_of_six_fields(code: str) -> None:
    body = error_answer(BridgeError(code), "abc", "https://10.0.0.1:8443").fields
    assert set(body) == {"error", "message", "code", "request_id", "timestamp", "documentation_url"}
    assert all(isinstance(value, str) and value for value in body.values())
    assert body["documentation_url"] == f"https://10.0.0.1:8443/docs/errors/{code}"
    parse_timestamp(body["timestamp"])


def test_what_is_given_stands() -> None:
    error = BridgeError("RATE_LIMIT_EXCEEDED", "Slower.", retry_after=7)
    body = error_answer(error, "abc", "https://b").fields
    assert body == {
        "error": "Too Many Requests",
        "message": "Slower.",
        "code": "RATE_LIMIT_EXCEEDED",
        "request_id": "abc",
        "timestamp": body["timestamp"],
        "documentation_url": "https://b/docs/errors/RATE_LIMIT_EXCEEDED",
        "retry_after": 7,
    }
    answer = error_answer(BridgeError("INTERNAL_ERROR"), "abc", "https://b", status=503)
    assert (answer.status, answer.fields["error"]) == (503, "Service Unavailable")


@pytest.mark.parametrize("given", ["abc", "a" * 128, "0f-9.A_b:c"])
def test_a_sane_request_id_is_kept(given: str) -> None:
    assert request_id(given) == given


@pytest.mark.parametrize(
    "given", [None, "", "a" * 129, "a b", "a\r\nSet-Cookie: x", "<script>", "é", "a\n"]
)
def test_any_other_is_replaced(given: str | None) -> None:
    made = request_id(given)
    assert made != given and str(uuid.UUID(made)) == made
