"""Run blocking work in threads, one pool for each kind of work.

Work in one pool never waits for work in another, so a slow git or a chore of minutes delays no hook
event. All work with the database runs here, since these threads keep their connections. Rare work
without the database uses `asyncio.to_thread`. A loop that blocks as long as the process lives (the
forwarder's) has a thread of its own.
"""

import asyncio
import contextvars
import logging
import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import structlog
from django.db import Error, connection

from bridge_project.kernel import limits
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.disk_threads import DiskThreads

log = structlog.get_logger("bridge.database")

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Run calls in a few threads that keep their database connections.

    Calls wait for a free thread. A call that began is finished, whether or not somebody still waits
    for it. A connection that PostgreSQL has ended is replaced before it is used, and one that broke
    in use is dropped: so the bridge connects again after a restart of the server.
    """

    def __init__(self, name: str, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in one of the threads, with the caller's context variables."""
        call = partial(_call, function, *args, **kwargs)
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, call)

    async def retry(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` like `run`, again and again while the database is away.

        It may have committed although its answer was lost: a repetition must do no harm.
        """
        away = False
        while True:
            try:
                return await self.run(function, *args, **kwargs)
            except STORAGE_ERRORS as error:
                if not away:
                    name = getattr(function, "__qualname__", "")
                    log.warning("waits_for_database", call=name, error=error.__class__.__name__)
                away = True
                await asyncio.sleep(limits.POLL_SECONDS)

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call of `function`; callable from any thread."""
        return self._pool.submit(partial(_call, function, *args, **kwargs))


def _call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    if _has_ended():
        connection.close()  # the next query opens another
    try:
        with connection.wrap_database_errors:  # closing a cursor raises the driver's
            return function(*args, **kwargs)
    except Error:
        connection.close_if_unusable_or_obsolete()
        raise


def _has_ended() -> bool:
    """Return whether PostgreSQL has ended the kept connection.

    Between transactions the server sends nothing, so a connection with bytes to read has ended.
    Asking it (`SELECT 1`) would cost every call a round trip. A failed query is never sent again:
    it may have been executed.
    """
    kept: Any = connection.connection
    if connection.vendor != "postgresql" or kept is None or connection.in_atomic_block:
        return False
    if kept.closed:
        return True
    polled = select.poll()
    polled.register(kept.fileno(), select.POLLIN)
    return bool(polled.poll(0))


def exit_after(seconds: float, code: int) -> None:
    """End this process after ``seconds``, even if its threads still run.

    Python waits for them at its end, and for all that is queued: for ever, when a database, a disk
    or a name server does not answer.
    """

    def leave() -> None:
        log.warning("threads_left", seconds=seconds)
        logging.shutdown()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True  # it keeps no process that ends by itself
    timer.start()


requests: Final = Threads("http", 8)  # Django's views: one that waits must not hold the others up
readers: Final = Threads("db-read", 2)  # short queries of sockets and agents
writers: Final = Threads("db-write", 1)  # their transactions: SQLite takes one at a time
ingestion: Final = Threads("db-ingest", 1)  # hook events, which wait for nothing else
agent_writers: Final = Threads("db-agents", 1)  # what agents say, in order
chores: Final = Threads("db-chores", 1)  # deleting may take minutes
search: Final = Threads("search", 1)  # looks through all that was said, and follows the log
terminals: Final = Threads("terminals", 1)  # what their agents do; a registry may hang
answers: Final = Threads("answers", 1)  # hooks that wait; a decision goes through here
health: Final = Threads("health", 8)  # a check may hang
names: Final = Threads("names", 1)  # a name server may not answer
files: Final = Threads("files", limits.FILE_READERS)  # views of files; `disk` reads for them
disk: Final = DiskThreads("disk", limits.DISK_THREADS_HUNG, _call)
paths: Final = Threads("paths", 64)  # to find where a path leads; one that hangs keeps its thread
git: Final = DiskThreads("git", limits.GIT_PROCESSES, _call)
push: Final = Threads("push", limits.PUSH_SENDERS)  # a push service may not answer
addresses: Final = Threads("addresses", limits.PUSH_SENDERS)  # each waits NOTIFY_SECONDS at most
push_requests: Final = Threads("push-asked", limits.PUSH_REQUEST_SENDERS)  # for a device that waits
