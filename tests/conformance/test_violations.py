"""`violations` (WebSocket errors; D3): each client message with each field missing or wrong."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bridge_project.docs import asyncapi
from bridge_project.protocol.catalogue import CATALOGUE
from tests.conformance.approvals import assert_refused
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_id, new_session, now

pytestmark = pytest.mark.spec("wscode.PROTO_INVALID_MESSAGE", "error.violations")

ANYTHING: tuple[Any, ...] = (5, 0.5, True, None, "text", [5], {})
EXAMPLES = {
    one.model.type: (one.schema(), json.loads(one.example)["payload"])
    for one in asyncapi.messages()
    if one.from_client and one.fields
}


def wrong_values(schema: dict[str, Any], name: str) -> list[Any]:
    """What the documented schema of a payload does not take there; null may be no value."""
    field = {"$defs": schema.get("$defs", {})} | schema["properties"][name]
    required = name in schema.get("required", ())
    values = ANYTHING if required else [value for value in ANYTHING if value is not None]
    return [value for value in values if not Draft202012Validator(field).is_valid(value)]


@pytest.fixture
def speak(device: Phone, type_: str) -> Phone:
    """A connection in whose phase the message may come."""
    return device.connect() if type_ == "auth" else device.ready()


def violations(answer: Message) -> dict[str, dict[str, str]]:
    """field → violation {field, constraint, received}, the field without what leads to it."""
    listed = assert_refused(answer, "PROTO_INVALID_MESSAGE", True)["violations"]
    assert listed
    for violation in listed:
        assert set(violation) == {"field", "constraint", "received"}, violation
        assert all(isinstance(value, str) and value for value in violation.values()), violation
    names = (re.split(r"[.\[]", one["field"].removeprefix("payload."))[0] for one in listed)
    return dict(zip(names, listed, strict=True))


@pytest.mark.parametrize("type_", EXAMPLES)
def test_missing_fields_and_wrong_values(speak: Phone, type_: str) -> None:
    """That field is named, and no other; all that are missing, or wrong, are listed."""
    schema, right = EXAMPLES[type_]
    required = set(schema.get("required", ()))
    if required:
        assert set(violations(speak.request(type_, {}))) == required
    for name in required:
        without = {key: value for key, value in right.items() if key != name}
        assert set(violations(speak.request(type_, without))) == {name}
    wrong = {name: wrong_values(schema, name) for name in schema["properties"]}
    for name, values in wrong.items():
        for value in values:
            found = violations(speak.request(type_, right | {name: value}))
            assert set(found) == {name}, (name, value)
    all_wrong = {name: values[0] for name, values in wrong.items() if values}
    assert set(violations(speak.request(type_, all_wrong))) == set(all_wrong)


@pytest.mark.parametrize("type_", EXAMPLES)
def test_unknown_fields_are_no_violation(speak: Phone, type_: str) -> None:
    """D3: what comes back is about something else, or nothing is wrong."""
    _, right = EXAMPLES[type_]
    more = {"something_else": {"a": [1, None]}, "session": 5}
    elsewhere = {"session_id": new_session()} if "session_id" in right else {}
    sent = speak.send(type_, right | more | elsewhere)
    if type_ == "notification_ack":
        speak.ping()  # it has no answer
    else:
        speak.until(lambda message: message.get("id") == sent, "an answer")
    codes = {one["payload"].get("code") for one in speak.messages if one.get("id") == sent}
    assert "PROTO_INVALID_MESSAGE" not in codes


def test_what_only_the_bridge_sends(phone: Phone) -> None:
    """It is an unknown type; the connection stays open (D3)."""
    own = [type_ for type_, model in CATALOGUE.items() if not model.from_client]
    for type_ in [*own, "git_pull", "AUTH", "Message", ""]:
        assert "type" in violations(phone.request(type_, {"session_id": "x"})), type_
    phone.ping()


ENVELOPE: dict[str, tuple[Any, ...]] = {
    "type": (None, 5, [], "\x00", "x" * 5000, "__class__"),
    "id": (5, "", "y" * 129, {}),
    "timestamp": ("now", 5, "2026-13-01T00:00:00Z", "1700000000"),
    "payload": ([], "x", True, None),
}


@pytest.mark.parametrize("field", ENVELOPE)
@pytest.mark.spec("envelope.type", "envelope.id", "envelope.timestamp", "envelope.payload")
def test_the_envelope(phone: Phone, field: str) -> None:
    """Required type, timestamp, payload; what is too large is not sent back."""
    good = {"type": "git_status_request", "timestamp": now(), "payload": {"session_id": "x"}}
    for wrong in ENVELOPE[field]:
        phone.send_raw(json.dumps(good | {"id": new_id()} | {field: wrong}))
        answer = phone.expect("error")
        assert set(violations(answer)) == {field} and len(json.dumps(answer)) < 20_000
    if field != "id":
        phone.send_raw(json.dumps({name: good[name] for name in good if name != field}))
        assert set(violations(phone.expect("error"))) == {field}
    phone.send_raw(json.dumps({"type": "git_status_request", "id": [], "timestamp": "yesterday"}))
    assert set(violations(phone.expect("error"))) == {"id", "timestamp", "payload"}


def test_secrets_are_not_repeated(device: Phone) -> None:
    """D15: wherever a token stands, in an auth, in another message, or in none."""
    device.connect()
    secret = device.token
    right = {"token": secret, "client_version": "1.2.3", "platform": "ios"}
    wrong: list[Any] = [
        *({"platform": secret}, {"token": [secret]}, {"client_version": 5, "device_id": [secret]}),
        {"token": [{"a": secret}], "platform": secret},
    ]
    for body in (*[right | change for change in wrong], [secret], json.dumps(right)):
        device.request("auth", body)
    device.send(secret, right)
    device.send("auth", right, timestamp=secret)
    device.send_raw(f'{{"token": "{secret}"')
    device.collect(lambda: len(device.messages) == len(wrong) + 5, "an answer to each")
    for message in device.messages:
        assert secret[:20] not in json.dumps(message), message
    assert device.auth()["type"] == "connection_ack"
