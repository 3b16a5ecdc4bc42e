"""The table holds every message of the specification, once, and the envelope is written as D4 and
D13 say.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from bridge_project.protocol import client_messages as c
from bridge_project.protocol import http, jsontext
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.base import ClientPayload, ServerPayload
from bridge_project.protocol.catalogue import CATALOGUE, Phase, encode, encode_raw
from bridge_project.protocol.hooks import ENFORCED, PAYLOADS
from bridge_project.protocol.parse import parse_client
from bridge_project.protocol.resources import Violation
from bridge_project.protocol.types import HOOK_EVENTS, parse_timestamp

# The rows of the spec's table "WebSocket operations", and what D29, D38, D40 and the spec's errors
# add.
FROM_CLIENT = [
    "auth",
    "health_check",
    "acknowledge_warning",
    "heartbeat_ping",
    "session_start",
    "session_end",
    "message",
    "approval_response",
    "git_status_request",
    "git_commit",
    "git_diff",
    "file_list",
    "file_read",
    "notification_ack",
    "replay_request",
    "session_interrupt",
]
FROM_SERVER = [
    "connection_ack",
    "health_status",
    "acknowledgment_accepted",
    "connection_error",
    "heartbeat_pong",
    "session_ready",
    "session_end",
    "stream_start",
    "stream_chunk",
    "stream_end",
    "tool_call",
    "approval_required",
    "tool_result",
    "agent_event",
    "git_status_response",
    "git_diff_response",
    "file_list_response",
    "file_read_response",
    "notification",
    "error",
    "replay_buffer",
    "session_started",
    "tool_error",
    "approval_recorded",
]


def test_every_message_has_its_row_and_its_directions() -> None:
    assert {row.type for row in CATALOGUE.values() if row.client} == set(FROM_CLIENT)
    assert {row.type for row in CATALOGUE.values() if row.server} == set(FROM_SERVER)
    assert all(type == row.type and row.summary for type, row in CATALOGUE.items())


def test_every_model_is_in_the_table() -> None:
    assert (
        set(c.CLIENT_PAYLOADS)
        == {row.client for row in CATALOGUE.values() if row.client}
        == set(ClientPayload.__subclasses__())
    )
    assert (
        set(s.SERVER_PAYLOADS)
        == {row.server for row in CATALOGUE.values() if row.server}
        == {*ServerPayload.__subclasses__(), c.SessionEnd}
    )


@pytest.mark.parametrize("model", [*c.CLIENT_PAYLOADS, *s.SERVER_PAYLOADS])
def test_a_models_name_is_its_type_in_camel_case(model: Any) -> None:
    assert model.__name__.rstrip("_") == "".join(
        part.capitalize() for part in model.type.split("_")
    )
    row = CATALOGUE[model.type]
    assert model in (row.client, row.server)


def test_the_phases_of_d21() -> None:
    by_phase = {
        phase: {row.type for row in CATALOGUE.values() if row.client and row.phase is phase}
        for phase in Phase
    }
    assert Phase.OPEN < Phase.AUTHENTICATED < Phase.READY
    assert by_phase[Phase.OPEN] == {"auth"}
    assert by_phase[Phase.AUTHENTICATED] == {
        "health_check",
        "acknowledge_warning",
        "notification_ack",
        "heartbeat_ping",
    }


def test_session_messages_need_their_session_joined() -> None:
    joined = {row.type for row in CATALOGUE.values() if row.needs_joined}
    about_a_session = {
        row.type
        for row in CATALOGUE.values()
        if row.client and "session_id" in row.client.model_fields
    }
    assert joined == about_a_session - {"session_start", "approval_response"}


def test_the_feeds_of_d26() -> None:
    assert {row.type for row in CATALOGUE.values() if row.feed == "all"} == {
        "session_started",
        "session_end",
        "notification",
    }
    assert {row.type for row in CATALOGUE.values() if row.feed == "session"} == {
        *("agent_event", "tool_call", "approval_required", "tool_result", "tool_error"),
        *("stream_start", "stream_chunk", "stream_end"),
        "error",  # the one that says an agent failed (D51)
    }
    assert all(row.server for row in CATALOGUE.values() if row.feed)


def test_the_idempotent_types_of_d31() -> None:
    assert {row.type for row in CATALOGUE.values() if row.idempotent} == {
        "message",
        "git_commit",
        "approval_response",
        "session_start",
    }


def test_every_reply_is_a_message_of_the_other_side() -> None:
    for row in CATALOGUE.values():
        for reply in row.reply:
            assert CATALOGUE[reply].server if row.client else CATALOGUE[reply].client


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


def test_a_reply_has_the_requests_id_and_a_given_time() -> None:
    encoded = encode(
        s.SessionStarted(session_id="s-1"), id="auth-001", timestamp="2026-01-31T12:00:00.000Z"
    )
    assert encoded.id == "auth-001"
    assert (
        encoded.text
        == '{"type":"session_started","id":"auth-001","timestamp":"2026-01-31T12:00:00.000Z","payload":{"session_id":"s-1"}}'
    )


@pytest.mark.parametrize("payload", [c.HeartbeatPing(), s.HeartbeatPong()])
def test_heartbeats_have_only_type_and_timestamp(payload: BaseModel) -> None:
    encoded = encode(payload, id="ignored", timestamp="2026-01-31T12:00:00.000Z")
    assert jsontext.loads(encoded.text) == {
        "type": encoded.type,
        "timestamp": "2026-01-31T12:00:00.000Z",
    }
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
    call = s.ToolCall(
        session_id="s",
        tool_call_id="t",
        tool="T",
        params={"a": None, "b": [None, {"c": None}]},
        description="d",
    )
    assert call.wire()["params"] == {"a": None, "b": [None, {"c": None}]}
    assert s.ConnectionError_(code="AUTH_FAILED", message="m").wire() == {
        "code": "AUTH_FAILED",
        "message": "m",
    }
    assert s.Error_(code="X", message="m", recoverable=True).wire() == {
        "code": "X",
        "message": "m",
        "recoverable": True,
        "session_id": None,
    }


def test_a_server_message_with_a_field_that_the_contract_does_not_know_is_a_mistake() -> None:
    with pytest.raises(ValidationError):
        s.SessionStarted.model_validate({"session_id": "s", "sesion": 1})


def test_violations_as_parsed_go_into_an_error() -> None:
    violation = {"field": "type", "constraint": "required", "received": "nothing"}
    payload = s.Error_.model_validate(
        {
            "code": "PROTO_INVALID_MESSAGE",
            "message": "m",
            "session_id": None,
            "recoverable": True,
            "violations": [violation],
        }
    )
    assert payload.violations == [
        Violation(field="type", constraint="required", received="nothing")
    ]
    assert payload.wire()["violations"] == [violation]


def test_a_raw_payload_goes_out_as_it_is() -> None:
    payload = {"event": "Stop", "payload": {"x": None}, "more": None}
    encoded = encode_raw("agent_event", payload, id="e-1")
    assert jsontext.loads(encoded.text)["payload"] == payload
    assert (encoded.id, encoded.type) == ("e-1", "agent_event")


def test_only_known_messages_are_encoded() -> None:
    with pytest.raises(KeyError):
        encode_raw("unheard", {})
    with pytest.raises(TypeError):
        encode(http.UserEventAccepted(accepted=True, event_id="e", session_id="s"))
    with pytest.raises(TypeError):
        encode(Violation(field="f", constraint="c", received="r"))
    with pytest.raises(ValueError):
        encode_raw("agent_event", {"x": float("nan")})


def test_a_client_message_survives_the_way_to_the_bridge() -> None:
    sent = c.ApprovalResponse(session_id="s", tool_call_id="t", decision="rejected")
    message = parse_client(encode(sent, id="a-1").text, strict_ids=False)
    assert (message.id, message.payload) == ("a-1", sent)
    assert message.raw["modifications"] is None


# -- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [*c.CLIENT_PAYLOADS, *s.SERVER_PAYLOADS, *http.HTTP_BODIES, *PAYLOADS.values()]
)
def test_every_model_has_a_json_schema(model: type[BaseModel]) -> None:
    assert model.model_json_schema()["type"] == "object"


def test_timestamps_are_date_times_in_the_schema() -> None:
    assert c.HealthCheck.model_json_schema()["properties"]["timestamp"] == {
        "type": "string",
        "format": "date-time",
        "title": "Timestamp",
    }


def test_the_hook_tables_name_the_nine_events() -> None:
    assert set(PAYLOADS) == set(HOOK_EVENTS)
    assert set(ENFORCED) == {"SessionStart", "PreToolUse", "PostToolUse"}
