"""Start and stop the background work of a serving process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import structlog

from bridge_project.composition import chores
from bridge_project.operations import monitors
from files_app import request_limiter
from hooks_app.producer import server_forwarder
from sessions_app import polling, push
from sessions_app.agents.supervisor import supervisor

log = structlog.get_logger(__name__)

SERVICE_STOP_SECONDS = 10  # one that hangs cannot keep the others from being stopped


Step = Callable[[], Awaitable[None]]

# name, start and stop of each background service
WORKS: Final[tuple[tuple[str, Step, Step], ...]] = (
    ("sessions", polling.start, polling.stop),
    ("push", push.start, push.stop),
    ("chores", chores.task.start, chores.task.stop),
    ("agents", supervisor.start, supervisor.stop),
    ("git", request_limiter.start, request_limiter.stop),
    ("forwarder", server_forwarder.start, server_forwarder.stop),
    ("address", monitors.address.start, monitors.address.stop),
    ("data files", monitors.data_files.start, monitors.data_files.stop),
)

_started: Final = AsyncExitStack()  # how to stop what runs


async def start_all() -> None:
    """Start the services of WORKS in order; if one fails, stop the others and raise."""
    try:
        for name, start, stop in WORKS:
            await start()
            _started.push_async_callback(_stop, name, stop)
    except BaseException:
        await stop_all()
        raise


async def stop_all() -> None:
    """Stop all started works, the last first, even when one of them fails."""
    await _started.aclose()


async def _stop(name: str, stop: Step) -> None:
    try:
        async with asyncio.timeout(SERVICE_STOP_SECONDS):
            await stop()
    except Exception as error:  # noqa: BLE001 - the next one must still be stopped
        log.error("background work did not stop in order", work=name, error=repr(error))
