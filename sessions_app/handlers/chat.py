"""message and session_interrupt: what a person says to an agent that the bridge runs (D7, D31, D40)."""

from __future__ import annotations

from bridge_project.database import writers
from bridge_project.dispatch import handles
from bridge_project.errors import BridgeError
from bridge_project.protocol import client as c
from bridge_project.protocol.parse import ClientMessage
from sessions_app import conversation, requests
from sessions_app.consumers import BridgeConsumer
from sessions_app.handlers.session import session_of
from sessions_app.models import Session


@handles(c.Message)
async def message(socket: BridgeConsumer, message: ClientMessage) -> None:
    """Queue a turn; the stream answers it, to everybody who has joined."""
    payload: c.Message = message.payload
    session = await _driven(socket, message)
    await writers.run(conversation.say, session.pk, payload.content, device=socket.device, begun=requests.begun.get())


@handles(c.SessionInterrupt)
async def session_interrupt(socket: BridgeConsumer, message: ClientMessage) -> None:
    """Stop the running turn, whose ``stream_end`` answers; where none runs there is nothing to stop."""
    session = await _driven(socket, message)
    await writers.run(conversation.interrupt, session.pk, device=socket.device)


async def _driven(socket: BridgeConsumer, message: ClientMessage) -> Session:
    """The joined session that a message is for, whose agent the bridge runs."""
    session = await session_of(socket, message, acting=True)
    if session.kind != Session.Kind.BRIDGE:
        raise BridgeError("AGENT_UNAVAILABLE", "This session is only watched: its agent listens to nobody but the person at its machine.")
    return session
