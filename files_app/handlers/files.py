"""Answer file_list and file_read (SPEC File resources; D7, D11, D12)."""

from bridge_project.kernel import threads
from bridge_project.kernel.path_jail import default_jail
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import repository_messages as r
from bridge_project.protocol.parse import ClientMessage
from files_app.content import read_lines
from files_app.handlers.reply import reply_from
from files_app.tree import listing
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import handles


@handles(c.FileList)
async def file_list(socket: ClientConnection, message: ClientMessage) -> None:
    await reply_from(threads.files, _list, socket, message)


@handles(c.FileRead)
async def file_read(socket: ClientConnection, message: ClientMessage) -> None:
    await reply_from(threads.files, _read, socket, message)


def _list(session: Session, payload: c.FileList) -> r.FileListResponse:
    found = listing(default_jail(), payload.path, session.working_directory)
    return r.FileListResponse.model_validate({"session_id": session.session_id, **found})


def _read(session: Session, payload: c.FileRead) -> r.FileReadResponse:
    found = read_lines(
        default_jail(), payload.path, session.working_directory, payload.offset, payload.limit
    )
    return r.FileReadResponse.model_validate({"session_id": session.session_id, **found})
