"""Handle message, session_interrupt and approval_response (D7, D31, D38, D40)."""

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import writers
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.parse import ClientMessage
from sessions_app.agents import messages
from sessions_app.approvals import decisions
from sessions_app.handlers.session import session_of
from sessions_app.models import Session
from sessions_app.socket import idempotency
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import handles


@handles(c.Message)
async def message(connection: ClientConnection, message: ClientMessage) -> None:
    """Queue a turn; its stream goes to everybody who has joined."""
    payload: c.Message = message.payload
    session = await _driven(connection, message)
    await writers.run(
        messages.send_prompt,
        session.pk,
        payload.content,
        device=connection.device,
        message_id=message.id,
        source="device",
        begun=idempotency.begun.get(),
    )


@handles(c.SessionInterrupt)
async def session_interrupt(connection: ClientConnection, message: ClientMessage) -> None:
    """Stop the running turn, if there is one; ``stream_end`` answers."""
    session = await _driven(connection, message)
    await writers.run(messages.interrupt, session.pk, device=connection.device)


async def _driven(connection: ClientConnection, message: ClientMessage) -> Session:
    """Return the message's session, which is joined and whose agent the bridge runs."""
    session = await session_of(connection, message, acting=True)
    if session.kind != Session.Kind.BRIDGE:
        raise BridgeError(
            "AGENT_UNAVAILABLE",
            "This session is only watched: its agent listens to nobody but the person at its machine.",
        )
    return session


@handles(c.ApprovalResponse)
async def approval_response(
    connection: ClientConnection, message: ClientMessage
) -> s.ApprovalRecorded:
    payload: c.ApprovalResponse = message.payload
    return await writers.run(
        decisions.decide,
        connection.paired,
        payload.session_id,
        payload.tool_call_id,
        payload.decision,
        payload.modifications,
    )
