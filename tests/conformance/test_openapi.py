"""schemathesis over the served OpenAPI document, against a running bridge: no 500, and no answer
that the document does not describe.

All of its checks are on. What the decisions allow on purpose and a schema cannot say is in
``openapi_hooks``, narrowly and with the reason. The run is the same each time and short;
SOAK_SECONDS=600 makes it take so long, with new inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Https, Response
from tests.conformance.openapi import (
    OPERATIONS,
    PATIENT,
    all_tokens,
    described,
    document_of,
    explore,
    furnished,
    operations_of,
)
from tests.conformance.samples import hook

__all__ = ["furnished"]
pytestmark = pytest.mark.timeout(PATIENT)


def test_with_the_right_token_for_each(furnished: Bridge, tmp_path: Path) -> None:
    """Every phase: the document's examples, values at every bound, and random ones."""
    run = explore(
        furnished,
        tmp_path,
        "--phases",
        "examples,coverage,fuzzing",
        "-n",
        "3",
        tokens=all_tokens(furnished),
    )
    phases = {name: phase["status"] for name, phase in run.report["phases"].items()}
    assert phases.pop("stateful") == "skip" and set(phases.values()) == {"success"}, phases
    assert len(run.accepted()) == OPERATIONS - 1 and "GET /api/v1/ws" not in run.accepted(), (
        run.report["valid_rates"]
    )
    assert run.statuses >= {200, 202, 400, 401, 404, 405}


def path_of(operation: Any) -> str:
    return str(operation.path.replace("{session_id}", "plain"))


def test_each_kind_of_token(furnished: Bridge) -> None:
    """D14: what it may not do, and what none may, is answered as the document says too."""
    tokens = [*all_tokens(furnished).values(), None]
    statuses = set()
    for operation in operations_of(document_of(furnished)):
        for token in tokens:
            answer = furnished.https().request(
                operation.method.upper(), path_of(operation), token=token
            )
            described(operation, answer)
            statuses.add(answer.status)
    assert statuses >= {200, 400, 401, 403}


def test_with_the_limits_on(make_bridge: Callable[..., Bridge]) -> None:
    """D16, D17: 429, and what comes with it, is in the document for every operation."""
    bridge = make_bridge("openapi limited", BRIDGE_RATE_LIMITS="on")
    for operation in operations_of(document_of(bridge)):
        described(operation, refused_at_last(bridge, operation))


def refused_at_last(bridge: Bridge, operation: Any) -> Response:
    """The 429 that comes after too many wrong tokens, or requests, in a minute."""
    connection = bridge.https().open()
    try:
        for _ in range(2 * 60 + 2):  # the minute may end in between
            answer = bridge.https().request(
                operation.method.upper(), path_of(operation), token="wrong", connection=connection
            )
            if answer.status == 429:
                return answer
    finally:
        connection.close()
    raise AssertionError(f"{operation.label} has no limit; the last answer: {answer}")


# -- what no generated request meets ---------------------------------------------------------------

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "elsewhere.example"}, 400, "HOST_NOT_ALLOWED"),
        ({"X-Long": "x" * 20_000}, 400, "VALIDATION_ERROR"),
        ({"Content-Length": str(200 * 2**20)}, 413, "PAYLOAD_TOO_LARGE"),
        ({"X-Forwarded-Proto": "http"}, 403, "INSECURE_TRANSPORT"),
    ],
    ids=["host", "header", "body", "plain"],
)
def test_what_every_operation_can_answer(
    furnished: Bridge, headers: dict[str, str], status: int, code: str
) -> None:
    """D9, D18, D19: before any view is asked."""
    plain = int(furnished.settings["BRIDGE_PLAIN_PORT"])
    https = Https(plain, plain=True) if code == "INSECURE_TRANSPORT" else furnished.https()
    for operation in operations_of(document_of(furnished)):
        answer = https.request(operation.method.upper(), path_of(operation), headers=headers)
        assert (answer.status, answer.json()["code"]) == (status, code), operation.label
        described(operation, answer)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": "Bearer " + "x" * 40}, 401, "AUTH_INVALID_TOKEN"),
        ({"Origin": "https://elsewhere.example"}, 403, "ORIGIN_NOT_ALLOWED"),
        ({"Host": "elsewhere.example"}, 400, "HOST_NOT_ALLOWED"),
        ({"Sec-WebSocket-Key": "short"}, 400, "VALIDATION_ERROR"),
        ({"Sec-WebSocket-Version": "7"}, 400, "VALIDATION_ERROR"),
    ],
)
def test_what_an_upgrade_can_be_answered(
    furnished: Bridge, headers: dict[str, str], status: int, code: str
) -> None:
    """D18: the refusals of `GET /ws`."""
    [operation] = [one for one in operations_of(document_of(furnished)) if one.path == "/api/v1/ws"]
    answer = furnished.get("/api/v1/ws", headers=UPGRADE | headers)
    assert (answer.status, answer.json()["code"]) == (status, code)
    described(operation, answer)


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/json; charset=latin-1", "application/x-www-form-urlencoded", ""],
)
def test_what_is_no_json_is_described(furnished: Bridge, content_type: str) -> None:
    """D9: 415, of every operation that takes a body."""
    operations = [
        one for one in operations_of(document_of(furnished)) if "requestBody" in one.definition.raw
    ]
    assert len(operations) == 5
    for operation in operations:
        token = furnished.hook_token if "hooks" in operation.path else furnished.admin_token
        answer = furnished.https().request(
            "POST",
            path_of(operation),
            token=token,
            body=b"{}",
            headers={"Content-Type": content_type},
        )
        assert (answer.status, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE"), (
            operation.label
        )
        described(operation, answer)


@pytest.mark.parametrize(
    ("path", "filled", "status", "code"),
    [
        (
            "/api/v1/sessions/{session_id}/events",
            "/api/v1/sessions/closed%20again/events",
            409,
            "SESSION_CLOSED",
        ),
        ("/api/v1/files/content", "/api/v1/files/content?path=docs/large", 413, "FILE_TOO_LARGE"),
        (
            "/api/v1/files/content",
            "/api/v1/files/content?path=docs/way%20out/passwd",
            403,
            "FILE_ACCESS_DENIED",
        ),
    ],
)
def test_what_is_met_by_chance_only(
    furnished: Bridge, path: str, filled: str, status: int, code: str
) -> None:
    """SPEC: closed session; D12."""
    with (furnished.root / "docs" / "large").open("wb") as large:
        large.truncate(11 * 2**20)
    furnished.accept(hook("SessionStart", "closed again"), hook("SessionEnd", "closed again"))
    [operation] = [one for one in operations_of(document_of(furnished)) if one.path == path]
    body: Any = ... if operation.method == "get" else {"type": "user_message", "content": "x"}
    answer = furnished.https().request(
        operation.method.upper(), filled, token=furnished.admin_token, json_body=body
    )
    assert (answer.status, answer.json()["code"]) == (status, code)
    described(operation, answer)
