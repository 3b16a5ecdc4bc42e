"""notification_ack: the device has what it names (D27)."""

from __future__ import annotations

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import client_messages as c
from bridge_project.protocol.parse import ClientMessage
from sessions_app.socket.consumer import BridgeConsumer
from sessions_app.socket.dispatch import handles


@handles(c.NotificationAck)
async def notification_ack(socket: BridgeConsumer, message: ClientMessage) -> None:
    payload: c.NotificationAck = message.payload
    assert socket.receipts is not None
    if len(payload.notification_ids) > limits.ACK_MAX_IDS:
        violation = {
            "field": "payload.notification_ids",
            "constraint": f"at most {limits.ACK_MAX_IDS} ids",
            "received": str(len(payload.notification_ids)),
        }
        raise BridgeError("PROTO_INVALID_MESSAGE", "Too many ids at once.", violations=[violation])
    socket.receipts.acknowledged(payload.notification_ids)
