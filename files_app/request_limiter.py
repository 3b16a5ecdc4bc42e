"""Limit how many file answers are in memory; end git when the server stops."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from bridge_project.http.asgi_types import Application, Message, Receive, Scope, Send
from bridge_project.kernel import child_process, limits
from bridge_project.kernel.threads import files
from files_app.git.sandbox import mirror

# /files/…, and what was attached to a session
FILES_PATH: Final = re.compile(r"(?s)/api/v1/(files/|sessions/.+/attachments/)")


class FileRequestLimiter:
    """Answer a few requests for files at a time, in the ``files`` threads.

    An ASGI application in front of another. An answer counts until its last piece is handed to the
    connection, since it is in memory until then: clients that do not read hold at most
    FILE_ANSWERS. An answer that takes FILE_ANSWER_SECONDS to send is cut while others wait.
    """

    def __init__(self, application: Application) -> None:
        self.application = application
        self.places = asyncio.Semaphore(limits.FILE_ANSWERS)
        self.waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not FILES_PATH.match(scope["path"]):
            await self.application(scope, receive, send)
            return
        self.waiting += 1
        try:
            await self.places.acquire()
        finally:
            self.waiting -= 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self.places.release()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        timer: asyncio.TimerHandle | None = None

        def hurry(seconds: float) -> None:
            nonlocal timer
            timer = loop.call_later(seconds, end_if_others_wait)

        def end_if_others_wait() -> None:
            if self.waiting and task is not None:
                task.cancel()  # the server cuts an answer that is not whole
            else:
                hurry(1.0)

        async def send_in_time(message: Message) -> None:
            if timer is None:
                hurry(limits.FILE_ANSWER_SECONDS)
            await send(message)

        try:
            await self.application({**scope, "bridge.threads": files}, receive, send_in_time)
        finally:
            if timer is not None:
                timer.cancel()


@asynccontextmanager
async def allow_git() -> AsyncIterator[None]:
    """Clean up after dead processes; at the end stop git, with a commit's hooks."""
    await files.run(mirror.forget_leftovers)
    yield
    await asyncio.to_thread(child_process.end_all)
