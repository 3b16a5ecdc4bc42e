"""Answer requests about files and git, in threads (SPEC; D10 to D12)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from bridge_project.kernel import limits, threads
from bridge_project.kernel.path_jail import default_jail
from bridge_project.kernel.threads import Threads
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import repository_messages as r
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.resources import GitCommitSummary
from devices_app import audit
from devices_app.models import Device
from files_app.content import read_lines
from files_app.git import commit, diff, status
from files_app.git.repository import repository_of
from files_app.tree import listing
from sessions_app.handlers.session import session_of
from sessions_app.models import Session
from sessions_app.socket import idempotency
from sessions_app.socket.connection import ClientConnection
from sessions_app.socket.dispatch import handles


@handles(c.FileList)
async def file_list(socket: ClientConnection, message: ClientMessage) -> None:
    await _reply_from(threads.files, _list, socket, message)


@handles(c.FileRead)
async def file_read(socket: ClientConnection, message: ClientMessage) -> None:
    await _reply_from(threads.files, _read, socket, message)


@handles(c.GitStatusRequest)
async def git_status_request(socket: ClientConnection, message: ClientMessage) -> None:
    await _reply_from(threads.git, _status, socket, message)


@handles(c.GitDiff)
async def git_diff(socket: ClientConnection, message: ClientMessage) -> None:
    await _reply_from(threads.git, _diff, socket, message)


@handles(c.GitCommit)
async def git_commit(socket: ClientConnection, message: ClientMessage) -> r.GitStatusResponse:
    session = await session_of(socket, message)
    answer = await threads.git.run(_commit, session, message.payload, idempotency.begun.get())
    await threads.writers.run(_record, socket.device, session, answer.commit)
    return answer


async def _reply_from(
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


def _list(session: Session, payload: c.FileList) -> r.FileListResponse:
    found = listing(default_jail(), payload.path, session.working_directory)
    return r.FileListResponse.model_validate({"session_id": session.session_id, **found})


def _read(session: Session, payload: c.FileRead) -> r.FileReadResponse:
    where = (payload.path, session.working_directory, payload.offset, payload.limit)
    found = read_lines(default_jail(), *where)
    return r.FileReadResponse.model_validate({"session_id": session.session_id, **found})


def _status(session: Session, payload: c.GitStatusRequest) -> r.GitStatusResponse:
    place, jail = repository_of(session.working_directory)
    return status.status(place, jail, session.session_id)


def _diff(session: Session, payload: c.GitDiff) -> r.GitDiffResponse:
    place, jail = repository_of(session.working_directory)
    return diff.diff(place, jail, session.session_id, payload.files, cached=payload.cached)


def _commit(session: Session, payload: c.GitCommit, begun: datetime | None) -> r.GitStatusResponse:
    place, jail = repository_of(session.working_directory)
    committed = commit.commit(place, jail, payload.message, payload.files, begun=begun)
    return status.status(place, jail, session.session_id, committed)


def _record(device: Device | None, session: Session, made: GitCommitSummary | None) -> None:
    assert made is not None
    about = {"session_id": session.session_id, "subject": made.hash}
    audit.record("commit", device=device, summary=made.summary[: limits.TITLE_MAX_CHARS], **about)
