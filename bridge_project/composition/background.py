"""Start and stop the background work of a serving process."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Final

import structlog

from bridge_project.composition import chores, monitors
from bridge_project.kernel.background_task import background_task
from files_app import request_limiter
from hooks_app import terminals
from hooks_app.producer import server_forwarder
from sessions_app import polling, push, search
from sessions_app.agents import later
from sessions_app.agents.supervisor import supervisor
from sessions_app.approvals import waiting_hooks

log = structlog.get_logger(__name__)

SERVICE_STOP_SECONDS = 10  # one that hangs cannot keep the others from being stopped

# name → background service, from its start to its stop
WORKS: Final[dict[str, Callable[[], AbstractAsyncContextManager[None]]]] = {
    "sessions": polling.follow_log,
    "push": push.send_pushes,
    "chores": partial(background_task, chores.repeat),
    "agents": supervisor.run_agents,
    "git": request_limiter.allow_git,
    "forwarder": server_forwarder.forward_spool,
    "answers": partial(background_task, waiting_hooks.follow),
    "later": partial(background_task, partial(later.follow, supervisor.resume)),
    "search": partial(background_task, search.follow),
    "terminals": partial(background_task, terminals.follow),
    "address": partial(background_task, monitors.follow_address),
    "data files": monitors.guard_data_files,
}

_started: Final = AsyncExitStack()  # how to stop what runs


async def start_all() -> None:
    """Start the services of WORKS in order; if one fails, stop the others and raise."""
    try:
        for name, work in WORKS.items():
            running = AsyncExitStack()
            await running.enter_async_context(work())
            _started.push_async_callback(_stop, name, running)
    except BaseException:
        await stop_all()
        raise


async def stop_all() -> None:
    """Stop all services that were started, the last one first, whatever fails."""
    await _started.aclose()


async def _stop(name: str, running: AsyncExitStack) -> None:
    try:
        async with asyncio.timeout(SERVICE_STOP_SECONDS):
            await running.aclose()
    except Exception as error:  # noqa: BLE001 - the next one must still be stopped
        log.error("background work did not stop in order", work=name, error=repr(error))
