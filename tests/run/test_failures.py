"""Failures that devices are told of (D51): those of severity `error` that nobody else tells them,
each code once in some minutes.
"""

from __future__ import annotations

import time

import pytest

from bridge_project.http.error_body import connection_error_payload, error_answer, error_payload
from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.errors import ERRORS, BridgeError


@pytest.fixture(autouse=True)
def nothing_reported() -> None:
    failure_alerts.reset()


@pytest.mark.parametrize("code", ERRORS)
def test_only_severity_error_is_told(code: str) -> None:
    failure_alerts.report(code)
    told = [failure.row.code for failure in failure_alerts.take()]
    row = ERRORS[code]
    assert told == ([code] if row.severity == "error" and not row.notified else [])


def test_every_way_out_comes_by() -> None:
    """An HTTP answer, an `error`, a `connection_error`; with what the log has it under."""
    error_answer(BridgeError("INTERNAL_ERROR"), "request-1", "https://localhost")
    error_payload(BridgeError("BRIDGE_ERROR"), reference="message-1")
    error_payload(BridgeError("SYS_INTERNAL_ERROR", session_id="s1"))
    told = failure_alerts.take()
    assert [(failure.row.code, failure.reference, failure.session_id) for failure in told] == [
        ("INTERNAL_ERROR", "request-1", None),
        ("BRIDGE_ERROR", "message-1", None),
        ("SYS_INTERNAL_ERROR", "", "s1"),
    ]
    failure_alerts.forget(told[1])
    connection_error_payload(BridgeError("BRIDGE_ERROR"), "https://localhost")
    assert [failure.row.code for failure in failure_alerts.take()] == ["BRIDGE_ERROR"]


def test_the_same_code_once_in_some_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(100):
        failure_alerts.report("INTERNAL_ERROR")
    failure_alerts.report("BRIDGE_ERROR")
    told = [failure.row.code for failure in failure_alerts.take()]
    assert told == ["INTERNAL_ERROR", "BRIDGE_ERROR"]
    moment = time.monotonic() + limits.FAILURE_REPEAT_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    failure_alerts.report("INTERNAL_ERROR")
    assert len(failure_alerts.take()) == 1


def test_what_could_not_be_told_is_told_the_next_time() -> None:
    failure_alerts.report("INTERNAL_ERROR", "first")
    (first,) = failure_alerts.take()
    failure_alerts.forget(first)
    failure_alerts.report("INTERNAL_ERROR", "second")
    assert [failure.reference for failure in failure_alerts.take()] == ["second"]
