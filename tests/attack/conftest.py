"""A phone on the bridge of a file's tests, and the person who decides on it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone


@pytest.fixture
def phone(bridge: Bridge) -> Iterator[Phone]:
    with bridge.phones(1) as (phone,):
        yield phone


def answer(phone: Phone, session: str, decision: str) -> dict[str, Any]:
    """Decide about what the session's agent asks, and wait for its turn's end; what it asked."""
    asked: dict[str, Any] = phone.expect("approval_required", session_id=session)["payload"]
    recorded = decide(phone, session, asked["tool_call_id"], decision)
    assert recorded["type"] == "approval_recorded", recorded
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    return asked
