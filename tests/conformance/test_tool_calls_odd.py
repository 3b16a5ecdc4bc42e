"""Tool calls with what nobody should put into them (issue, Bad input; D3, D8, D38)."""

import json
from typing import Any

import pytest

from tests.conformance.approvals import assert_recorded, assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, strict_json
from tests.conformance.phone import Phone
from tests.conformance.samples import now
from tests.conformance.test_bad_input import ODD_VALUES, nested

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.spec("record.params", "record.modifications"),
]
ODD = [*ODD_VALUES, nested(60), '[{"a": []}, [[]]]', '{"": {"": ""}}']


def body(session_id: str, payload: str) -> bytes:
    about = f'"timestamp": "{now()}", "session_id": {json.dumps(session_id)}'
    return f'{{"event": "PreToolUse", {about}, "payload": {payload}}}'.encode()


def post_raw(bridge: Bridge, data: bytes) -> bool:
    """Whether it was accepted; anything but 200 and 400 is a fault."""
    answer = bridge.https().post("/api/v1/hooks/event", token=bridge.hook_token, body=data)
    if answer.status != 200:
        assert_error(answer, 400)
    return answer.status == 200


def asked(bridge: Bridge, phone: Phone, session_id: str, fields: str) -> dict[str, Any] | None:
    """The question that a PreToolUse with these fields became; None where it was refused."""
    payload = f'{{{fields}, "risk_level": "low", "requires_approval": true}}'
    if not post_raw(bridge, body(session_id, payload)):
        return None
    return dict(phone.expect("approval_required", session_id=session_id)["payload"])


def test_odd_values(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D3, D38: parameters, modifications and results are kept as they are, or refused."""
    for number, text in enumerate(ODD):
        call = f'"tool": "Bash", "tool_call_id": "{number}"'
        params = f'"params": {{"odd": {text}}}'
        if question := asked(bridge, joined, sid, f"{call}, {params}"):
            assert question["params"] == {"odd": strict_json(text)}, text[:40]
        else:
            params = '"params": {}'
            assert asked(bridge, joined, sid, f"{call}, {params}")
        call = f'"session_id": {json.dumps(sid)}, "tool_call_id": "{number}"'
        fields = f'{{{call}, "decision": "modified", "modifications": {{"odd": {text}}}}}'
        head = f'"type": "approval_response", "id": "odd-{number}", "timestamp": "{now()}"'
        joined.send_raw(f'{{{head}, "payload": {fields}}}')
        answer = joined.until(
            lambda message: message["type"] in ("error", "approval_recorded"), text[:40]
        )
        if answer["type"] == "error":
            assert_refused(answer, "PROTO_INVALID_MESSAGE", True)
        else:
            assert_recorded(answer, sid, str(number), "modified")
        payload = f'{{{call}, {params}, "result": {text}, "success": true}}'
        if post_raw(bridge, body(sid, payload).replace(b"PreToolUse", b"PostToolUse", 1)):
            result = joined.expect("tool_result", session_id=sid)["payload"]
            assert result["tool_call_id"] == str(number)
            assert isinstance(result["result"]["content"], str), text[:40]


def test_odd_words_of_a_client(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Issue, bad input: NULs in ids: unknown or no message, on every database."""
    for odd in ("\x00", "a\x00b", "x" * 100_000):
        decision = {"tool_call_id": odd, "decision": "approved", "modifications": None}
        requests: list[tuple[str, dict[str, Any]]] = [
            ("approval_response", decision),
            ("replay_request", {"after_id": odd}),
            ("git_commit", {"message": odd, "files": [odd]}),
            ("session_end", {"reason": odd}),
        ]
        for type_, fields in requests:
            answer = joined.request(type_, {"session_id": sid} | fields)
            code = answer["payload"].get("code")
            assert code not in ("STORAGE_UNAVAILABLE", "BRIDGE_ERROR"), (type_, str(answer)[:500])
        joined.ack(odd)
    joined.ping()
