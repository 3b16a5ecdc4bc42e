"""Decisions of devices, and what they may no longer do (D15, D38)."""

import pytest

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.client_messages import ApprovalResponse
from devices_app import pairing
from devices_app.models import Device
from sessions_app.approvals import decisions
from sessions_app.models import ToolCall
from tests.sessions import helpers

pytestmark = [
    pytest.mark.spec("ws.approval_response"),
    pytest.mark.django_db(transaction=True),
]


def test_a_device_that_is_revoked_meanwhile_decides_nothing() -> None:
    """Its decision had come, and waited for the log: no decision stands, and no rule."""
    asked = {"tool": "Bash", "params": {"command": "ls"}, "requires_approval": True}
    asked |= {"risk_level": "low", "description": "x"}
    helpers.store(helpers.event("s1", "PreToolUse", tool_call_id="c1", **asked))
    phone = Device.objects.create(name="phone")
    decision = ApprovalResponse(session_id="s1", tool_call_id="c1", decision="approved")
    pairing.revoke(phone)
    with pytest.raises(BridgeError, match="AUTH_FAILED"):
        decisions.decide(phone, decision)
    assert ToolCall.objects.get().decision == ToolCall.Decision.PENDING
