"""Make large replies and their JSON in a thread, so that other sockets go on."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from bridge_project.kernel.threads import Threads
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from sessions_app.handlers.session import session_of
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection


async def reply_from(
    threads: Threads,
    make: Callable[[Session, Any], BaseModel],
    socket: ClientConnection,
    message: ClientMessage,
) -> None:
    """Call `make` in one of the threads with session and payload; send its result."""
    session = await session_of(socket, message)

    def reply() -> Encoded:
        return encode(make(session, message.payload), id=message.id)

    await socket.send_frame(await threads.run(reply))
