"""Messages are written as D4 and D13 say, and the catalogue is sound."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel, ValidationError
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from bridge_project.protocol import client_messages as c
from bridge_project.protocol import http, jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.catalogue import CATALOGUE, encode, encode_raw, text_frame
from bridge_project.protocol.resources import Violation
from bridge_project.protocol.types import parse_timestamp


def test_every_reply_is_a_message_of_the_other_side() -> None:
    for model in CATALOGUE.values():
        for reply in model.reply:
            assert (
                CATALOGUE[reply].from_server if model.from_client else CATALOGUE[reply].from_client
            )


# -- envelopes -------------------------------------------------------------------------------------


def test_an_envelope_has_a_fresh_id_and_the_time() -> None:
    encoded = encode(s.SessionStarted(session_id="s-1"))
    message = jsontext.loads(encoded.text)
    assert list(message) == ["type", "id", "timestamp", "payload"]
    assert (message["type"], message["payload"]) == ("session_started", {"session_id": "s-1"})
    assert (encoded.type, encoded.id) == (message["type"], message["id"])
    assert uuid.UUID(encoded.id).version == 4
    assert encoded.id != encode(s.SessionStarted(session_id="s-1")).id
    assert abs(parse_timestamp(message["timestamp"]) - datetime.now(UTC)) < timedelta(seconds=5)


@pytest.mark.parametrize("payload", [c.HeartbeatPing(), s.HeartbeatPong()])
def test_heartbeats_have_only_type_and_timestamp(payload: BaseModel) -> None:
    at = "2026-01-31T12:00:00.000Z"
    encoded = encode(payload, id="ignored", timestamp=at)
    assert jsontext.loads(encoded.text) == {"type": encoded.type, "timestamp": at}
    assert encoded.id == ""


def test_a_notification_carries_its_own_id() -> None:
    payload = s.Notification(
        notification_id="n-1",
        notification_type="agent_idle",
        title="t",
        body="b",
        priority="low",
        data={},
    )
    assert encode(payload).id == encode(payload, id="n-1").id == "n-1"
    assert jsontext.loads(encode(payload).text)["payload"]["session_id"] is None
    with pytest.raises(ValueError):
        encode(payload, id="other")


def test_absent_optional_fields_are_left_out_and_nulls_inside_free_fields_stay() -> None:
    params = {"a": None, "b": [None, {"c": None}]}
    call = s.ToolCall(session_id="s", tool_call_id="t", tool="T", params=params, description="d")
    assert call.wire()["params"] == params
    error = s.Error_(code="X", message="m", recoverable=True).wire()
    assert error == {"code": "X", "message": "m", "recoverable": True, "session_id": None}


def test_a_server_message_with_a_field_that_the_contract_does_not_know_is_a_mistake() -> None:
    with pytest.raises(ValidationError):
        s.SessionStarted.model_validate({"session_id": "s", "sesion": 1})


def test_only_known_messages_are_encoded() -> None:
    with pytest.raises(KeyError):
        encode_raw("unheard", {})
    with pytest.raises(TypeError):
        encode(http.UserEventAccepted(accepted=True, event_id="e", session_id="s"))
    with pytest.raises(TypeError):
        encode(Violation(field="f", constraint="c", received="r"))
    with pytest.raises(ValueError):
        encode_raw("agent_event", {"x": float("nan")})


# -- frames ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x" * n for n in (0, 125, 126, 65535, 65536)] + ["é漢🙂" * 20])
def test_a_frame_is_read_back_by_another_library(text: str) -> None:
    """RFC 6455, 5.2; the length counts bytes, and takes the fewest."""
    data, size = text_frame(text), len(text.encode())
    assert len(data) - size == (2 if size < 126 else 4 if size < 65536 else 10)
    stream = StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    parsing = Frame.parse(stream.read_exact, mask=False)
    with pytest.raises(StopIteration) as done:
        while True:
            next(parsing)
    frame: Frame = done.value.value
    assert (frame.opcode, frame.fin, frame.rsv1) == (Opcode.TEXT, True, False)
    assert bytes(frame.data).decode() == text and stream.buffer == b""
