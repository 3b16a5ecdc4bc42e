"""Tool calls with what nobody should put into them (issue, Bad input; D3, D8, D38): refused with a
clear code, or told and decided as they are.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.approvals import assert_recorded, assert_refused, decide, pre
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
    return f'{{"event": "PreToolUse", "timestamp": "{now()}", "session_id": {json.dumps(session_id)}, "payload": {payload}}}'.encode()


def post_raw(bridge: Bridge, data: bytes) -> bool:
    """Whether it was accepted; anything but 200 and 400 is a fault."""
    answer = bridge.https().post("/api/v1/hooks/event", token=bridge.hook_token, body=data)
    if answer.status != 200:
        assert_error(answer, 400)
    return answer.status == 200


def asked_and_decided(
    bridge: Bridge, phone: Phone, session_id: str, fields: str
) -> dict[str, Any] | None:
    """The question that a PreToolUse with these fields became, which was then decided; None where
    the event was refused.
    """
    payload = f'{{{fields}, "risk_level": "low", "requires_approval": true}}'
    if not post_raw(bridge, body(session_id, payload)):
        return None
    asked = dict(phone.expect("approval_required", session_id=session_id)["payload"])
    call_id = asked["tool_call_id"]
    answer = decide(phone, session_id, call_id, "rejected")
    assert_recorded(answer, session_id, call_id, "rejected")
    return asked


def test_odd_params(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D3: whatever the params hold, the person who decides sees what the tool would run with, and
    can decide it.
    """
    for text in ODD:
        fields = f'"tool": "Bash", "params": {{"odd": {text}}}'
        if asked := asked_and_decided(bridge, joined, sid, fields):
            assert asked["params"] == {"odd": strict_json(text)}, text[:40]


def test_odd_tools_and_ids(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: a tool's name and a call's id are any strings; what is none has an id made."""
    long = f'"{"x" * 5000}"'
    strings = ('"a\\u0000b"', '"\\ud800"', long, '" "', '""', '"\\u202e"')
    for text in ("5", "{}", "true", *strings):
        for name in ("tool", "tool_call_id", "reasoning"):
            tool = "" if name == "tool" else '"tool": "Bash", '
            fields = f'{tool}"{name}": {text}'
            fields += f', "params": {{"f": {json.dumps(fields)}}}'
            if asked := asked_and_decided(bridge, joined, sid, fields):
                assert asked["tool_call_id"].strip() and asked["description"].strip(), fields


def test_odd_results(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Spec: PostToolUse result is any: it comes as a string, or the event is refused."""
    for number, text in enumerate(ODD):
        bridge.accept(pre(sid, {"n": number}, tool_call_id=str(number)))
        fields = f'"tool": "Bash", "params": {{"n": {number}}}, "tool_call_id": "{number}"'
        payload = f'{{{fields}, "result": {text}, "success": true}}'
        if post_raw(bridge, body(sid, payload).replace(b"PreToolUse", b"PostToolUse", 1)):
            result = joined.expect("tool_result", session_id=sid)["payload"]
            assert result["tool_call_id"] == str(number)
            assert isinstance(result["result"]["content"], str), text[:40]


def test_odd_modifications(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D38: modifications are any object: recorded, or refused as no message; never a fault of the
    bridge.
    """
    for number, text in enumerate(ODD):
        bridge.accept(pre(sid, {"n": number}, approval=True, tool_call_id=str(number)))
        joined.expect("approval_required", session_id=sid)
        fields = f'{{"session_id": {json.dumps(sid)}, "tool_call_id": "{number}", "decision": "modified", "modifications": {{"odd": {text}}}}}'
        head = f'"type": "approval_response", "id": "odd-{number}", "timestamp": "{now()}"'
        joined.send_raw(f'{{{head}, "payload": {fields}}}')
        answer = joined.until(
            lambda message: message["type"] in ("error", "approval_recorded"), text[:40]
        )
        if answer["type"] == "error":
            assert_refused(answer, "PROTO_INVALID_MESSAGE", True)
        else:
            assert_recorded(answer, sid, str(number), "modified")


def test_odd_words_of_a_client(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Issue, bad input: NULs in the ids that a client names: unknown or no message, on every
    database.
    """
    for odd in ("\x00", "a\x00b", "x" * 100_000):
        requests: list[tuple[str, dict[str, Any]]] = [
            (
                "approval_response",
                {"tool_call_id": odd, "decision": "approved", "modifications": None},
            ),
            ("replay_request", {"after_id": odd}),
            ("git_commit", {"message": odd, "files": [odd]}),
            ("session_end", {"reason": odd}),
        ]
        for type_, fields in requests:
            answer = joined.request(type_, {"session_id": sid} | fields)
            assert answer["payload"].get("code") not in ("STORAGE_UNAVAILABLE", "BRIDGE_ERROR"), (
                type_,
                str(answer)[:500],
            )
        joined.ack(odd)
    joined.ping()
