"""Hook events, as they are kept and refused (D1, D3, D5, D8, D31, D32).

Each rule and its code is in tests/conformance/test_validation_codes.py.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.protocol.hooks import HookInvalid, parse_hook_event

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
AT = "2026-01-31T12:00:00Z"
PRE: dict[str, Any] = {
    "tool": "Bash",
    "params": {"command": "ls"},
    "risk_level": "low",
    "requires_approval": False,
}
POST: dict[str, Any] = {"tool": "Bash", "params": {}, "result": None, "success": True}
ABSENT = object()


def body(event: Any = "PreToolUse", payload: Any = None, **other: Any) -> dict[str, Any]:
    base = {"event": event, "timestamp": AT, "session_id": "s-1"}
    sent = {**base, "payload": PRE if payload is None else payload, **other}
    return {name: value for name, value in sent.items() if value is not ABSENT}


def refused(value: Any) -> HookInvalid:
    with pytest.raises(HookInvalid) as caught:
        parse_hook_event(value, now=NOW)
    return caught.value


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "field", "rule"),
    [
        (body({}), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body(event_type=5), "event_type", "HOOK_INVALID_EVENT_TYPE"),
        (body(timestamp="2026-02-30T12:00:00Z"), "timestamp", "HOOK_INVALID_TIMESTAMP"),
        (body(timestamp="2026-01-31T11:54:59.999Z"), "timestamp", "HOOK_STALE_TIMESTAMP"),
        (body(timestamp="2026-01-31T12:05:00.001Z"), "timestamp", "HOOK_STALE_TIMESTAMP"),
        (body(session_id="\udc80"), "session_id", "HOOK_INVALID_SESSION_ID"),
    ],
)
def test_a_base_rule_has_its_code(sent: dict[str, Any], field: str, rule: str) -> None:
    invalid = refused(sent)
    [violation] = invalid.violations
    assert (violation.field, violation.rule, violation.code) == (field, rule, "VALIDATION_ERROR")
    assert (invalid.code, invalid.field) == (rule, field)
    assert invalid.constraint == violation.constraint != ""


def test_violations_do_not_repeat_what_was_sent() -> None:
    secret = dict.fromkeys(("requires_approval", "params", "risk_level"), "s3cret")
    invalid = refused(body(payload=PRE | secret))
    assert "s3cret" not in repr(invalid.violations) + str(invalid)


# -- bodies ----------------------------------------------------------------------------------------


LIKELY = st.sampled_from(["PreToolUse", AT, "low"])
NAMES = ("event", "event_type", "timestamp", "session_id", "payload", "event_id", "more")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | LIKELY,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*PRE, *POST, "x"]), inner, max_size=5)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(NAMES), JSON) | JSON)
def test_any_json_is_an_event_or_hook_invalid(value: Any) -> None:
    try:
        parsed = parse_hook_event(value, now=NOW)
    except HookInvalid:
        return
    assert parsed.payload is value["payload"]
