"""Start and stop the background work of a serving process."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from bridge_project.composition import chores
from bridge_project.kernel.config import conf
from bridge_project.operations.monitors import AddressUpdater, DataFilesMonitor
from files_app import request_limiter
from hooks_app import config as hook_configuration
from hooks_app.producer import server_forwarder
from sessions_app import polling, push
from sessions_app.agents import registry
from sessions_app.agents.supervisor import supervisor

log = structlog.get_logger(__name__)

STOP_SECONDS = 10  # for each work, so that one that hangs cannot keep the others from being stopped


@dataclass(frozen=True, slots=True)
class Work:
    """Describe a background service: its name, and how it starts and stops."""

    name: str
    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]


async def _read_hook_configuration() -> None:
    hook_configuration.check()


async def _nothing() -> None:
    pass


_address = AddressUpdater(conf)
_data_files = DataFilesMonitor(conf)

WORKS: tuple[Work, ...] = (
    Work("hook configuration", _read_hook_configuration, _nothing),
    Work("sessions", polling.start, polling.stop),
    Work("push", push.start, push.stop),
    Work("chores", chores.task.start, chores.task.stop),
    Work("agents", supervisor.start, supervisor.stop),
    # of the agents that the supervisor has loaded
    Work("agent versions", registry.start, registry.stop),
    Work("git", request_limiter.start, request_limiter.stop),
    Work("forwarder", server_forwarder.start, server_forwarder.stop),
    Work("address", _address.start, _address.stop),
    Work("data files", _data_files.start, _data_files.stop),
)

_running: list[Work] = []


async def start_all() -> None:
    """Start WORKS in order; when one fails, stop those before it and raise."""
    for work in WORKS:
        try:
            await work.start()
        except BaseException:
            await stop_all()
            raise
        _running.append(work)


async def stop_all() -> None:
    """Stop all started works, the last first, even when one of them fails."""
    while _running:
        work = _running.pop()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await work.stop()
        except Exception as error:  # noqa: BLE001 - the next one must still be stopped
            log.error("background work did not stop in order", work=work.name, error=repr(error))
