"""Work that runs beside the requests of one serving process: rooms register it, ``serve`` starts
and stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)

# for each piece of work, so that one that hangs cannot keep the others from being stopped
STOP_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]


_registered: dict[str, Work] = {}
_running: list[Work] = []


def register(
    name: str, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]
) -> None:
    """Name a piece of work; called from ``AppConfig.ready``. Both callables run on the server's
    event loop and return when done.

    Raises ValueError when the name is taken.
    """
    if name in _registered:
        raise ValueError(f"background work {name!r} is registered twice")
    _registered[name] = Work(name, start, stop)


async def start_all() -> None:
    """Start everything in the order of registration. When one fails, those before it are stopped
    and its error is raised.
    """
    for work in _registered.values():
        try:
            await work.start()
        except BaseException:
            await stop_all()
            raise
        _running.append(work)


async def stop_all() -> None:
    """Stop what was started, the last one first. A failure is logged and does not keep the others
    running.
    """
    while _running:
        work = _running.pop()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await work.stop()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next one must still be stopped
            log.error("background work did not stop in order", work=work.name, error=repr(error))
