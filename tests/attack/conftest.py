"""The person who decides on a phone."""

from typing import Any

from tests.conformance.agents import question
from tests.conformance.approvals import decide
from tests.conformance.phone import Phone


def answer(phone: Phone, session: str, decision: str) -> dict[str, Any]:
    """Decide about what the session's agent asks, and wait for its turn's end; what it asked."""
    asked = question(phone, session)
    recorded = decide(phone, session, asked["tool_call_id"], decision)
    assert recorded["type"] == "approval_recorded", recorded
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    return asked
