"""Run one coroutine in the background of a serving process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def background_task(run: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Run a coroutine function as a task; at the end cancel it and wait for its end."""
    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
