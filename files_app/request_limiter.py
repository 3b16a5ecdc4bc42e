"""Limit how many file answers are in memory; end git when the server stops."""

import asyncio
from typing import Final

from bridge_project.http.asgi_types import Application, Message, Receive, Scope, Send
from bridge_project.kernel import child_process, limits
from bridge_project.kernel.threads import files
from files_app.git.sandbox import mirror

FILES_PATH: Final = "/api/v1/files/"


class FileRequestLimiter:
    """Answer a few requests to /files/… at a time, in the ``files`` threads.

    An ASGI application in front of another. An answer counts until its last piece is handed to the
    connection, since it is in memory until then: clients that do not read hold at most
    FILE_ANSWERS. An answer that takes FILE_ANSWER_SECONDS to send is cut.
    """

    def __init__(self, application: Application) -> None:
        self.application = application
        self.places = asyncio.Semaphore(limits.FILE_ANSWERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(FILES_PATH):
            await self.application(scope, receive, send)
            return
        scope = {**scope, "bridge.threads": files}
        async with self.places:
            try:
                async with asyncio.timeout(None) as limit:

                    async def send_in_time(message: Message) -> None:
                        if limit.when() is None:
                            now = asyncio.get_running_loop().time()
                            limit.reschedule(now + limits.FILE_ANSWER_SECONDS)
                        await send(message)

                    await self.application(scope, receive, send_in_time)
            except TimeoutError:
                raise asyncio.CancelledError from None  # the server cuts what is not whole


async def start() -> None:
    await files.run(mirror.forget_leftovers)


async def stop() -> None:
    """End git: the bridge does not wait for a commit's hooks."""
    await asyncio.to_thread(child_process.end_all)
