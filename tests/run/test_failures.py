"""Failures that devices are told of (D51): those of severity `error`, each code once in some minutes, by whoever can tell them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bridge_project import failures, limits
from bridge_project.dispatch import connection_error_payload, error_payload
from bridge_project.errors import ERRORS, BridgeError
from bridge_project.failures import Failure
from bridge_project.rest_body import error_body


@pytest.fixture
def told() -> Iterator[list[Failure]]:
    found: list[Failure] = []
    failures.tell_by(found.append)
    yield found
    failures.tell_by(None)


@pytest.mark.parametrize("code", ERRORS)
def test_only_severity_error_is_told(told: list[Failure], code: str) -> None:
    failures.happened(code)
    assert [failure.row.code for failure in told] == ([code] if ERRORS[code].severity == "error" else [])


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
    failures.untold(told[1])
    connection_error_payload(BridgeError("BRIDGE_ERROR"), "https://localhost")
    assert told[3].row.code == "BRIDGE_ERROR"


def test_the_same_code_once_in_some_minutes(told: list[Failure], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(100):
        failures.happened("INTERNAL_ERROR")
    failures.happened("BRIDGE_ERROR")
    assert [failure.row.code for failure in told] == ["INTERNAL_ERROR", "BRIDGE_ERROR"]
    moment = time.monotonic() + limits.FAILURE_TOLD_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    failures.happened("INTERNAL_ERROR")
    assert len(told) == 3


def test_what_could_not_be_told_is_told_the_next_time(told: list[Failure]) -> None:
    failures.happened("INTERNAL_ERROR", "first")
    failures.untold(told[0])
    failures.happened("INTERNAL_ERROR", "second")
    assert [failure.reference for failure in told] == ["first", "second"]


def test_a_command_tells_nobody(told: list[Failure]) -> None:
    failures.tell_by(None)
    failures.happened("INTERNAL_ERROR")
    assert told == []
