"""Notify other processes through Redis when rows are appended (D26, D46).

A channel-layer group for each feed, one channel for each process. Without Redis a process finds the
rows of others by polling.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
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

    ``on_notified`` is called with the newest row that a notification names.
    """

    def __init__(self, on_notified: Callable[[int], None]) -> None:
        self._on_notified = on_notified
        self._followers: Counter[int] = Counter()  # feed → sockets of this process
        self._channel: str | None = None  # while Redis is there
        self._grown: set[int] = set()  # feeds to publish
        self._upto = 0
        self._has_grown = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unreachable = False

    async def start(self) -> None:
        if conf.redis_url:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if (task := self._task) is not None:
            self._task = self._channel = None
            self._has_grown.set()  # ends `_publish`, where redis-py swallows its cancellation
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def publish(self, feeds: set[int], upto: int) -> None:
        """Announce that feeds have rows up to ``upto``; bundle several announcements."""
        if self._task is not None:
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
            self._channel = None
            self._has_grown.set()  # so that `_publish` has all begin anew

    async def _run(self) -> None:
        """Listen and publish for ever; begin anew when Redis has been away."""
        layer: Any = get_channel_layer()
        while self._task is not None:
            try:
                channel = await self._open(layer)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._listen(layer, channel))
                    group.create_task(self._publish(layer))
            except* redis_errors() as errors:
                if not self._unreachable and self._task is not None:
                    effect = "processes find each other's rows by polling"
                    log.warning("redis_away", effect=effect, error=str(errors.exceptions[0]))
                self._unreachable = True
            self._channel = None
            # or the layer would keep a channel of each try, and log each second that Redis is away
            with contextlib.suppress(*redis_errors()):
                async with asyncio.timeout(limits.REDIS_SECONDS):
                    await layer.flush()
            await asyncio.sleep(limits.REDIS_RETRY_SECONDS)

    async def _open(self, layer: Any) -> str:
        """Make a channel, and join the groups of all feeds that are followed."""
        async with asyncio.timeout(limits.REDIS_SECONDS):
            channel: str = await layer.new_channel()
            joined: set[int] = set()
            while lacking := self._followers.keys() - joined:  # more may come meanwhile
                for feed_id in lacking:
                    await layer.group_add(GROUP.format(feed_id), channel)
                joined |= lacking
        self._channel, self._unreachable = channel if self._task is not None else None, False
        return channel

    async def _listen(self, layer: Any, channel: str) -> None:
        try:
            while True:
                self._on_notified((await layer.receive(channel))["upto"])
        finally:
            self._channel = None
            self._has_grown.set()  # ends `_publish`, as above

    async def _publish(self, layer: Any) -> None:
        try:
            while True:
                await self._has_grown.wait()
                if self._channel is None:
                    raise ConnectionError("a group was not changed")
                self._has_grown.clear()
                feeds, self._grown = self._grown, set()
                message = {"type": "log.grew", "upto": self._upto}
                async with asyncio.timeout(limits.REDIS_SECONDS):
                    for feed_id in feeds:
                        await layer.group_send(GROUP.format(feed_id), message)
        finally:
            self._channel = None  # `_listen` ends, and then the layer knows it no more
