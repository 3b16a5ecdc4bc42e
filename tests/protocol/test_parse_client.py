"""Frames from a client: the rules of the envelope (D3, D4), all violations at once, no secret.

Each rule of each payload is in tests/conformance/test_violations.py.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
from bridge_project.protocol import client_messages as c
from bridge_project.protocol.catalogue import CATALOGUE
from bridge_project.protocol.constraints import describe
from bridge_project.protocol.parse import ClientMessage, ProtocolInvalid, parse_client

AT = "2026-01-31T12:00:00Z"
TOKEN = "bridge_device_abcdefghijklmnopqrstuvwxyz0123456789"
AUTH = {"token": TOKEN, "client_version": "1.0.0", "platform": "ios"}
MESSAGE = {"session_id": "s-1", "content": "hello", "role": "user"}
APPROVAL = {"session_id": "s-1", "tool_call_id": "t-1", "decision": "modified"}
READ = {"session_id": "s-1", "path": "a.py"}
EXAMPLES = {
    one.type: json.loads(one.example).get("payload", {})
    for one in asyncapi.messages()
    if one.from_client
}
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
    for violation in caught.value.violations:
        assert set(violation) == {"field", "constraint", "received"}
    return caught.value


def fields(invalid: ProtocolInvalid) -> list[str]:
    return [violation["field"] for violation in invalid.violations]


# -- the envelope ----------------------------------------------------------------------------------


def test_a_message_is_read() -> None:
    message = parse(frame("message", MESSAGE, version=2))
    assert (message.type, message.id, message.timestamp) == ("message", "m-1", AT)
    assert isinstance(message.payload, c.Message) and message.payload.content == "hello"
    assert message.raw == MESSAGE


@pytest.mark.parametrize("id", [ABSENT, None])
@pytest.mark.parametrize("strict", [True, False])
def test_a_message_without_id_gets_a_fresh_uuid4(id: Any, strict: bool) -> None:
    text = frame("message", MESSAGE, id=id)
    first, second = (parse_client(text, strict_ids=strict).id for _ in range(2))
    assert uuid.UUID(first).version == 4 and first != second


@pytest.mark.parametrize("id", ["a", "auth-001", "x" * 128, "c56a4180-65aa-12ec-a945-5fd21dec0538"])
def test_any_string_is_an_id_but_for_strict_ones(id: str) -> None:
    assert parse(frame("message", MESSAGE, id=id)).id == id
    invalid = refused(frame("message", MESSAGE, id=id), strict_ids=True)
    assert (invalid.violations[0]["field"], invalid.violations[0]["constraint"]) == (
        "id",
        "UUID v4",
    )
    assert invalid.id == id, "still good enough to answer with"


def test_a_uuid4_is_a_strict_id() -> None:
    id = str(uuid.uuid4())
    assert parse_client(frame("message", MESSAGE, id=id), strict_ids=True).id == id


@pytest.mark.parametrize("id", ["", "x" * 129, 5, True, [], {}])
def test_an_unusable_id(id: Any) -> None:
    invalid = refused(frame("message", MESSAGE, id=id))
    assert (fields(invalid), invalid.id, invalid.type) == (["id"], None, "message")


@pytest.mark.parametrize("data", ["", "NaN", "[" * 1_000_000, '{"a":"\\ud800"}', "\ufeff{}"])
def test_text_that_is_no_json(data: str) -> None:
    invalid = refused(data)
    assert invalid.message.startswith("the message is not usable JSON: ")
    assert (invalid.id, invalid.type) == (None, None)


@pytest.mark.parametrize("data", ["null", "[]", "5", '"x"'])
def test_text_that_is_no_object(data: str) -> None:
    assert refused(data).message == "a message must be a JSON object"


@pytest.mark.parametrize("data", [b"", frame("message", MESSAGE).encode()])
def test_binary_frames_are_not_taken(data: bytes) -> None:
    assert refused(data).violations[0]["received"] == f"binary frame of {len(data)} bytes"


@pytest.mark.parametrize("type", ["unheard", "Message", "", "x" * 1000])
def test_an_unknown_type(type: str) -> None:
    invalid = refused(frame(type, {}))
    assert fields(invalid) == ["type"] and len(invalid.message) < 100
    assert (invalid.type, invalid.id) == (type[:128], "m-1")


@pytest.mark.parametrize("type", [ABSENT, None, 5, [], {}])
def test_a_type_that_is_no_string(type: Any) -> None:
    invalid = refused(frame(type, {}))
    assert (fields(invalid), invalid.type) == (["type"], None)


@pytest.mark.parametrize("timestamp", [ABSENT, None, 1769860800, "1769860800", "2026-01-31", []])
@pytest.mark.parametrize("type", ["message", "heartbeat_ping"])
def test_a_timestamp_is_needed(type: str, timestamp: Any) -> None:
    assert fields(refused(frame(type, MESSAGE, timestamp=timestamp))) == ["timestamp"]


@pytest.mark.parametrize("payload", [ABSENT, None, [], "x", 5])
def test_a_payload_is_an_object(payload: Any) -> None:
    assert fields(refused(frame("message", payload))) == ["payload"]


@pytest.mark.parametrize("more", [{}, {"payload": None}, {"id": "h-1", "payload": {"x": 1}}])
def test_a_heartbeat_needs_only_type_and_timestamp(more: dict[str, Any]) -> None:
    message = parse(json.dumps({"type": "heartbeat_ping", "timestamp": AT, **more}))
    assert isinstance(message.payload, c.HeartbeatPing)
    assert fields(refused(frame("heartbeat_ping", []))) == ["payload"]


def test_everything_wrong_is_said_at_once() -> None:
    payload = {"session_id": "", "decision": "modified"}
    invalid = refused(frame("approval_response", payload, id=5, timestamp="x"))
    wrong = ["payload.session_id", "payload.tool_call_id", "payload.modifications"]
    assert fields(invalid) == ["id", "timestamp", *wrong]
    assert invalid.message.endswith("(and 4 more)")
    assert fields(refused("{}")) == ["type", "timestamp", "payload"]


# -- payloads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", EXAMPLES)
def test_unknown_fields_are_kept(type: str) -> None:
    later = {"later_addition": {"x": [None]}, "model_config": 1, "type": "shadow"}
    message = parse(frame(type, EXAMPLES[type] | later))
    assert message.type == message.payload.type == type
    assert message.raw == EXAMPLES[type] | later
    assert message.payload.model_extra == later


@pytest.mark.parametrize("sent", [{}, {"offset": None, "limit": None}])
def test_file_read_starts_at_the_top_and_takes_2000_lines(sent: dict[str, Any]) -> None:
    payload = parse(frame("file_read", READ | sent)).payload
    assert (payload.offset, payload.limit) == (0, 2000)


@pytest.mark.parametrize(
    ("type", "sent", "constraint", "received"),
    [
        ("auth", AUTH | {"platform": "iOS"}, "one of ios, android, web", '"iOS"'),
        (
            "auth",
            AUTH | {"client_version": "1" * 65},
            "at most 64 characters long",
            '"' + "1" * 39 + "…",
        ),
        ("message", MESSAGE | {"role": "assistant"}, "user", '"assistant"'),
        ("message", MESSAGE | {"content": ["a"]}, "string", "array of 1"),
        ("message", MESSAGE | {"session_id": "a\x00"}, "free of NUL", '"a\\u0000"'),
        ("file_read", READ | {"offset": -1}, "at least 0", "-1"),
        ("file_read", READ | {"offset": 2**53}, "at most 9007199254740991", "9007199254740992"),
        ("file_read", READ | {"offset": True}, "integer", "true"),
        ("file_read", {"session_id": "s-1"}, "required", "nothing"),
        ("approval_response", APPROVAL, "given when decision is modified", "nothing"),
        (
            "approval_response",
            APPROVAL | {"modifications": None},
            "given when decision is modified",
            "null",
        ),
        ("replay_request", {"session_id": "s", "since": "x"}, "ISO 8601 date-time", '"x"'),
        # only the first wrong item of an array is named
        ("notification_ack", {"notification_ids": ["a", 5, *[None] * 1000]}, "string", "5"),
    ],
)
def test_what_is_said_of_a_wrong_field(
    type: str, sent: dict[str, Any], constraint: str, received: str
) -> None:
    [violation] = refused(frame(type, sent)).violations
    assert (violation["constraint"], violation["received"]) == (constraint, received)


# -- secrets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        frame("auth", {**AUTH, "platform": TOKEN}),
        frame("auth", {**AUTH, "platform": f"Bearer {TOKEN}"}),
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
        (2.5, "2.5"),
        ("x" * 40, '"' + "x" * 40 + '"'),
        ("x" * 41, '"' + "x" * 39 + "…"),
        (int("9" * 4300), "9" * 40 + "…"),
        ([1, 2], "array of 2"),
        ({"a": "b"}, "object"),
    ],
)
def test_received_is_short(value: Any, words: str) -> None:
    assert describe(value) == words


# -- anything at all -------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
NAMES = sorted({name for payload in EXAMPLES.values() for name in payload} | {"__class__"})
LIKELY = st.sampled_from([AT, "s-1", "user", "modified", "approved"])
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(sorted(CATALOGUE)) | JSON,
        "id": JSON,
        "timestamp": st.just(AT) | JSON,
        "payload": st.dictionaries(st.sampled_from(NAMES), JSON | LIKELY, max_size=8) | JSON,
        "x": JSON,
    },
)


@given((FRAMES | JSON).map(json.dumps) | st.text(max_size=100) | st.binary(max_size=100))
def test_anything_is_a_message_or_protocol_invalid(text: str | bytes) -> None:
    for strict in (True, False):
        try:
            message = parse_client(text, strict_ids=strict)
        except ProtocolInvalid:
            refused(text, strict)  # what it raises is well-formed
        else:
            assert isinstance(message.payload, CATALOGUE[message.type])
            assert 1 <= len(message.id) <= 128
