"""The bell between processes: a group of the channel layer for each session's feed, and one channel
for each process (D26, D46).

A socket needs nothing of it: without Redis it is opened, joined and served all the same, and its
process finds the rows of others by looking at the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog
from channels.layers import get_channel_layer

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.redis import redis_errors

log = structlog.get_logger("bridge.log")


def group_of(feed_id: int) -> str:
    """The channel layer's group of a feed, which is its session's: ASCII and short, whatever the
    session's id is.
    """
    return f"feed.{feed_id}"


class Notifier:
    """Rings for rows that this process has committed, and hears of those that others have. Does
    nothing where there is no Redis.
    """

    def __init__(self, heard: Callable[[int], None]) -> None:
        self._heard = heard
        self._feeds: Counter[int] = Counter()
        self._channel: str | None = None
        self._unsaid: set[int] = set()
        self._upto = 0
        self._said = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._away = False

    async def start(self) -> None:
        if conf.redis_url:
            self._tasks = [
                asyncio.create_task(self._steadily(work)) for work in (self._listen, self._publish)
            ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def publish(self, feeds: set[int], upto: int) -> None:
        """These feeds have new rows, up to ``upto``; commits that come while one is being told are
        told together.
        """
        if self._tasks:
            self._unsaid |= feeds
            self._upto = max(upto, self._upto)
            self._said.set()

    async def join(self, feed_id: int) -> None:
        """A socket of this process wants to hear of a feed."""
        self._feeds[feed_id] += 1
        if self._feeds[feed_id] == 1:
            await self._group("group_add", feed_id)

    async def leave(self, feed_id: int) -> None:
        self._feeds[feed_id] -= 1
        if self._feeds[feed_id] <= 0:
            del self._feeds[feed_id]
            await self._group("group_discard", feed_id)

    async def _group(self, change: str, feed_id: int) -> None:
        if self._channel is None:
            return  # when Redis is there again, all groups are joined
        layer: Any = get_channel_layer()
        try:
            async with asyncio.timeout(limits.REDIS_SECONDS):
                await getattr(layer, change)(group_of(feed_id), self._channel)
        except redis_errors() as error:
            log.warning("group_not_changed", change=change, error=str(error))

    async def _steadily(self, work: Callable[[], Any]) -> None:
        """Do it for ever; while Redis is away, try again now and then."""
        while True:
            try:
                await work()
            except redis_errors() as error:
                if work == self._listen:
                    self._channel = None
                if not self._away:
                    log.warning(
                        "redis_away",
                        effect="processes find each other's rows by looking",
                        error=str(error),
                    )
                self._away = True
                await asyncio.sleep(limits.REDIS_RETRY_SECONDS)

    async def _listen(self) -> None:
        layer: Any = get_channel_layer()
        async with asyncio.timeout(limits.REDIS_SECONDS):
            channel = await layer.new_channel()
            for feed_id in list(self._feeds):
                await layer.group_add(group_of(feed_id), channel)
        self._channel, self._away = channel, False
        while True:
            self._heard((await layer.receive(channel))["upto"])

    async def _publish(self) -> None:
        await self._said.wait()
        self._said.clear()
        layer: Any = get_channel_layer()
        feeds, self._unsaid = self._unsaid, set()
        async with asyncio.timeout(limits.REDIS_SECONDS):
            for feed_id in feeds:
                await layer.group_send(group_of(feed_id), {"type": "log.grew", "upto": self._upto})
