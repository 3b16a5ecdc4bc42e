"""Messages and frames that nobody should send (spec, WebSocket errors; D3, D4, D7, D9, D21, D27): a
clear error, the server lives on.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import strict_json
from tests.conformance.phone import Closed, Phone
from tests.conformance.raw import BINARY, CLOSE, PING, PONG, TEXT, RawSocket
from tests.conformance.samples import new_session, now, prompt

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def lives_on(shared: Bridge) -> Iterator[None]:
    """After each test here the shared bridge still takes and stores an event."""
    yield
    session_id = new_session()
    shared.accept(prompt(session_id, 1))
    assert shared.knows(session_id)


GOOD: dict[str, Any] = {
    "type": "health_check",
    "id": "x-1",
    "timestamp": "2026-01-01T00:00:00Z",
    "payload": {
        "timestamp": "2026-01-01T00:00:00Z",
        "client_nonce": "n",
        "client_capabilities": [],
    },
}
TYPES: list[Any] = [
    None,
    5,
    [],
    {},
    "",
    "HEALTH_CHECK",
    "nonsense",
    "connection_ack",
    "agent_event",
    "x" * 5000,
    "\x00",
    "__class__",
]
PAYLOADS: list[Any] = [None, 5, [], "x", True]
MOMENTS: list[Any] = ["yesterday", 5, "", [], "2026-13-01T00:00:00Z", "1700000000"]
SHAPES: dict[str, str] = {
    "empty": "",
    "space": " ",
    "words": "hello",
    "list": "[]",
    "null": "null",
    "number": "5",
    "string": '"auth"',
    "open": "{",
    "two": "{}{}",
    "object": "{}",
    "nan": '{"type": "health_check", "id": "a", "timestamp": "2026-01-01T00:00:00Z", "payload": {"x": NaN}}',
    "deep": json.dumps(GOOD).replace('"n"', '{"a":' * 20_000 + "1" + "}" * 20_000),
    "deep-list": "[" * 100_000,
    "huge-int": json.dumps(GOOD).replace('"n"', "9" * 10_000),
    "no-type": json.dumps({name: value for name, value in GOOD.items() if name != "type"}),
    **{f"type-{kind!r}"[:30]: json.dumps(GOOD | {"type": kind}) for kind in TYPES},
    **{f"payload-{payload!r}": json.dumps(GOOD | {"payload": payload}) for payload in PAYLOADS},
    **{f"timestamp-{moment!r}": json.dumps(GOOD | {"timestamp": moment}) for moment in MOMENTS},
    "no-payload": json.dumps({name: value for name, value in GOOD.items() if name != "payload"}),
    "wrong-field": json.dumps(
        GOOD
        | {
            "payload": {
                "timestamp": "2026-01-01T00:00:00Z",
                "client_nonce": 5,
                "client_capabilities": "health_v1",
            }
        }
    ),
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
@pytest.mark.spec("wscode.PROTO_INVALID_MESSAGE", "ws.error")
def test_messages_of_wrong_shape(phone: Phone, text: str) -> None:
    """D3, spec: PROTO_INVALID_MESSAGE with violations {field, constraint, received}; the connection
    stays open and ready.
    """
    phone.send_raw(text)
    answer = phone.expect("error")["payload"]
    assert (
        answer["code"] == "PROTO_INVALID_MESSAGE"
        and isinstance(answer["recoverable"], bool)
        and answer["message"]
    ), answer
    for violation in answer.get("violations", []):
        assert set(violation) == {"field", "constraint", "received"}, violation
    assert len(json.dumps(answer)) < 20_000, "a large message is not sent back"
    phone.ping()


@pytest.mark.spec("error.violations")
def test_every_violation_is_listed(phone: Phone) -> None:
    """Spec, WebSocket errors: violations array."""
    sent = phone.send(
        "session_start", {"agent": 5, "session_id": [], "working_directory": None, "resume": "no"}
    )
    answer = phone.expect("error")
    assert answer["id"] == sent
    found = {
        violation["field"].removeprefix("payload.") for violation in answer["payload"]["violations"]
    }
    assert found >= {"agent", "session_id", "resume"}, found


@pytest.mark.parametrize(
    "session_id",
    ["\x00", "\ud800", "x" * 100_000, "", "../../etc/passwd", "%s%n"],
    ids=["nul", "surrogate", "long", "empty", "path", "format"],
)
def test_odd_session_ids(phone: Phone, session_id: str) -> None:
    """D7: an unknown or impossible id is a clear error, never a crash."""
    phone.send(
        "session_start",
        {"agent": "a", "session_id": session_id, "working_directory": "/", "resume": True},
    )
    assert phone.expect("error")["payload"]["code"] in ("SESS_NOT_FOUND", "PROTO_INVALID_MESSAGE")
    phone.ping()


@pytest.mark.parametrize(
    "ids",
    [
        None,
        "x",
        [1, 2],
        [None],
        {},
        ["\x00"],
        ["\ud800"],
        ["x" * 100_000],
        ["3fa85f64-5717-4562-b3fc-2c963f66afa6"] * 5000,
    ],
    ids=lambda ids: repr(ids)[:20],
)
def test_odd_acknowledgements(phone: Phone, ids: Any) -> None:
    """D27: unknown ids are ignored; what is no array of strings is PROTO_INVALID_MESSAGE; the
    connection stays open either way.
    """
    sent = phone.send("notification_ack", {"notification_ids": ids})
    phone.ping()
    errors = [message for message in phone.messages if message.get("id") == sent]
    if isinstance(ids, list) and all(isinstance(item, str) for item in ids):
        assert all(error["payload"]["code"] == "PROTO_INVALID_MESSAGE" for error in errors)
    else:
        assert [error["payload"]["code"] for error in errors] == ["PROTO_INVALID_MESSAGE"]


def test_a_binary_frame(phone: Phone) -> None:
    """Spec: all messages are JSON text in the envelope: told, or closed as RFC 6455 has it (1003);
    never a crash (1011) or silence.
    """
    phone.send_raw(json.dumps(GOOD).encode())
    try:
        message = phone.receive()
    except Closed as closed:
        code = closed.code
    else:
        assert (
            message["type"] == "error" and message["payload"]["code"] == "PROTO_INVALID_MESSAGE"
        ), message
        phone.ping()
        return
    assert code == 1003


@pytest.mark.spec("limit.max_message_size_mb")
def test_nine_megabytes_in_a_frame(phone: Phone) -> None:
    """Spec: max_message_size_mb 10: within the limit a message is read (and refused for its
    type).
    """
    phone.send("nonsense", {"x": "x" * (9 * MIB)})
    assert phone.expect("error")["payload"]["code"] == "PROTO_INVALID_MESSAGE"
    phone.ping()


@pytest.mark.parametrize("framing", ["one frame", "fragments"])
def test_which_message_was_too_large_is_said(shared: Bridge, framing: str) -> None:
    """D9: an `error` with its id, then the close 1009; nothing of it is acted on."""
    raw = RawSocket(shared.port).ready(shared.device_token())
    head = b'{"type": "message", "id": "the-large-one", "payload": {"id": "inner", "content": "'
    try:
        if framing == "one frame":
            raw.frame(head + b"x" * (11 * MIB) + b'"}}', TEXT)
        else:
            raw.frame(head, TEXT, final=False)
            for _ in range(44):
                raw.frame(b"x" * (256 * 1024), 0, final=False)
    except (ConnectionError, ssl.SSLError):
        pass  # it is closed while it still sends
    messages, code = raw.until_closed()
    raw.close()
    [error] = [message for message in messages if message["type"] == "error"]
    assert (error["id"], error["payload"]["code"], error["payload"]["recoverable"]) == (
        "the-large-one",
        "PAYLOAD_TOO_LARGE",
        False,
    )
    assert messages[-1] == error and code == 1009


@pytest.mark.spec("limit.max_message_size_mb")
def test_eleven_megabytes_in_a_frame(phone: Phone) -> None:
    """D9: a frame over the limit: close 1009, or whatever close the server stack can give."""
    try:
        phone.send("nonsense", {"x": "x" * (11 * MIB)})
        phone.wait_closed()
    except Closed:
        pass


def test_eleven_megabytes_in_fragments(shared: Bridge) -> None:
    """D9: a message over the limit in many small frames is no way around it."""
    raw = RawSocket(shared.port).ready(shared.device_token())
    try:
        raw.frame(b'{"type": "', TEXT, final=False)
        for _ in range(44):
            raw.frame(b"x" * (256 * 1024), 0, final=False)
        raw.frame(b'"}', 0)
        messages, _ = raw.until_closed()
        assert not [
            message
            for message in messages
            if message["type"] == "error" and message["payload"]["code"] == "PROTO_INVALID_MESSAGE"
        ]
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        raw.close()


@pytest.mark.parametrize(
    "frame",
    [
        {"data": b"\xff\xfe", "opcode": TEXT},
        {"data": b"{}", "opcode": TEXT, "masked": False},
        {"data": b"{}", "opcode": 5},
        {"data": b"{}", "opcode": TEXT, "reserved": 7},
        {"data": b"x" * 200, "opcode": PING},
        {"data": b"x", "opcode": PING, "final": False},
        {"data": b"\x03", "opcode": CLOSE},
        {"data": b"{}", "opcode": 0},
    ],
    ids=[
        "bad-utf8",
        "unmasked",
        "opcode",
        "reserved",
        "long-ping",
        "split-ping",
        "close-of-one-byte",
        "continuation",
    ],
)
def test_frames_against_the_rfc(shared: Bridge, frame: dict[str, Any]) -> None:
    """RFC 6455: the connection is closed with 1002 or 1007; the server lives on."""
    raw = RawSocket(shared.port).ready(shared.device_token())
    try:
        raw.frame(**frame)
        _, code = raw.until_closed()
        assert code in (1002, 1007, None)
    finally:
        raw.close()


def test_a_message_in_fragments(shared: Bridge) -> None:
    """RFC 6455: a fragmented message, a ping between its parts, is one message."""
    raw = RawSocket(shared.port).ready(shared.device_token())
    try:
        text = json.dumps({"type": "heartbeat_ping", "timestamp": now()}).encode()
        raw.frame(text[:10], TEXT, final=False)
        raw.frame(b"between", PING)
        raw.frame(text[10:], 0)
        seen = [raw.read_frame(), raw.read_frame()]
        assert (PONG, b"between") in seen
        assert [strict_json(data)["type"] for opcode, data in seen if opcode == TEXT] == [
            "heartbeat_pong"
        ]
        assert not [data for opcode, data in seen if opcode == BINARY]
    finally:
        raw.close()


def test_bad_messages_before_auth(device: Phone) -> None:
    """D3, D21: a wrong shape before auth is an error too, and auth still works."""
    device.connect()
    for text in (
        "",
        "[]",
        '{"type": "nonsense", "timestamp": "2026-01-01T00:00:00Z", "payload": {}}',
    ):
        device.send_raw(text)
        answer = device.receive()
        assert answer["type"] == "error" and answer["payload"]["code"] in (
            "PROTO_INVALID_MESSAGE",
            "PROTO_SEQUENCE_ERROR",
        ), answer
    assert device.auth()["type"] == "connection_ack"
