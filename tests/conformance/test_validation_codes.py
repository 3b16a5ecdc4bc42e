"""Hook validation codes (spec, Errors; D5, D8): every rule, its code, its field, and the body."""

from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, assert_types
from tests.conformance.samples import PAYLOADS, hook

pytestmark = pytest.mark.spec("auth.hardening")

BASE, PAYLOAD = "VALIDATION_ERROR", "PAYLOAD_VALIDATION_ERROR"


def rejected(bridge: Bridge, body: Any, code: str) -> dict[str, Any]:
    """Post, check D8's whole body, which satisfies all three shown forms; the body."""
    answer = assert_error(bridge.post_hook(body), 400, code)
    assert answer["received"] is False
    assert set(answer["details"]) == {"field", "constraint"}
    assert_types(answer["details"], field=str, constraint=str)
    assert answer["details"]["constraint"] and answer["validation_errors"], answer
    for violation in answer["validation_errors"]:
        assert_types(violation, field=str, message=str, code=str, rule=str)
        assert violation["message"]
    assert answer["errors"] == [
        {"field": violation["field"], "message": violation["message"]}
        for violation in answer["validation_errors"]
    ]
    return answer


def fields(answer: dict[str, Any]) -> set[str]:
    return {violation["field"] for violation in answer["validation_errors"]}


def codes(answer: dict[str, Any]) -> set[tuple[str, str]]:
    return {(violation["code"], violation["rule"]) for violation in answer["validation_errors"]}


# what is wrong, each on its own, and the code of its rule
BASE_CASES: dict[tuple[str, str], tuple[Any, ...]] = {
    ("event", "HOOK_INVALID_EVENT_TYPE"): (..., None, 1, "Explosion", "sessionstart"),
    ("event_type", "HOOK_INVALID_EVENT_TYPE"): (5,),
    ("timestamp", "HOOK_INVALID_TIMESTAMP"): (..., None, "yesterday", "2026-02-30T12:00:00Z"),
    ("timestamp", "HOOK_STALE_TIMESTAMP"): ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"),
    ("session_id", "HOOK_INVALID_SESSION_ID"): (..., None, "", " \t", "a\x00b", "x" * 10_000, 7),
    ("payload", "HOOK_INVALID_PAYLOAD"): (..., None, [], "{}"),
}


@pytest.mark.spec(
    "hookcode.* hook.event hook.timestamp hook.session_id hook.payload",
    "event.other event_post.invalid",
)
def test_base_rules(shared: Bridge, sid: str) -> None:
    for (field, code), values in BASE_CASES.items():
        for value in values:
            answer = rejected(shared, hook("Stop", sid, **{field: value}), code)
            assert fields(answer) == {answer["details"]["field"]} == {field}, (field, value)
            assert codes(answer) == {(BASE, code)}
    assert not shared.knows(sid)


OLD = "2020-01-01T00:00:00Z"
# code → what is wrong at once; the first rule of the table names the error
SEVERAL: dict[str, dict[str, Any]] = {
    "HOOK_INVALID_EVENT_TYPE": {"event": "x", "timestamp": OLD, "session_id": "", "payload": 5},
    "HOOK_INVALID_TIMESTAMP": {"timestamp": "x", "session_id": ""},
    "HOOK_STALE_TIMESTAMP": {"timestamp": OLD, "session_id": "", "payload": []},
    "HOOK_INVALID_SESSION_ID": {"session_id": "", "payload": []},
}


@pytest.mark.spec("event_post.order")
def test_every_violation_of_the_base_is_listed(shared: Bridge) -> None:
    """D8: and none of the payload's fields, which are not looked at while the base fails."""
    rules = {
        "event": "HOOK_INVALID_EVENT_TYPE",
        "timestamp": "HOOK_STALE_TIMESTAMP",
        "session_id": "HOOK_INVALID_SESSION_ID",
        "payload": "HOOK_INVALID_PAYLOAD",
    }
    for code, change in SEVERAL.items():
        answer = rejected(shared, hook("PreToolUse", "s", {}) | change, code)
        assert answer["details"]["field"] == next(iter(change))
        listed = {one["field"]: one["rule"] for one in answer["validation_errors"]}
        expected = {name: rules[name] for name in change}
        assert listed == expected | {answer["details"]["field"]: code}


REQUIRED = {
    "SessionStart": {"working_directory"},
    "PreToolUse": {"tool", "params", "risk_level", "requires_approval"},
    "PostToolUse": {"tool", "params", "result", "success"},
}
WRONG: dict[tuple[str, str], tuple[Any, ...]] = {
    ("SessionStart", "working_directory"): (5, None),
    ("SessionStart", "initial_prompt"): (5,),
    ("SessionStart", "environment"): ([],),
    ("PreToolUse", "tool"): (None,),
    ("PreToolUse", "params"): ("ls",),
    ("PreToolUse", "risk_level"): ("s3cret", "HIGH", None),
    ("PreToolUse", "requires_approval"): ("true", 1, None),
    ("PostToolUse", "tool"): ({},),
    ("PostToolUse", "params"): (3,),
    ("PostToolUse", "success"): ("false",),
    ("PostToolUse", "execution_time_ms"): ("12", True),
}


@pytest.mark.spec(
    "payload.SessionStart.* payload.PreToolUse.* payload.PostToolUse.* code.HOOK_INVALID_PAYLOAD"
)
def test_payloads(shared: Bridge, sid: str) -> None:
    """D5: no coercion: "true" is no boolean, 1 neither; what was sent is not repeated."""
    code = "HOOK_INVALID_PAYLOAD"
    for event, missing in REQUIRED.items():
        answer = rejected(shared, hook(event, sid, {}), code)
        assert fields(answer) == {f"payload.{name}" for name in missing}
        assert answer["details"]["field"] in fields(answer)
        assert codes(answer) == {(PAYLOAD, code)}
    for (event, name), values in WRONG.items():
        for value in values:
            answer = rejected(shared, hook(event, sid, PAYLOADS[event] | {name: value}), code)
            assert fields(answer) == {answer["details"]["field"]} == {f"payload.{name}"}, value
            assert "s3cret" not in str(answer)
    assert not shared.knows(sid)
    for level in ("low", "medium", "high", "critical"):
        shared.accept(hook("PreToolUse", sid, PAYLOADS["PreToolUse"] | {"risk_level": level}))
