"""Every rule of the spec's "Hook validation codes" table and of D1, D3, D5, D8, D31, D32."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.kernel import limits
from bridge_project.protocol.hooks import (
    HookEvent,
    HookInvalid,
    parse_hook_batch,
    parse_hook_body,
    parse_hook_event,
)
from bridge_project.protocol.types import HOOK_EVENTS

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
    sent = {
        "event": event,
        "timestamp": AT,
        "session_id": "s-1",
        "payload": PRE if payload is None else payload,
        **other,
    }
    return {name: value for name, value in sent.items() if value is not ABSENT}


def refused(value: Any) -> HookInvalid:
    with pytest.raises(HookInvalid) as caught:
        parse_hook_event(value, now=NOW)
    return caught.value


def without(payload: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key != name}


# -- what is accepted ------------------------------------------------------------------------------


@pytest.mark.parametrize("event", HOOK_EVENTS)
def test_every_event_is_taken_and_kept_as_sent(event: str) -> None:
    smallest: dict[str, dict[str, Any]] = {
        "SessionStart": {"working_directory": "/w"},
        "PreToolUse": PRE,
        "PostToolUse": POST,
    }
    payload = smallest.get(event, {})
    parsed = parse_hook_event(body(event, payload), now=NOW)
    assert parsed == HookEvent(event=event, timestamp=AT, session_id="s-1", payload=payload)


@pytest.mark.parametrize(
    "event",
    ["SessionEnd", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact", "Notification"],
)
def test_six_events_need_only_an_object(event: str) -> None:
    odd = {"prompt": 5, "reason": ["x"], "duration_seconds": "long", "level": None}
    assert parse_hook_event(body(event, odd), now=NOW).payload == odd


def test_unknown_fields_are_kept() -> None:
    parsed = parse_hook_event(
        body(
            payload={**PRE, "tool_use_id": "t", "deep": {"x": [1, None]}},
            occurred_at="then",
            cwd=None,
        ),
        now=NOW,
    )
    assert parsed.payload["tool_use_id"] == "t"
    assert parsed.payload["deep"] == {"x": [1, None]}
    assert parsed.extra == {"occurred_at": "then", "cwd": None}


def test_the_outbound_payload_has_both_names_and_the_extras() -> None:
    parsed = parse_hook_event(body(ABSENT, event_type="PreToolUse", occurred_at="then"), now=NOW)
    assert parsed.outbound("e-1") == {
        "event": "PreToolUse",
        "event_type": "PreToolUse",
        "event_id": "e-1",
        "session_id": "s-1",
        "timestamp": AT,
        "payload": PRE,
        "occurred_at": "then",
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("C56A4180-65AA-42EC-A945-5FD21DEC0538", "c56a4180-65aa-42ec-a945-5fd21dec0538"),
        ("c56a4180-65aa-12ec-a945-5fd21dec0538", "c56a4180-65aa-12ec-a945-5fd21dec0538"),
        ("evt_1", None),
        ("", None),
        (7, None),
        (["c56a4180-65aa-42ec-a945-5fd21dec0538"], None),
        (None, None),
    ],
)
def test_an_event_id_counts_only_when_it_is_a_uuid(given: Any, kept: str | None) -> None:
    parsed = parse_hook_event(body(event_id=given), now=NOW)
    assert parsed.event_id == kept
    assert parsed.extra == {}


@pytest.mark.parametrize("alias", ["PreToolUse", None])
def test_event_and_an_equal_event_type_agree(alias: str | None) -> None:
    assert parse_hook_event(body(event_type=alias), now=NOW).event == "PreToolUse"


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_five_minutes_either_way_are_fresh(seconds: int) -> None:
    parse_hook_event(body(timestamp=(NOW + timedelta(seconds=seconds)).isoformat()), now=NOW)


@pytest.mark.parametrize("optional", ["initial_prompt", "environment"])
def test_optional_fields_may_be_null(optional: str) -> None:
    parse_hook_event(body("SessionStart", {"working_directory": "/w", optional: None}), now=NOW)


@pytest.mark.parametrize("result", [None, False, 0, "", "text", [], {}])
def test_a_result_may_be_anything(result: Any) -> None:
    parse_hook_event(body("PostToolUse", {**POST, "result": result}), now=NOW)


@pytest.mark.parametrize("number", [0, 12, 12.5, None])
def test_execution_time_is_a_number(number: float | None) -> None:
    parse_hook_event(body("PostToolUse", {**POST, "execution_time_ms": number}), now=NOW)


def test_nul_inside_a_payload_is_kept() -> None:
    parsed = parse_hook_body(json.dumps(body(payload={**PRE, "tool": "a\x00b"})).encode(), now=NOW)
    assert parsed.payload["tool"] == "a\x00b"


# -- the base fields -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "field", "rule"),
    [
        (body(ABSENT), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body(None), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body("Unheard"), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body("pretooluse"), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body(5), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body(["PreToolUse"]), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body({}), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body(ABSENT, event_type="Unheard"), "event", "HOOK_INVALID_EVENT_TYPE"),
        (body(event_type="Stop"), "event_type", "HOOK_INVALID_EVENT_TYPE"),
        (body(event_type=5), "event_type", "HOOK_INVALID_EVENT_TYPE"),
        (body(timestamp=ABSENT), "timestamp", "HOOK_INVALID_TIMESTAMP"),
        (body(timestamp=None), "timestamp", "HOOK_INVALID_TIMESTAMP"),
        (body(timestamp=1769860800), "timestamp", "HOOK_INVALID_TIMESTAMP"),
        (body(timestamp="1769860800"), "timestamp", "HOOK_INVALID_TIMESTAMP"),
        (body(timestamp="2026-01-31"), "timestamp", "HOOK_INVALID_TIMESTAMP"),
        (body(timestamp="2026-02-30T12:00:00Z"), "timestamp", "HOOK_INVALID_TIMESTAMP"),
        (body(timestamp="2026-01-31T11:54:59.999Z"), "timestamp", "HOOK_STALE_TIMESTAMP"),
        (body(timestamp="2026-01-31T12:05:00.001Z"), "timestamp", "HOOK_STALE_TIMESTAMP"),
        (body(timestamp="0001-01-01T00:00:00Z"), "timestamp", "HOOK_STALE_TIMESTAMP"),
        (body(timestamp="9999-12-31T23:59:59Z"), "timestamp", "HOOK_STALE_TIMESTAMP"),
        (body(session_id=ABSENT), "session_id", "HOOK_INVALID_SESSION_ID"),
        (body(session_id=None), "session_id", "HOOK_INVALID_SESSION_ID"),
        (body(session_id=7), "session_id", "HOOK_INVALID_SESSION_ID"),
        (body(session_id=""), "session_id", "HOOK_INVALID_SESSION_ID"),
        (body(session_id=" \t"), "session_id", "HOOK_INVALID_SESSION_ID"),
        (body(session_id="a\x00"), "session_id", "HOOK_INVALID_SESSION_ID"),
        (
            body(session_id="x" * (limits.SESSION_ID_MAX_CHARS + 1)),
            "session_id",
            "HOOK_INVALID_SESSION_ID",
        ),
        (body(session_id="\udc80"), "session_id", "HOOK_INVALID_SESSION_ID"),
        (body(payload=ABSENT), "payload", "HOOK_INVALID_PAYLOAD"),
        ({**body(), "payload": None}, "payload", "HOOK_INVALID_PAYLOAD"),
        (body("Stop", payload=[]), "payload", "HOOK_INVALID_PAYLOAD"),
        (body("Stop", payload="{}"), "payload", "HOOK_INVALID_PAYLOAD"),
    ],
)
def test_each_base_rule_has_its_code(sent: dict[str, Any], field: str, rule: str) -> None:
    invalid = refused(sent)
    assert [(v.field, v.rule, v.code) for v in invalid.violations] == [
        (field, rule, "VALIDATION_ERROR")
    ]
    assert (invalid.code, invalid.field) == (rule, field)
    assert invalid.constraint == invalid.violations[0].constraint != ""
    assert invalid.violations[0].message.startswith(("event", field))


def test_all_base_violations_come_at_once_in_the_order_of_the_table() -> None:
    invalid = refused(
        {"event": "Unheard", "payload": 5, "session_id": "", "timestamp": "2020-01-01T00:00:00Z"}
    )
    assert [v.rule for v in invalid.violations] == [
        "HOOK_INVALID_EVENT_TYPE",
        "HOOK_STALE_TIMESTAMP",
        "HOOK_INVALID_SESSION_ID",
        "HOOK_INVALID_PAYLOAD",
    ]
    assert invalid.code == "HOOK_INVALID_EVENT_TYPE"
    assert refused({}).code == "HOOK_INVALID_EVENT_TYPE"
    assert [v.field for v in refused({}).violations] == [
        "event",
        "timestamp",
        "session_id",
        "payload",
    ]


def test_the_code_is_that_of_the_first_rule_that_failed() -> None:
    assert (
        refused(body(timestamp="2020-01-01T00:00:00Z", session_id="", payload=ABSENT)).code
        == "HOOK_STALE_TIMESTAMP"
    )
    assert refused(body(session_id="", payload=ABSENT)).code == "HOOK_INVALID_SESSION_ID"


def test_the_payload_is_not_looked_at_while_the_base_is_wrong() -> None:
    assert [v.field for v in refused(body(session_id="", payload={})).violations] == ["session_id"]


# -- the payload's fields --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "payload", "field", "constraint"),
    [
        ("SessionStart", {}, "working_directory", "required"),
        ("SessionStart", {"working_directory": None}, "working_directory", "string"),
        ("SessionStart", {"working_directory": 5}, "working_directory", "string"),
        (
            "SessionStart",
            {"working_directory": "/w", "initial_prompt": 5},
            "initial_prompt",
            "string",
        ),
        ("SessionStart", {"working_directory": "/w", "environment": []}, "environment", "object"),
        *(("PreToolUse", without(PRE, name), name, "required") for name in PRE),
        ("PreToolUse", {**PRE, "tool": None}, "tool", "string"),
        ("PreToolUse", {**PRE, "params": "ls"}, "params", "object"),
        ("PreToolUse", {**PRE, "params": []}, "params", "object"),
        (
            "PreToolUse",
            {**PRE, "risk_level": "HIGH"},
            "risk_level",
            "one of low, medium, high, critical",
        ),
        (
            "PreToolUse",
            {**PRE, "risk_level": 1},
            "risk_level",
            "one of low, medium, high, critical",
        ),
        ("PreToolUse", {**PRE, "requires_approval": "true"}, "requires_approval", "boolean"),
        ("PreToolUse", {**PRE, "requires_approval": 1}, "requires_approval", "boolean"),
        ("PreToolUse", {**PRE, "requires_approval": None}, "requires_approval", "boolean"),
        *(("PostToolUse", without(POST, name), name, "required") for name in POST),
        ("PostToolUse", {**POST, "success": "false"}, "success", "boolean"),
        ("PostToolUse", {**POST, "success": 0}, "success", "boolean"),
        ("PostToolUse", {**POST, "params": None}, "params", "object"),
        ("PostToolUse", {**POST, "execution_time_ms": True}, "execution_time_ms", "number"),
        ("PostToolUse", {**POST, "execution_time_ms": "12"}, "execution_time_ms", "number"),
    ],
)
def test_each_payload_rule(
    event: str, payload: dict[str, Any], field: str, constraint: str
) -> None:
    invalid = refused(body(event, payload))
    assert [(v.field, v.constraint, v.code, v.rule) for v in invalid.violations] == [
        (f"payload.{field}", constraint, "PAYLOAD_VALIDATION_ERROR", "HOOK_INVALID_PAYLOAD")
    ]
    assert invalid.code == "HOOK_INVALID_PAYLOAD"
    assert invalid.violations[0].message.startswith(f"payload.{field} ")


def test_all_payload_violations_come_at_once() -> None:
    invalid = refused(body(payload={"tool": 5, "requires_approval": "yes"}))
    assert [v.field for v in invalid.violations] == [
        "payload.tool",
        "payload.params",
        "payload.risk_level",
        "payload.requires_approval",
    ]


def test_violations_do_not_repeat_what_was_sent() -> None:
    invalid = refused(
        body(
            payload={
                **PRE,
                "requires_approval": "s3cret",
                "params": "s3cret",
                "risk_level": "s3cret",
            }
        )
    )
    assert "s3cret" not in repr(invalid.violations) + str(invalid)


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nope",
        b"\xff",
        b"NaN",
        b'{"a": Infinity}',
        b'{"a": 1e400}',
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[" * 1_000_000,
        b'"\\ud800"',
    ],
)
def test_a_body_that_is_no_json(data: bytes) -> None:
    for parse in (lambda: parse_hook_body(data, now=NOW), lambda: parse_hook_batch(data, NOW)):
        with pytest.raises(HookInvalid) as caught:
            parse()
        assert caught.value.code == "HOOK_INVALID_PAYLOAD"
        assert [(v.field, v.code, v.rule, v.constraint) for v in caught.value.violations] == [
            ("body", "VALIDATION_ERROR", "HOOK_INVALID_PAYLOAD", "JSON")
        ]


@pytest.mark.parametrize("data", [b"null", b"[]", b'"x"', b"5", b"true"])
def test_a_body_that_is_no_object(data: bytes) -> None:
    for parse in (lambda: parse_hook_body(data, now=NOW), lambda: parse_hook_batch(data, NOW)):
        with pytest.raises(HookInvalid) as caught:
            parse()
        assert (caught.value.code, caught.value.field, caught.value.constraint) == (
            "HOOK_INVALID_PAYLOAD",
            "body",
            "object",
        )


def batch(events: Any) -> bytes:
    return json.dumps({"events": events}).encode()


def test_a_batch_is_validated_one_by_one() -> None:
    found = parse_hook_batch(
        batch([body(), body("Unheard"), 5, body(payload={}), body("Stop", {})]), NOW
    )
    assert [item.event if isinstance(item, HookEvent) else item.code for item in found] == [
        "PreToolUse",
        "HOOK_INVALID_EVENT_TYPE",
        "HOOK_INVALID_PAYLOAD",
        "HOOK_INVALID_PAYLOAD",
        "Stop",
    ]
    assert isinstance(found[3], HookInvalid)
    assert len(found[3].violations) == 4


def test_an_empty_batch_and_a_full_one() -> None:
    assert parse_hook_batch(batch([]), NOW) == []
    assert len(parse_hook_batch(batch([body()] * limits.BATCH_MAX_EVENTS), now=NOW)) == 500


@pytest.mark.parametrize(
    ("data", "constraint"),
    [
        (b"{}", "array"),
        (batch(None), "array"),
        (batch({}), "array"),
        (batch("x"), "array"),
        (json.dumps(body()).encode(), "array"),
        (batch([{}] * (limits.BATCH_MAX_EVENTS + 1)), "at most 500 events"),
    ],
)
def test_a_batch_that_is_none_is_refused_as_a_whole(data: bytes, constraint: str) -> None:
    with pytest.raises(HookInvalid) as caught:
        parse_hook_batch(data, NOW)
    assert (caught.value.code, caught.value.field, caught.value.constraint) == (
        "HOOK_INVALID_PAYLOAD",
        "events",
        constraint,
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["PreToolUse", AT, "low"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*PRE, *POST, "x"]), inner, max_size=5)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["event", "event_type", "timestamp", "session_id", "payload", "event_id", "more"]
        ),
        JSON,
    )
    | JSON
)
def test_any_json_is_an_event_or_hook_invalid(value: Any) -> None:
    try:
        parsed = parse_hook_event(value, now=NOW)
    except HookInvalid:
        return
    assert parsed.payload is value["payload"]
