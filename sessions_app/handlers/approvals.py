"""approval_response: the first decision stands (D38)."""

from __future__ import annotations

from bridge_project.kernel.threads import writers
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.parse import ClientMessage
from sessions_app.approvals import service as approvals
from sessions_app.socket.consumer import BridgeConsumer
from sessions_app.socket.dispatch import handles


@handles(c.ApprovalResponse)
async def approval_response(socket: BridgeConsumer, message: ClientMessage) -> s.ApprovalRecorded:
    payload: c.ApprovalResponse = message.payload
    assert socket.device is not None
    return await writers.run(
        approvals.decide,
        socket.device,
        payload.session_id,
        payload.tool_call_id,
        payload.decision,
        payload.modifications,
    )
