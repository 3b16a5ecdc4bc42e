"""Answer requests about files and git (SPEC File and Git resources; D10 to D12).

Large replies and their JSON are made in threads, so that other sockets go on.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

import structlog

from bridge_project.kernel import limits, threads
from bridge_project.kernel.disk_threads import DiskThreads
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import default_jail, shown
from bridge_project.kernel.path_walk import Names
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import repository_messages as r
from bridge_project.protocol.base import ClientPayload, Payload
from bridge_project.protocol.catalogue import Encoded, encode
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.resources import GitCommitSummary
from devices_app import audit
from devices_app.models import Device
from files_app.content import read_lines
from files_app.git import commit, diff, push, status
from files_app.git.repository import repository_of
from files_app.git.sandbox.error_text import git_error
from files_app.git.trust import Trusted, holds
from files_app.search import Search
from files_app.tree import ignored_below, listing
from sessions_app.handlers.session import session_of
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection, Handler, SocketRequest
from sessions_app.working_directory import Repository, branch_of

log = structlog.get_logger("bridge.git")

P = TypeVar("P", bound=ClientPayload)


def _in_threads(pool: DiskThreads) -> Callable[[Callable[[Session, P], Payload]], Handler]:
    """Make a handler of a function of session and payload, called in a thread."""

    def handler(make: Callable[[Session, P], Payload]) -> Handler:
        async def answer(socket: ClientConnection, message: ClientMessage) -> None:
            session = await session_of(socket, message)

            def reply() -> Encoded:
                return encode(make(session, message.payload), id=message.id)

            # a relative path begins in the working directory, an absolute one does not
            where = os.path.join(session.working_directory, getattr(message.payload, "path", ""))
            await socket.send_frame(await pool.run(where, reply))

        return answer

    return handler


@_in_threads(threads.disk)
def file_list(session: Session, payload: c.FileList) -> r.FileListResponse:
    found = listing(default_jail(), payload.path, session.working_directory)
    return r.FileListResponse.model_validate({"session_id": session.session_id, **found})


@_in_threads(threads.disk)
def file_read(session: Session, payload: c.FileRead) -> r.FileReadResponse:
    where = (payload.path, session.working_directory, payload.offset, payload.limit)
    found = read_lines(default_jail(), *where)
    return r.FileReadResponse.model_validate({"session_id": session.session_id, **found})


async def file_search(socket: ClientConnection, message: SocketRequest) -> r.FileSearchResponse:
    """Search while git says what it ignores; if it is late, that counts the next time."""
    session, payload = await session_of(socket, message), message.payload
    directory = session.working_directory
    search = Search(default_jail(), directory, payload.query)
    until = time.monotonic() + limits.FILE_SEARCH_SECONDS
    ignored = _ignored_below(directory)
    await threads.disk.run(directory, search.run)
    await asyncio.wait({ignored}, timeout=max(0, until - time.monotonic()))
    last = ignored.result() if ignored.done() and not ignored.exception() else frozenset()
    paths = await threads.disk.run(directory, search.best, payload.limit, last)
    return r.FileSearchResponse(session_id=session.session_id, paths=paths, more=search.more)


_ignored: dict[str, asyncio.Task[Collection[Names]]] = {}  # directory → the newest look-up


def _ignored_below(directory: str) -> asyncio.Task[Collection[Names]]:
    """Return the look-up of what git ignores there, the same one for some seconds."""
    if (task := _ignored.get(directory)) is None:
        task = asyncio.create_task(threads.git.run(directory, ignored_below, directory))
        _ignored[directory] = task
        loop = asyncio.get_running_loop()
        forget = partial(_ignored.pop, directory, None)
        task.add_done_callback(lambda _: loop.call_later(limits.FILE_IGNORED_SECONDS, forget))
    return task


@_in_threads(threads.git)
def git_status_request(session: Session, payload: c.GitStatusRequest) -> r.GitStatusResponse:
    place = repository_of(session.working_directory)
    return status.status(place, session.session_id, trusted=holds)


@_in_threads(threads.git)
def git_diff(session: Session, payload: c.GitDiff) -> r.GitDiffResponse:
    place = repository_of(session.working_directory)
    files, cached = payload.files, payload.cached
    return diff.diff(place, session.session_id, files, cached=cached, trusted=holds)


async def git_commit(socket: ClientConnection, message: SocketRequest) -> r.GitStatusResponse:
    """Commit, and return the fresh status with the commit."""
    session = await session_of(socket, message)
    where, about = session.working_directory, (session, message.payload, message)
    place, made = await threads.git.run(where, _commit, socket.device, *about)
    await threads.writers.run(_record, socket.device, session, made)
    return await threads.git.run(where, _committed, session, place, made)


def _commit(
    device: Device | None, session: Session, payload: c.GitCommit, request: SocketRequest
) -> tuple[Repository, GitCommitSummary]:
    place = _seen(session, payload.repository)
    with Trusted(place, device, session.session_id, payload.trust, "commit") as trusted:
        return place, commit.commit(
            place,
            payload.message,
            payload.files,
            begun=request.begun,
            request_id=request.own_id,
            head=payload.head,
            check=trusted.check,
        )


async def git_push(socket: ClientConnection, message: SocketRequest) -> r.GitPushResponse:
    """Push the current branch, or say what would go."""
    session = await session_of(socket, message)
    where = session.working_directory
    answer = await threads.git.run(where, _push, socket.device, session, message.payload)
    if answer.pushed:
        await threads.writers.run(_record_push, socket.device, answer)
    return answer


def _push(device: Device | None, session: Session, payload: c.GitPush) -> r.GitPushResponse:
    place = _seen(session, payload.repository)
    to = push.target(place, set_upstream=payload.set_upstream)
    to.check(branch=payload.branch, url=payload.url)
    how: dict[str, Any] = {"head": payload.head, "dry_run": payload.dry_run}
    if payload.dry_run:
        return push.push(place, session.session_id, to, **how)
    by = (device, session.session_id, payload.trust)
    with Trusted(place, *by, "push", *to.urls) as trusted:
        return push.push(place, session.session_id, to, check=trusted.check, **how)


def _record_push(device: Device | None, answer: r.GitPushResponse) -> None:
    about = {"session_id": answer.session_id, "subject": f"{answer.remote} {answer.branch}"}
    audit.record("push", device=device, commits=answer.count, url=answer.url, **about)


def _seen(session: Session, repository: str | None) -> Repository:
    """Return the session's repository; GIT_ERROR if the client has seen another one."""
    place = repository_of(session.working_directory)
    if repository is not None and repository != shown(place.top):
        raise git_error("The repository has moved on: the session is in another one now.")
    return place


def _committed(session: Session, place: Repository, made: GitCommitSummary) -> r.GitStatusResponse:
    """Return the status with a commit, which stands also when git has no status now."""
    try:
        return status.status(place, session.session_id, made, trusted=holds)
    except BridgeError as error:
        log.warning("no_status_after_commit", session=session.session_id, reason=error.message)
        return r.GitStatusResponse(
            session_id=session.session_id,
            repository=shown(place.top),
            head=made.hash,
            branch=branch_of(session.working_directory),
            ahead=0,
            behind=0,
            is_clean=False,
            changes=[],
            commit=made,
            truncated=True,
        )


def _record(device: Device | None, session: Session, made: GitCommitSummary) -> None:
    about = {"session_id": session.session_id, "subject": made.hash}
    audit.record("commit", device=device, summary=made.summary[: limits.TITLE_MAX_CHARS], **about)
