"""Hook validation codes (spec, Errors; D5, D8): every rule, its code, its field, and the body that
satisfies all three shown forms.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, assert_now
from tests.conformance.samples import PAYLOADS, hook, now

pytestmark = pytest.mark.spec("auth.hardening")

BASE, PAYLOAD = "VALIDATION_ERROR", "PAYLOAD_VALIDATION_ERROR"


def rejected(bridge: Bridge, body: Any, code: str) -> dict[str, Any]:
    """Post, check D8's whole body, return it."""
    answer = assert_error(bridge.post_hook(body), 400, code)
    assert answer["received"] is False
    assert set(answer["details"]) == {"field", "constraint"} and all(
        isinstance(value, str) and value for value in answer["details"].values()
    ), answer
    assert answer["validation_errors"] and answer["errors"], answer
    for violation in answer["validation_errors"]:
        assert set(violation) >= {"field", "message", "code", "rule"} and all(
            isinstance(value, str) for value in violation.values()
        ), violation
        assert violation["message"]
    for short in answer["errors"]:
        assert set(short) == {"field", "message"}, short
    assert [short["field"] for short in answer["errors"]] == [
        violation["field"] for violation in answer["validation_errors"]
    ]
    assert_now(answer["timestamp"])
    return answer


def fields(answer: dict[str, Any]) -> set[str]:
    return {violation["field"] for violation in answer["validation_errors"]}


BASE_CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("event-missing", {"event": ...}, "event", "HOOK_INVALID_EVENT_TYPE"),
    ("event-unknown", {"event": "Explosion"}, "event", "HOOK_INVALID_EVENT_TYPE"),
    ("event-case", {"event": "sessionstart"}, "event", "HOOK_INVALID_EVENT_TYPE"),
    ("event-number", {"event": 1}, "event", "HOOK_INVALID_EVENT_TYPE"),
    ("event-null", {"event": None}, "event", "HOOK_INVALID_EVENT_TYPE"),
    ("time-missing", {"timestamp": ...}, "timestamp", "HOOK_INVALID_TIMESTAMP"),
    ("time-words", {"timestamp": "yesterday"}, "timestamp", "HOOK_INVALID_TIMESTAMP"),
    ("time-null", {"timestamp": None}, "timestamp", "HOOK_INVALID_TIMESTAMP"),
    ("time-old", {"timestamp": "2020-01-01T00:00:00Z"}, "timestamp", "HOOK_STALE_TIMESTAMP"),
    ("time-future", {"timestamp": "2100-01-01T00:00:00Z"}, "timestamp", "HOOK_STALE_TIMESTAMP"),
    ("session-missing", {"session_id": ...}, "session_id", "HOOK_INVALID_SESSION_ID"),
    ("session-empty", {"session_id": ""}, "session_id", "HOOK_INVALID_SESSION_ID"),
    ("session-null", {"session_id": None}, "session_id", "HOOK_INVALID_SESSION_ID"),
    ("session-number", {"session_id": 7}, "session_id", "HOOK_INVALID_SESSION_ID"),
    ("payload-missing", {"payload": ...}, "payload", "HOOK_INVALID_PAYLOAD"),
    ("payload-null", {"payload": None}, "payload", "HOOK_INVALID_PAYLOAD"),
    ("payload-list", {"payload": []}, "payload", "HOOK_INVALID_PAYLOAD"),
    ("payload-text", {"payload": "{}"}, "payload", "HOOK_INVALID_PAYLOAD"),
]


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [case[1:] for case in BASE_CASES],
    ids=[case[0] for case in BASE_CASES],
)
@pytest.mark.spec(
    "hookcode.*",
    "hook.event",
    "hook.timestamp",
    "hook.session_id",
    "hook.payload",
    "event.other",
    "event_post.invalid",
)
def test_base_rules(
    shared: Bridge, sid: str, change: dict[str, Any], field: str, code: str
) -> None:
    """Spec's table; D8: the rule's code on top, VALIDATION_ERROR with the rule in
    validation_errors; nothing is stored.
    """
    body = hook("Stop", sid, **{name: value for name, value in change.items() if name != "payload"})
    if "payload" in change:
        body["payload"] = change["payload"]
        if change["payload"] is ...:
            del body["payload"]
    answer = rejected(shared, body, code)
    assert fields(answer) == {field}
    assert answer["details"]["field"] == field
    assert {
        (violation["code"], violation["rule"]) for violation in answer["validation_errors"]
    } == {(BASE, code)}
    assert not shared.knows(sid)


@pytest.mark.spec("hookcode.HOOK_STALE_TIMESTAMP", "limit.skew")
def test_just_stale(shared: Bridge, sid: str) -> None:
    """Spec: 5 minutes, either side."""
    for seconds in (-310, 310):
        rejected(shared, hook("Stop", sid, timestamp=now(seconds)), "HOOK_STALE_TIMESTAMP")


