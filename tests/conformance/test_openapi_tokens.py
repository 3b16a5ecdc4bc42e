"""schemathesis with one token for everything, with none, and with the limits on: refusals are
answers that the OpenAPI document describes, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Response
from tests.conformance.openapi import (
    PATIENT,
    described,
    document_of,
    explore,
    furnished,
    operations_of,
)

__all__ = ["furnished"]
pytestmark = pytest.mark.timeout(PATIENT)


@pytest.mark.parametrize("kind", ["device", "hook", "admin", None])
def test_with_the_same_token_for_all(furnished: Bridge, tmp_path: Path, kind: str | None) -> None:
    """Each kind of token, and none: what it may not do is answered as the document says too
    (D14).
    """
    tokens = {
        "device": furnished.device_token(),
        "hook": furnished.hook_token,
        "admin": furnished.admin_token,
    }
    header = ["-H", f"Authorization: Bearer {tokens[kind]}"] if kind else []
    run = explore(furnished, tmp_path, "--phases", "fuzzing", "-n", "4", *header)
    assert 200 in run.statuses and run.statuses & {401, 403}


def test_with_the_limits_on(make_bridge: Callable[..., Bridge]) -> None:
    """D16, D17: 429, and what comes with it, is in the document for every operation."""
    bridge = make_bridge("openapi limited", BRIDGE_RATE_LIMITS="on")
    for operation in operations_of(document_of(bridge)):
        described(operation, refused_at_last(bridge, operation))


def refused_at_last(bridge: Bridge, operation: Any) -> Response:
    """The 429 that comes after as many requests as one may send in a minute."""
    token = bridge.hook_token if "hooks/" in operation.path else bridge.admin_token
    connection = bridge.https().open()
    try:
        for _ in range(2 * 120 + 2):  # the minute may end in between
            path = operation.path.replace("{session_id}", "plain")
            answer = bridge.https().request(
                operation.method.upper(), path, token=token, connection=connection
            )
            if answer.status == 429:
                return answer
    finally:
        connection.close()
    raise AssertionError(f"{operation.label} has no limit; the last answer: {answer}")
