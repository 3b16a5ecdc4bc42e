"""`violations` (spec, WebSocket errors; D3, D38, D51): each client message with each field missing
or of a wrong type: all that is wrong is listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_id, new_session, now

pytestmark = pytest.mark.spec("wscode.PROTO_INVALID_MESSAGE", "error.violations")


class Field(NamedTuple):
    right: Any
    wrong: tuple[Any, ...]
    required: bool = True


NO_TEXT: tuple[Any, ...] = (5, True, [], {}, None)
TEXT = Field("text", NO_TEXT)
SESSION = Field("some-session", (*NO_TEXT, ""))
FLAG = Field(True, (1, "true", None, []))
MOMENT = Field(now(), (*NO_TEXT, "yesterday", "2026-13-01T00:00:00Z"))
FILES = Field(["a"], (5, "a", {}, [5], [None], [["a"]]))
OPTIONAL_TEXT = Field("text", (5, [], {}), False)

MESSAGES: dict[str, dict[str, Field]] = {
    "auth": {
        "token": Field("x" * 43, (5, [], {}, None)),
        "client_version": TEXT,
        "platform": Field("ios", (*NO_TEXT, "windows", "iOS")),
        "device_id": OPTIONAL_TEXT,
    },
    "health_check": {
        "timestamp": MOMENT,
        "client_nonce": TEXT,
        "client_capabilities": Field(["health_v1"], (5, "health_v1", {}, None, [5], [None])),
    },
    "acknowledge_warning": {
        "warning_code": Field("DIRECT_PUBLIC_CONNECTION", NO_TEXT),
        "acknowledged": FLAG,
        "acknowledged_at": MOMENT,
    },
    "session_start": {
        "agent": TEXT,
        "session_id": Field("some-session", (5, [], {}, True, ""), False),
        "working_directory": TEXT,
        "resume": FLAG,
    },
    "session_end": {
        "session_id": SESSION,
        "reason": Field("user_request", (*NO_TEXT, "because", "")),
    },
    "message": {
        "session_id": SESSION,
        "content": TEXT,
        "role": Field("user", (*NO_TEXT, "system", "assistant")),
    },
    "approval_response": {
        "session_id": SESSION,
        "tool_call_id": TEXT,
        "decision": Field("approved", (*NO_TEXT, "pending", "yes")),
        "modifications": Field({"a": 1}, (5, [], True), False),
    },
    "session_interrupt": {"session_id": SESSION},
    "git_status_request": {"session_id": SESSION},
    "git_commit": {
        "session_id": SESSION,
        "message": TEXT,
        "files": Field(["a"], FILES.wrong, False),
    },
    "git_diff": {"session_id": SESSION, "files": Field(["a"], FILES.wrong, False), "cached": FLAG},
    "file_list": {"session_id": SESSION, "path": TEXT},
    "file_read": {
        "session_id": SESSION,
        "path": TEXT,
        "offset": Field(0, ("0", 0.5, True, [], -1), False),
        "limit": Field(1, ("1", 1.5, True, [], 0), False),
    },
    "notification_ack": {"notification_ids": Field(["x"], (5, "x", {}, None, [5], [None]))},
    "replay_request": {
        "session_id": SESSION,
        "after_id": OPTIONAL_TEXT,
        "since": Field(now(), (5, [], "yesterday"), False),
    },
}


@pytest.fixture(scope="module")
def ready(shared: Bridge) -> Iterator[Phone]:
    with shared.phones(1) as (phone,):
        yield phone


@pytest.fixture
def speak(ready: Phone, request: pytest.FixtureRequest) -> Phone:
    """A connection in whose phase the message may come: one for all that is ready, but for auth,
    which needs a fresh one.
    """
    if request.getfixturevalue("type_") != "auth":
        return ready
    device: Phone = request.getfixturevalue("device")
    return device.connect()


def violations(answer: Message) -> dict[str, dict[str, str]]:
    """PROTO_INVALID_MESSAGE, recoverable; field → violation {field, constraint, received}, the
    field without what leads to it.
    """
    listed = assert_refused(answer, "PROTO_INVALID_MESSAGE", True)["violations"]
    assert listed
    for violation in listed:
        assert set(violation) == {"field", "constraint", "received"}, violation
        assert all(isinstance(value, str) and value for value in violation.values()), violation
    return {
        violation["field"].removeprefix("payload.").split(".")[0].split("[")[0]: violation
        for violation in listed
    }


def right(type_: str) -> dict[str, Any]:
    return {name: field.right for name, field in MESSAGES[type_].items()}


@pytest.mark.parametrize("type_", MESSAGES)
def test_missing_fields(speak: Phone, type_: str) -> None:
    """Spec, WebSocket operations: each required field, one by one and all of them."""
    required = {name for name, field in MESSAGES[type_].items() if field.required}
    assert set(violations(speak.request(type_, {}))) == required
    for name in required:
        found = violations(
            speak.request(type_, {key: value for key, value in right(type_).items() if key != name})
        )
        assert set(found) == {name} and found[name]["received"] != json.dumps(
            MESSAGES[type_][name].right
        )


@pytest.mark.parametrize("type_", MESSAGES)
def test_wrong_types(speak: Phone, type_: str) -> None:
    """Spec: each field with each kind of wrong value: that field is named, and no other."""
    for name, field in MESSAGES[type_].items():
        for wrong in field.wrong:
            assert set(violations(speak.request(type_, right(type_) | {name: wrong}))) == {name}, (
                name,
                wrong,
            )


@pytest.mark.parametrize("type_", MESSAGES)
def test_all_at_once(speak: Phone, type_: str) -> None:
    """Spec: violations is an array: everything that is wrong, not only the first."""
    found = violations(
        speak.request(type_, {name: field.wrong[0] for name, field in MESSAGES[type_].items()})
    )
    assert set(found) == set(MESSAGES[type_])


@pytest.mark.parametrize("type_", MESSAGES)
def test_unknown_fields_are_no_violation(speak: Phone, type_: str) -> None:
    """D3: kept and passed on, never an error: what comes back is about something else, or nothing
    is wrong.
    """
    sent = speak.send(
        type_,
        right(type_)
        | {"something_else": {"a": [1, None]}, "session": 5}
        | ({"session_id": new_session()} if "session_id" in MESSAGES[type_] else {}),
    )
    if type_ == "notification_ack":
        speak.ping()
        assert not [message for message in speak.messages if message.get("id") == sent]
        return
    answer = speak.until(lambda message: message.get("id") == sent, "an answer")
    assert answer["type"] != "error" or answer["payload"]["code"] != "PROTO_INVALID_MESSAGE", answer


FROM_THE_BRIDGE = [
    "connection_ack",
    "connection_error",
    "health_status",
    "acknowledgment_accepted",
    "heartbeat_pong",
    "session_ready",
    "session_started",
    "stream_start",
    "stream_chunk",
    "stream_end",
    "tool_call",
    "approval_required",
    "approval_recorded",
    "tool_result",
    "tool_error",
    "agent_event",
    "git_status_response",
    "git_diff_response",
    "file_list_response",
    "file_read_response",
    "notification",
    "error",
    "replay_buffer",
]


def test_what_only_the_bridge_sends(phone: Phone) -> None:
    """Spec, direction; D3: an unknown type is PROTO_INVALID_MESSAGE, the connection stays open."""
    for type_ in [*FROM_THE_BRIDGE, "git_push", "AUTH", "Message", ""]:
        answer = phone.request(type_, {"session_id": "x"})
        assert "type" in violations(answer), answer
    phone.ping()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": 5}, "id"),
        ({"id": ""}, "id"),
        ({"timestamp": "now"}, "timestamp"),
        ({"timestamp": 5}, "timestamp"),
        ({"payload": []}, "payload"),
        ({"payload": None}, "payload"),
    ],
    ids=str,
)
@pytest.mark.spec("envelope.type", "envelope.id", "envelope.timestamp", "envelope.payload")
def test_the_envelope(phone: Phone, change: dict[str, Any], field: str) -> None:
    """Spec: required type, id, timestamp, payload; D4 for the id."""
    phone.send_raw(
        json.dumps(
            {
                "type": "git_status_request",
                "id": new_id(),
                "timestamp": now(),
                "payload": {"session_id": "x"},
            }
            | change
        )
    )
    assert set(violations(phone.expect("error"))) == {field}


def test_several_faults_of_an_envelope(phone: Phone) -> None:
    """Spec: all of them; also those of the envelope are listed together."""
    phone.send_raw(
        json.dumps({"type": "git_status_request", "id": [], "timestamp": "yesterday", "payload": 5})
    )
    assert set(violations(phone.expect("error"))) == {"id", "timestamp", "payload"}


def test_secrets_are_not_repeated(device: Phone) -> None:
    """D15: what is wrong with an auth is said without its token, wherever that stands."""
    device.connect()
    secret = device.token
    for body in (
        {"token": [secret], "client_version": 5, "platform": secret},
        {"token": secret, "client_version": 5, "platform": "ios", "device_id": {"a": secret}},
    ):
        device.request("auth", body)
    assert secret not in json.dumps(device.messages)
    assert device.auth()["type"] == "connection_ack"
