"""Notify other processes through Redis when rows are appended (D26, D46).

A channel-layer group for each feed, one channel for each process. Without Redis a process finds the
rows of others by polling.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from channels.layers import get_channel_layer

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.redis import redis_errors

log = structlog.get_logger("bridge.log")
GROUP = "feed.{}"  # of the channel layer, one for each feed


class Notifier:
    """Publish that feeds have grown, and receive it; do nothing without Redis.

    ``heard`` is called with the newest row that a notification names.
    """

    def __init__(self, heard: Callable[[int], None]) -> None:
        self._heard = heard
        self._followers: Counter[int] = Counter()  # feed → sockets of this process
        self._channel: str | None = None  # while Redis is there
        self._grown: set[int] = set()  # feeds to publish
        self._upto = 0
        self._has_grown = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._away = False

    async def start(self) -> None:
        if conf.redis_url:
            self._tasks = [
                asyncio.create_task(self._repeat(work)) for work in (self._listen, self._publish)
            ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def publish(self, feeds: set[int], upto: int) -> None:
        """Announce that feeds have rows up to ``upto``; bundle several announcements."""
        if self._tasks:
            self._grown |= feeds
            self._upto = max(upto, self._upto)
            self._has_grown.set()

    async def join(self, feed_id: int) -> None:
        """Subscribe to a feed for one more socket."""
        self._followers[feed_id] += 1
        if self._followers[feed_id] == 1:
            await self._change_group("group_add", feed_id)

    async def leave(self, feed_id: int) -> None:
        self._followers[feed_id] -= 1
        if self._followers[feed_id] <= 0:
            del self._followers[feed_id]
            await self._change_group("group_discard", feed_id)

    async def _change_group(self, change: str, feed_id: int) -> None:
        if self._channel is None:
            return  # when Redis is there again, all groups are joined
        layer: Any = get_channel_layer()
        try:
            async with asyncio.timeout(limits.REDIS_SECONDS):
                await getattr(layer, change)(GROUP.format(feed_id), self._channel)
        except redis_errors() as error:
            log.warning("group_not_changed", change=change, error=str(error))

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step for ever; while Redis is away, try again now and then."""
        while True:
            try:
                await work()
            except redis_errors() as error:
                if work == self._listen:
                    self._channel = None
                if not self._away:
                    effect = "processes find each other's rows by looking"
                    log.warning("redis_away", effect=effect, error=str(error))
                self._away = True
                await asyncio.sleep(limits.REDIS_RETRY_SECONDS)

    async def _listen(self) -> None:
        layer: Any = get_channel_layer()
        async with asyncio.timeout(limits.REDIS_SECONDS):
            channel = await layer.new_channel()
            for feed_id in list(self._followers):
                await layer.group_add(GROUP.format(feed_id), channel)
        self._channel, self._away = channel, False
        while True:
            self._heard((await layer.receive(channel))["upto"])

    async def _publish(self) -> None:
        await self._has_grown.wait()
        self._has_grown.clear()
        layer: Any = get_channel_layer()
        feeds, self._grown = self._grown, set()
        async with asyncio.timeout(limits.REDIS_SECONDS):
            for feed_id in feeds:
                await layer.group_send(
                    GROUP.format(feed_id), {"type": "log.grew", "upto": self._upto}
                )