@pytest.mark.parametrize("timestamp", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_times_at_the_edge_of_the_calendar(shared: Bridge, sid: str, timestamp: str) -> None:
    """Spec: parseable or stale, either way a clear refusal of the timestamp."""
    answer = assert_error(shared.post_hook(hook("Stop", sid, timestamp=timestamp)), 400)
    assert answer["code"] in ("HOOK_INVALID_TIMESTAMP", "HOOK_STALE_TIMESTAMP")
    assert answer["details"]["field"] == "timestamp"


def test_every_base_violation_is_listed(shared: Bridge) -> None:
    """D8: every violation of the stage, the table's order decides the top-level code."""
    answer = rejected(
        shared,
        {"event": "Nope", "timestamp": "x", "session_id": "", "payload": 5},
        "HOOK_INVALID_EVENT_TYPE",
    )
    assert fields(answer) == {"event", "timestamp", "session_id", "payload"}
    assert answer["details"]["field"] == "event"
    rules = {violation["field"]: violation["rule"] for violation in answer["validation_errors"]}
    assert rules == {
        "event": "HOOK_INVALID_EVENT_TYPE",
        "timestamp": "HOOK_INVALID_TIMESTAMP",
        "session_id": "HOOK_INVALID_SESSION_ID",
        "payload": "HOOK_INVALID_PAYLOAD",
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"timestamp": "x", "session_id": ""}, "HOOK_INVALID_TIMESTAMP"),
        (
            {"timestamp": "2020-01-01T00:00:00Z", "session_id": "", "payload": []},
            "HOOK_STALE_TIMESTAMP",
        ),
        ({"session_id": "", "payload": []}, "HOOK_INVALID_SESSION_ID"),
        ({"event": "x", "timestamp": "2020-01-01T00:00:00Z"}, "HOOK_INVALID_EVENT_TYPE"),
    ],
    ids=["invalid-time", "stale", "session", "event"],
)
def test_the_first_rule_of_the_table_names_the_error(
    shared: Bridge, change: dict[str, Any], code: str
) -> None:
    """D8: event, timestamp, freshness, session_id and payload being an object are one stage; all
    are listed.
    """
    answer = rejected(shared, hook("Stop", "s") | change, code)
    assert fields(answer) == set(change)


@pytest.mark.spec("event_post.order")
def test_the_stages_are_apart(shared: Bridge, sid: str) -> None:
    """D8: while the base fails, the payload's fields are not looked at."""
    answer = rejected(shared, hook("PreToolUse", sid, {}, timestamp="x"), "HOOK_INVALID_TIMESTAMP")
    assert fields(answer) == {"timestamp"}


@pytest.mark.parametrize(
    ("event", "missing"),
    [
        ("SessionStart", {"working_directory"}),
        ("PreToolUse", {"tool", "params", "risk_level", "requires_approval"}),
        ("PostToolUse", {"tool", "params", "result", "success"}),
    ],
)
@pytest.mark.spec(
    "payload.SessionStart.*",
    "payload.PreToolUse.*",
    "payload.PostToolUse.*",
    "code.HOOK_INVALID_PAYLOAD",
)
def test_every_missing_payload_field_is_listed(
    shared: Bridge, sid: str, event: str, missing: set[str]
) -> None:
    """Spec's payload table; D8: PAYLOAD_VALIDATION_ERROR, field path prefixed payload., all of
    them.
    """
    answer = rejected(shared, hook(event, sid, {}), "HOOK_INVALID_PAYLOAD")
    assert fields(answer) == {f"payload.{name}" for name in missing}
    assert answer["details"]["field"].startswith("payload.")
    assert {
        (violation["code"], violation["rule"]) for violation in answer["validation_errors"]
    } == {(PAYLOAD, "HOOK_INVALID_PAYLOAD")}
    assert not shared.knows(sid)


PAYLOAD_CASES: list[tuple[str, str, Any]] = [
    ("SessionStart", "working_directory", 5),
    ("SessionStart", "working_directory", None),
    ("SessionStart", "initial_prompt", 5),
    ("SessionStart", "environment", []),
    ("PreToolUse", "tool", None),
    ("PreToolUse", "params", "ls"),
    ("PreToolUse", "risk_level", "HIGH"),
    ("PreToolUse", "risk_level", None),
    ("PreToolUse", "requires_approval", "true"),
    ("PreToolUse", "requires_approval", 1),
    ("PreToolUse", "requires_approval", None),
    ("PostToolUse", "tool", {}),
    ("PostToolUse", "params", 3),
    ("PostToolUse", "success", "false"),
    ("PostToolUse", "execution_time_ms", "12"),
    ("PostToolUse", "execution_time_ms", True),
]


@pytest.mark.parametrize(
    ("event", "name", "value"),
    PAYLOAD_CASES,
    ids=[f"{event}-{name}-{value!r}" for event, name, value in PAYLOAD_CASES],
)
@pytest.mark.spec("payload.SessionStart.*", "payload.PreToolUse.*", "payload.PostToolUse.*")
def test_no_coercion_in_payloads(
    shared: Bridge, sid: str, event: str, name: str, value: Any
) -> None:
    """D5: strict for SessionStart, PreToolUse, PostToolUse: "true" is no boolean, 1 is none either,
    true is no number.
    """
    answer = rejected(
        shared, hook(event, sid, PAYLOADS[event] | {name: value}), "HOOK_INVALID_PAYLOAD"
    )
    assert fields(answer) == {f"payload.{name}"}
    assert answer["details"]["field"] == f"payload.{name}"


@pytest.mark.spec("payload.PreToolUse.risk_level")
def test_each_risk_level(shared: Bridge, sid: str) -> None:
    """Spec: enum low, medium, high, critical."""
    for level in ("low", "medium", "high", "critical"):
        body = hook("PreToolUse", sid, PAYLOADS["PreToolUse"] | {"risk_level": level})
        assert shared.post_hook(body).status == 200
