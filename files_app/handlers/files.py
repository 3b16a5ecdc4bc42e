"""file_list and file_read (SPEC File resources; D7, D11, D12)."""

from __future__ import annotations

from bridge_project.kernel import threads
from bridge_project.kernel.path_jail import default_jail
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import repository_messages as r
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from files_app.content import read_lines
from files_app.tree import listing
from sessions_app.handlers.session import session_of
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import handles


@handles(c.FileList)
async def file_list(socket: ClientConnection, message: ClientMessage) -> None:
    session = await session_of(socket, message)
    await socket.send_frame(await threads.files.run(_list, session, message.payload, message.id))


@handles(c.FileRead)
async def file_read(socket: ClientConnection, message: ClientMessage) -> None:
    session = await session_of(socket, message)
    await socket.send_frame(await threads.files.run(_read, session, message.payload, message.id))


def _list(session: Session, payload: c.FileList, id: str) -> Encoded:
    found = listing(default_jail(), payload.path, session.working_directory)
    return encode(
        r.FileListResponse.model_validate({"session_id": session.session_id, **found}), id=id
    )


def _read(session: Session, payload: c.FileRead, id: str) -> Encoded:
    found = read_lines(
        default_jail(), payload.path, session.working_directory, payload.offset, payload.limit
    )
    return encode(
        r.FileReadResponse.model_validate({"session_id": session.session_id, **found}), id=id
    )
