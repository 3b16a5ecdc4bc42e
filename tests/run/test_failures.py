"""Failures that devices are told of (D51): those of severity `error`, each code once in some
minutes, by whoever can tell them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bridge_project.http.dispatch import connection_error_payload, error_payload
from bridge_project.http.error_body import error_body
from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.errors import ERRORS, BridgeError
from bridge_project.kernel.failure_alerts import Failure


@pytest.fixture
def told() -> Iterator[list[Failure]]:
    found: list[Failure] = []
    failure_alerts.tell_by(found.append)
    yield found
    failure_alerts.tell_by(None)


@pytest.mark.parametrize("code", ERRORS)
def test_only_severity_error_is_told(told: list[Failure], code: str) -> None:
    failure_alerts.happened(code)
    assert [failure.row.code for failure in told] == (
        [code] if ERRORS[code].severity == "error" else []
    )


def test_every_way_out_comes_by(told: list[Failure]) -> None:
    """An HTTP answer, an `error`, a `connection_error`; with what the log has it under."""
    error_body("INTERNAL_ERROR", "request-1", base_url="https://localhost")
    error_payload(BridgeError("BRIDGE_ERROR"), reference="message-1")
    error_payload(BridgeError("AGENT_ERROR", session_id="s1"))
    assert [(failure.row.code, failure.reference, failure.session_id) for failure in told] == [
        ("INTERNAL_ERROR", "request-1", None),
        ("BRIDGE_ERROR", "message-1", None),
        ("AGENT_ERROR", "", "s1"),
    ]
    failure_alerts.untold(told[1])
    connection_error_payload(BridgeError("BRIDGE_ERROR"), "https://localhost")
    assert told[3].row.code == "BRIDGE_ERROR"


def test_the_same_code_once_in_some_minutes(
    told: list[Failure], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(100):
        failure_alerts.happened("INTERNAL_ERROR")
    failure_alerts.happened("BRIDGE_ERROR")
    assert [failure.row.code for failure in told] == ["INTERNAL_ERROR", "BRIDGE_ERROR"]
    moment = time.monotonic() + limits.FAILURE_TOLD_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    failure_alerts.happened("INTERNAL_ERROR")
    assert len(told) == 3


def test_what_could_not_be_told_is_told_the_next_time(told: list[Failure]) -> None:
    failure_alerts.happened("INTERNAL_ERROR", "first")
    failure_alerts.untold(told[0])
    failure_alerts.happened("INTERNAL_ERROR", "second")
    assert [failure.reference for failure in told] == ["first", "second"]


def test_a_command_tells_nobody(told: list[Failure]) -> None:
    failure_alerts.tell_by(None)
    failure_alerts.happened("INTERNAL_ERROR")
    assert told == []
