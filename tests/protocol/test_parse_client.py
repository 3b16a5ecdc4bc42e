"""Frames from a client: the rules of the envelope (D3, D4), all violations at once, no secret.

Each rule of each payload is in tests/conformance/test_violations.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
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


# -- payloads --------------------------------------------------------------------------------------


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
        ("message", MESSAGE | {"session_id": "a\x00"}, "free of NUL", '"a\\u0000"'),
        ("file_read", READ | {"offset": 2**53}, "at most 9007199254740991", "9007199254740992"),
        ("file_read", READ | {"offset": True}, "integer", "true"),
        ("file_read", {"session_id": "s-1"}, "required", "nothing"),
        ("approval_response", APPROVAL, "given when decision is modified", "nothing"),
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
        frame("auth", {**AUTH, "token": [TOKEN]}),
        frame("auth", {**AUTH, "token": 12345678901234567890}),
        frame("auth", f'{{"token": "{TOKEN}"}}'),
        frame("auth", [TOKEN]),
        frame("auth", AUTH, timestamp=TOKEN),
        frame(TOKEN, AUTH),
        f'{{"token": "{TOKEN}"',
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


def test_received_is_short() -> None:
    assert describe("x" * 40) == '"' + "x" * 40 + '"'
    assert describe("x" * 41) == '"' + "x" * 39 + "…"
    assert describe(int("9" * 4300)) == "9" * 40 + "…"


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
