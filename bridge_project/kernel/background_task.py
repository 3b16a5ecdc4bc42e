"""Run one coroutine in the background of a serving process, until it is stopped."""

import asyncio
from collections.abc import Callable, Coroutine


class BackgroundTask:
    """Run a coroutine function as a task; `stop` cancels it and waits for its end."""

    def __init__(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        self._run = run
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
