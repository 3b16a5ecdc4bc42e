"""Words of the tool-call and approval tests: what hooks tell of an agent, and people who decide."""

import json
from typing import Any

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import hook

DECISIONS = ("approved", "rejected", "modified")
APPROVAL_FIELDS = {"session_id", "tool_call_id", "tool", "params", "description"}
APPROVAL_FIELDS |= {"risk_level", "source"}
ERROR_FIELDS = {"code", "message", "session_id", "recoverable"}


def pre(
    session_id: str, params: Any = None, /, approval: bool = False, risk: str = "low", **more: Any
) -> dict[str, Any]:
    """A PreToolUse; `more` goes into its payload."""
    call = {"tool": "Bash", "params": {"command": "ls"} if params is None else params}
    asks = {"risk_level": risk, "requires_approval": approval}
    return hook("PreToolUse", session_id, call | asks | more)


def post(session_id: str, params: Any = None, /, **more: Any) -> dict[str, Any]:
    """A PostToolUse of a call that went well; `more` goes into its payload."""
    call = {"tool": "Bash", "params": {"command": "ls"} if params is None else params}
    return hook("PostToolUse", session_id, call | {"result": "done", "success": True} | more)


def of(phone: Phone, type_: str, session_id: str) -> list[Message]:
    """The messages of that type about that session received on this connection, in order."""
    return [
        message
        for message in phone.messages
        if message["type"] == type_ and message["payload"].get("session_id") == session_id
    ]


def call_ids(phone: Phone, type_: str, session_id: str) -> list[str]:
    return [message["payload"]["tool_call_id"] for message in of(phone, type_, session_id)]


def notifications(phone: Phone, session_id: str, kind: str | None = None) -> list[dict[str, Any]]:
    """The payloads of the notifications about that session, of that type or of any."""
    found = [message["payload"] for message in of(phone, "notification", session_id)]
    return [payload for payload in found if kind is None or payload["notification_type"] == kind]


def decided(phone: Phone, session_id: str) -> dict[str, str]:
    """Call id → the decision of which the phone was told, each once."""
    told = [payload["data"] for payload in notifications(phone, session_id, "approval_decided")]
    found = {data["tool_call_id"]: str(data["decision"]) for data in told}
    assert len(found) == len(told), told
    return found


def ask(bridge: Bridge, phone: Phone, session_id: str, params: Any = None, /, **more: Any) -> str:
    """A tool call that needs approval; its id, once the phone, which has joined, was asked."""
    bridge.accept(pre(session_id, params, approval=True, **more))
    return str(phone.expect("approval_required", session_id=session_id)["payload"]["tool_call_id"])


def decision_of(
    session_id: str, call_id: str, decision: str, modifications: Any = None
) -> dict[str, Any]:
    call = {"session_id": session_id, "tool_call_id": call_id}
    return call | {"decision": decision, "modifications": modifications}


def decide(
    phone: Phone,
    session_id: str,
    call_id: str,
    decision: str,
    modifications: Any = None,
    **more: str,
) -> Message:
    if decision == "modified" and modifications is None:
        modifications = {"command": "ls -l"}
    body = decision_of(session_id, call_id, decision, modifications)
    return phone.request("approval_response", body | more)


def assert_recorded(
    answer: Message, session_id: str, call_id: str, decision: str
) -> dict[str, Any]:
    """approval_recorded of exactly that decision, which no agent session took (D38)."""
    assert answer["type"] == "approval_recorded", answer
    payload = dict(answer["payload"])
    told = {"session_id": session_id, "tool_call_id": call_id, "decision": decision}
    assert payload == told | {"forwarded": False, "decided_at": payload["decided_at"]}, payload
    return payload


def assert_refused(
    answer: Message, code: str, recoverable: bool, session_id: str | None = None
) -> dict[str, Any]:
    """An `error` with the spec's fields and the table's recoverability (spec, WebSocket errors)."""
    assert answer["type"] == "error", answer
    payload = dict(answer["payload"])
    assert set(payload) >= ERROR_FIELDS, payload
    assert (payload["code"], payload["recoverable"]) == (code, recoverable), payload
    assert isinstance(payload["message"], str) and payload["message"], payload
    assert session_id is None or payload["session_id"] == session_id, payload
    return payload


def assert_stands(answer: Message, decision: str, who: str) -> None:
    """TOOL_ALREADY_DECIDED that names the decision that stands and who made it (D38)."""
    payload = assert_refused(answer, "TOOL_ALREADY_DECIDED", False)
    assert payload["details"]["decision"] == decision, payload
    said = json.dumps([payload["message"], payload["details"]], ensure_ascii=False)
    assert who in said, f"who decided is not said: {payload}"


def greeted(bridge: Bridge, phone: Phone) -> None:
    """All that a connection begins with has come (D28)."""
    bridge.fence(phone)  # which may still be part of what was missed
    bridge.fence(phone)  # which is live


def pending(bridge: Bridge, session_id: str) -> list[str]:
    """What a device that connects now for the first time is asked to decide in that session."""
    with bridge.phones(1) as (fresh,):
        greeted(bridge, fresh)
        return call_ids(fresh, "approval_required", session_id)
