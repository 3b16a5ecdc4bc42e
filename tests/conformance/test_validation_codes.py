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
    for violation, short in zip(answer["validation_errors"], answer["errors"], strict=True):
        assert_types(violation, field=str, message=str, code=str, rule=str)
        assert violation["message"]
        assert short == {name: violation[name] for name in ("field", "message")}
    return answer


def told(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Field → code and rule of each violation."""
    return {one["field"]: (one["code"], one["rule"]) for one in answer["validation_errors"]}


# what is wrong, each on its own, and the code of its rule, in the order of the spec's table
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
            assert told(answer) == {field: (BASE, code)}, value
            assert answer["details"]["field"] == field
    assert not shared.knows(sid)


@pytest.mark.spec("event_post.order")
def test_every_violation_of_the_base_is_listed(shared: Bridge) -> None:
    """D8: the first rule of the table names the error; none of the payload's fields is looked at
    while the base fails.
    """
    rules = [(*rule, values[-1]) for rule, values in BASE_CASES.items() if rule[0] != "event_type"]
    for number, (first, code, _) in enumerate(rules):
        # this one and all below it, but of a field only what comes first
        wrong = {field: (rule, value) for field, rule, value in reversed(rules[number:])}
        change = {field: value for field, (_, value) in wrong.items()}
        answer = rejected(shared, hook("PreToolUse", "s", {}) | change, code)
        assert answer["details"]["field"] == first
        assert told(answer) == {field: (BASE, rule) for field, (rule, _) in wrong.items()}


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
        assert told(answer) == {f"payload.{name}": (PAYLOAD, code) for name in missing}
        assert answer["details"]["field"] in told(answer)
    for (event, name), values in WRONG.items():
        for value in values:
            answer = rejected(shared, hook(event, sid, PAYLOADS[event] | {name: value}), code)
            assert [*told(answer)] == [answer["details"]["field"]] == [f"payload.{name}"], value
            assert "s3cret" not in str(answer)
    assert not shared.knows(sid)
    for level in ("low", "medium", "high", "critical"):
        shared.accept(hook("PreToolUse", sid, PAYLOADS["PreToolUse"] | {"risk_level": level}))
