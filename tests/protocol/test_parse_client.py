"""Frames from a client: every rule of the envelope (D3, D4) and of each payload, all violations at
once, secrets never repeated.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge_project.kernel import limits
from bridge_project.protocol import client_messages as c
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.constraints import describe
from bridge_project.protocol.parse import ClientMessage, ProtocolInvalid, parse_client

AT = "2026-01-31T12:00:00Z"
TOKEN = "bridge_device_abcdefghijklmnopqrstuvwxyz0123456789"
AUTH = {"token": TOKEN, "client_version": "1.0.0", "platform": "ios"}
MESSAGE = {"session_id": "s-1", "content": "hello", "role": "user"}
APPROVAL = {"session_id": "s-1", "tool_call_id": "t-1", "decision": "approved"}
READ = {"session_id": "s-1", "path": "a.py"}
START = {"agent": "demo", "working_directory": "/w", "resume": False}
ABSENT = object()


def frame(type: Any, payload: Any = ABSENT, **other: Any) -> str:
    sent = {"type": type, "id": "m-1", "timestamp": AT, "payload": payload, **other}
    return json.dumps({name: value for name, value in sent.items() if value is not ABSENT})


def parse(text: str | bytes) -> ClientMessage:
    return parse_client(text, strict_ids=False)


def refused(text: str | bytes, strict_ids: bool = False) -> ProtocolInvalid:
    with pytest.raises(ProtocolInvalid) as caught:
        parse_client(text, strict_ids=strict_ids)
    assert caught.value.violations
    assert all(
        set(violation) == {"field", "constraint", "received"}
        for violation in caught.value.violations
    )
    return caught.value


def fields(invalid: ProtocolInvalid) -> list[str]:
    return [violation["field"] for violation in invalid.violations]


# -- the envelope ----------------------------------------------------------------------------------


def test_a_message_is_read() -> None:
    message = parse(frame("message", MESSAGE))
    assert (message.type, message.id, message.timestamp) == ("message", "m-1", AT)
    assert isinstance(message.payload, c.Message)
    assert (message.payload.session_id, message.payload.content) == ("s-1", "hello")
    assert message.raw == MESSAGE


@pytest.mark.parametrize("id", [ABSENT, None])
@pytest.mark.parametrize("strict", [True, False])
def test_a_message_without_id_gets_a_fresh_uuid4(id: Any, strict: bool) -> None:
    first, second = (
        parse_client(frame("message", MESSAGE, id=id), strict_ids=strict) for _ in range(2)
    )
    assert uuid.UUID(first.id).version == 4
    assert first.id != second.id


@pytest.mark.parametrize("id", ["a", "auth-001", "x" * 128, "c56a4180-65aa-12ec-a945-5fd21dec0538"])
def test_any_string_is_an_id_but_for_strict_ones(id: str) -> None:
    assert parse(frame("message", MESSAGE, id=id)).id == id
    invalid = refused(frame("message", MESSAGE, id=id), strict_ids=True)
    assert invalid.violations[0]["field"] == "id"
    assert invalid.violations[0]["constraint"] == "UUID v4"
    assert invalid.id == id, "still good enough to answer with"


def test_a_uuid4_is_a_strict_id() -> None:
    id = str(uuid.uuid4())
    assert parse_client(frame("message", MESSAGE, id=id), strict_ids=True).id == id


@pytest.mark.parametrize("id", ["", "x" * 129, 5, 1.5, True, [], {}])
def test_an_unusable_id(id: Any) -> None:
    invalid = refused(frame("message", MESSAGE, id=id))
    assert fields(invalid) == ["id"]
    assert invalid.id is None
    assert invalid.type == "message"


@pytest.mark.parametrize(
    "data", ["", "nope", "{", "NaN", "[" * 1_000_000, '{"a":1e999}', '{"a":"\\ud800"}', "\ufeff{}"]
)
def test_text_that_is_no_json(data: str) -> None:
    invalid = refused(data)
    assert invalid.message.startswith("the message is not usable JSON: ")
    assert (invalid.id, invalid.type) == (None, None)


@pytest.mark.parametrize("data", ["null", "[]", "5", '"x"', "true"])
def test_text_that_is_no_object(data: str) -> None:
    assert refused(data).message == "a message must be a JSON object"


@pytest.mark.parametrize("data", [b"", b"\x00\xff", frame("message", MESSAGE).encode()])
def test_binary_frames_are_not_taken(data: bytes) -> None:
    invalid = refused(data)
    assert "binary" in invalid.message
    assert invalid.violations[0]["received"] == f"binary frame of {len(data)} bytes"


@pytest.mark.parametrize("type", ["unheard", "Message", "", "message ", "x" * 1000])
def test_an_unknown_type(type: str) -> None:
    invalid = refused(frame(type, {}))
    assert fields(invalid) == ["type"]
    assert invalid.message.startswith("unknown message type")
    assert len(invalid.message) < 100
    assert invalid.type == type[:128]
    assert invalid.id == "m-1"


@pytest.mark.parametrize("type", [ABSENT, None, 5, [], {}, ["message"]])
def test_a_type_that_is_no_string(type: Any) -> None:
    invalid = refused(frame(type, {}))
    assert fields(invalid) == ["type"]
    assert invalid.type is None


@pytest.mark.parametrize("type", [row.type for row in CATALOGUE.values() if not row.from_client])
def test_types_that_only_the_server_sends(type: str) -> None:
    assert refused(frame(type, {})).message == f"{type} is sent by the server only"


@pytest.mark.parametrize(
    "timestamp", [ABSENT, None, 1769860800, "1769860800", "2026-01-31", "", [], {}, True]
)
@pytest.mark.parametrize("type", ["message", "heartbeat_ping"])
def test_a_timestamp_is_needed(type: str, timestamp: Any) -> None:
    assert fields(refused(frame(type, MESSAGE, timestamp=timestamp))) == ["timestamp"]


@pytest.mark.parametrize("payload", [ABSENT, None, [], "x", 5, True])
def test_a_payload_is_an_object(payload: Any) -> None:
    assert fields(refused(frame("message", payload))) == ["payload"]


def test_unknown_top_level_fields_are_no_error() -> None:
    parse(frame("message", MESSAGE, version=2))


@pytest.mark.parametrize(
    "more",
    [{}, {"payload": {}}, {"payload": None}, {"id": "h-1"}, {"id": "h-1", "payload": {"x": 1}}],
)
def test_a_heartbeat_needs_only_type_and_timestamp(more: dict[str, Any]) -> None:
    message = parse(json.dumps({"type": "heartbeat_ping", "timestamp": AT, **more}))
    assert isinstance(message.payload, c.HeartbeatPing)


def test_a_heartbeat_with_a_payload_that_is_no_object() -> None:
    assert fields(refused(frame("heartbeat_ping", []))) == ["payload"]


def test_everything_wrong_is_said_at_once() -> None:
    invalid = refused(
        json.dumps(
            {
                "type": "approval_response",
                "id": 5,
                "timestamp": "x",
                "payload": {"session_id": "", "decision": "modified"},
            }
        )
    )
    assert fields(invalid) == [
        "id",
        "timestamp",
        "payload.session_id",
        "payload.tool_call_id",
        "payload.modifications",
    ]
    assert invalid.message.endswith("(and 4 more)")
    assert fields(refused("{}")) == ["type", "timestamp", "payload"]
    assert fields(refused(json.dumps({"type": "unheard", "id": [], "payload": 1}))) == [
        "type",
        "id",
        "timestamp",
        "payload",
    ]


# -- payloads --------------------------------------------------------------------------------------

MINIMAL: dict[str, dict[str, Any]] = {
    "auth": AUTH,
    "health_check": {"timestamp": AT, "client_nonce": "n", "client_capabilities": []},
    "acknowledge_warning": {
        "warning_code": "DIRECT_PUBLIC_CONNECTION",
        "acknowledged": True,
        "acknowledged_at": AT,
    },
    "heartbeat_ping": {},
    "session_start": START,
    "session_end": {"session_id": "s-1", "reason": "user_request"},
    "message": MESSAGE,
    "approval_response": APPROVAL,
    "session_interrupt": {"session_id": "s-1"},
    "git_status_request": {"session_id": "s-1"},
    "git_commit": {"session_id": "s-1", "message": "Add a test"},
    "git_diff": {"session_id": "s-1", "cached": False},
    "file_list": {"session_id": "s-1", "path": "."},
    "file_read": READ,
    "notification_ack": {"notification_ids": []},
    "replay_request": {"session_id": "s-1"},
}


def test_every_client_message_is_covered_here() -> None:
    assert set(MINIMAL) == {row.type for row in CATALOGUE.values() if row.from_client}


@pytest.mark.parametrize("type", MINIMAL)
def test_the_required_fields_are_enough_and_unknown_ones_are_kept(type: str) -> None:
    assert type in CATALOGUE
    sent = {**MINIMAL[type], "later_addition": {"x": [None]}, "model_config": 1, "type": "shadow"}
    message = parse(frame(type, sent))
    assert message.type == type
    assert message.payload.type == type
    assert message.raw == sent
    assert message.payload.model_extra == {
        "later_addition": {"x": [None]},
        "model_config": 1,
        "type": "shadow",
    }


@pytest.mark.parametrize(
    ("type", "name"), [(type, name) for type, payload in MINIMAL.items() for name in payload]
)
def test_each_required_field_is_required_and_not_null(type: str, name: str) -> None:
    payload = {key: value for key, value in MINIMAL[type].items() if key != name}
    invalid = refused(frame(type, payload))
    assert invalid.violations == [
        {"field": f"payload.{name}", "constraint": "required", "received": "nothing"}
    ]
    assert invalid.message == f"payload.{name} is required"
    assert fields(refused(frame(type, {**payload, name: None}))) == [f"payload.{name}"]


@pytest.mark.parametrize(
    ("type", "name", "values"),
    [
        ("auth", "device_id", [None, "A1B2", "x" * limits.DEVICE_ID_MAX_CHARS]),
        ("session_start", "session_id", [None, "s-1"]),
        ("approval_response", "modifications", [None, {}, {"command": "ls"}]),
        ("git_commit", "files", [None, [], ["a.py"]]),
        ("git_diff", "files", [None, [], ["a.py"]]),
        ("file_read", "offset", [None, 0, 2**53 - 1]),
        ("file_read", "limit", [None, 1, 2000]),
        ("replay_request", "after_id", [None, "m-1"]),
        ("replay_request", "since", [None, AT]),
    ],
)
def test_optional_fields(type: str, name: str, values: list[Any]) -> None:
    for value in values:
        message = parse(frame(type, {**MINIMAL[type], name: value}))
        if value is not None:
            assert getattr(message.payload, name) == value


@pytest.mark.parametrize("sent", [{}, {"offset": None, "limit": None}])
def test_file_read_starts_at_the_top_and_takes_2000_lines(sent: dict[str, Any]) -> None:
    payload = parse(frame("file_read", {**READ, **sent})).payload
    assert isinstance(payload, c.FileRead)
    assert (payload.offset, payload.limit) == (0, 2000)


@pytest.mark.parametrize(
    ("type", "name", "value", "constraint", "received"),
    [
        ("auth", "platform", "blackberry", "one of ios, android, web", '"blackberry"'),
        ("auth", "platform", "iOS", "one of ios, android, web", '"iOS"'),
        ("auth", "client_version", 1.0, "string", "1.0"),
        ("auth", "client_version", "1" * 65, "at most 64 characters long", '"' + "1" * 39 + "…"),
        ("auth", "device_id", "x" * 257, "at most 256 characters long", '"' + "x" * 39 + "…"),
        ("health_check", "timestamp", "1769860800", "ISO 8601 date-time", '"1769860800"'),
        ("health_check", "client_capabilities", "health_v1", "array", '"health_v1"'),
        ("health_check", "client_capabilities", {"a": 1}, "array", "object"),
        ("acknowledge_warning", "acknowledged", "true", "boolean", '"true"'),
        ("acknowledge_warning", "acknowledged", 1, "boolean", "1"),
        ("acknowledge_warning", "acknowledged_at", 5, "string", "5"),
        ("session_start", "resume", "false", "boolean", '"false"'),
        ("session_start", "session_id", " ", "non-empty", '" "'),
        ("session_start", "session_id", 5, "string", "5"),
        (
            "session_end",
            "reason",
            "bored",
            "one of user_request, timeout, error, completed",
            '"bored"',
        ),
        ("message", "role", "assistant", "user", '"assistant"'),
        ("message", "content", ["a"], "string", "array of 1"),
        ("message", "session_id", "a\x00", "free of NUL", '"a\\u0000"'),
        ("message", "session_id", "x" * 257, "at most 256 characters long", '"' + "x" * 39 + "…"),
        (
            "approval_response",
            "decision",
            "pending",
            "one of approved, rejected, modified",
            '"pending"',
        ),
        ("approval_response", "decision", "modified", None, None),
        ("approval_response", "modifications", "ls", "object", '"ls"'),
        ("git_commit", "files", "a.py", "array", '"a.py"'),
        ("git_diff", "cached", 0, "boolean", "0"),
        ("file_read", "offset", -1, "at least 0", "-1"),
        ("file_read", "offset", 2**53, "at most 9007199254740991", "9007199254740992"),
        ("file_read", "offset", 1.0, "integer", "1.0"),
        ("file_read", "offset", True, "integer", "true"),
        ("file_read", "limit", 0, "at least 1", "0"),
        ("file_read", "limit", "10", "integer", '"10"'),
        ("replay_request", "since", "yesterday", "ISO 8601 date-time", '"yesterday"'),
        ("replay_request", "after_id", 7, "string", "7"),
    ],
)
def test_each_payload_rule(
    type: str, name: str, value: Any, constraint: str | None, received: str | None
) -> None:
    invalid = refused(frame(type, {**MINIMAL[type], name: value}))
    if constraint is None:  # the rule is about another field
        assert fields(invalid) == ["payload.modifications"]
    else:
        assert invalid.violations == [
            {"field": f"payload.{name}", "constraint": constraint, "received": received}
        ]


@pytest.mark.parametrize("sent", [{}, {"modifications": None}])
def test_modified_needs_modifications(sent: dict[str, Any]) -> None:
    invalid = refused(frame("approval_response", {**APPROVAL, "decision": "modified", **sent}))
    received = "null" if sent else "nothing"
    assert invalid.violations == [
        {
            "field": "payload.modifications",
            "constraint": "given when decision is modified",
            "received": received,
        }
    ]
    parse(
        frame(
            "approval_response",
            {**APPROVAL, "decision": "modified", "modifications": {"command": "ls"}},
        )
    )


def test_a_wrong_item_of_an_array_is_named_and_only_the_first() -> None:
    invalid = refused(frame("notification_ack", {"notification_ids": ["a", 5, *[None] * 1000]}))
    assert invalid.violations == [
        {"field": "payload.notification_ids.1", "constraint": "string", "received": "5"}
    ]


# -- secrets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        frame("auth", {**AUTH, "platform": TOKEN}),
        frame("auth", {**AUTH, "platform": f"Bearer {TOKEN}"}),
        frame("auth", {**AUTH, "client_version": 5}),
        frame("auth", {**AUTH, "token": [TOKEN]}),
        frame("auth", {**AUTH, "token": {"value": TOKEN}}),
        frame("auth", {**AUTH, "token": 12345678901234567890}),
        frame("auth", f'{{"token": "{TOKEN}"}}'),
        frame("auth", [TOKEN]),
        frame("auth", ABSENT, token=TOKEN),
        frame("auth", AUTH, timestamp=TOKEN),
        frame("auth", AUTH, id=TOKEN * 3),
        frame(TOKEN, AUTH),
        f'{{"token": "{TOKEN}"',
        json.dumps(TOKEN),
        frame("message", {**MESSAGE, "role": TOKEN, "token": TOKEN}),
    ],
)
def test_a_token_is_never_repeated(text: str) -> None:
    invalid = refused(text)
    said = json.dumps(invalid.violations) + invalid.message
    assert TOKEN[:20] not in said
    assert "1234567890" not in said


def test_a_token_is_not_in_the_printed_message() -> None:
    assert TOKEN not in repr(parse(frame("auth", AUTH)).payload)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (2.5, "2.5"),
        ("a", '"a"'),
        ("x" * 40, '"' + "x" * 40 + '"'),
        ("x" * 41, '"' + "x" * 39 + "…"),
        (int("9" * 4300), "9" * 40 + "…"),
        ("ü", '"\\u00fc"'),
        ([1, 2], "array of 2"),
        ({"a": "b"}, "object"),
    ],
)
def test_received_is_short(value: Any, words: str) -> None:
    assert describe(value) == words


# -- anything at all -------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=4
        )
    ),
    max_leaves=10,
)
NAMES = sorted(
    {name for payload in MINIMAL.values() for name in payload}
    | {"modifications", "files", "offset", "limit", "since", "after_id", "device_id", "__class__"}
)
PAYLOADS = st.dictionaries(
    st.sampled_from(NAMES),
    JSON | st.sampled_from([AT, "s-1", "user", "modified", "approved"]),
    max_size=8,
)
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(sorted(CATALOGUE)) | JSON,
        "id": JSON,
        "timestamp": st.just(AT) | JSON,
        "payload": PAYLOADS | JSON,
        "x": JSON,
    },
)


def is_message_or_protocol_invalid(text: str | bytes, strict: bool) -> None:
    try:
        message = parse_client(text, strict_ids=strict)
    except ProtocolInvalid:
        refused(text, strict)  # what it raises is well-formed
        return
    assert isinstance(message.payload, CATALOGUE[message.type])
    assert 1 <= len(message.id) <= 128


@settings(max_examples=300)
@given(FRAMES | JSON, st.booleans())
def test_any_json_is_a_message_or_protocol_invalid(value: Any, strict: bool) -> None:
    is_message_or_protocol_invalid(json.dumps(value), strict)


@given(st.text(max_size=100) | st.binary(max_size=100))
def test_any_frame_is_a_message_or_protocol_invalid(value: str | bytes) -> None:
    is_message_or_protocol_invalid(value, False)
