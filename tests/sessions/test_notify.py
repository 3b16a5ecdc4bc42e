"""What a process hears of others through a Redis that goes and comes (D46)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from unittest.mock import Mock

import pytest
from channels_redis.pubsub import RedisPubSubChannelLayer

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.log import notify
from sessions_app.models import Feed
from tests.servers import PATIENCE, Redis, running

SESSION = 7


@pytest.fixture
def redis(monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    with running(Redis) as redis:
        changed = conf.model_copy(update={"redis_url": redis.create_database()})
        monkeypatch.setattr(notify, "conf", changed)
        monkeypatch.setattr(limits, "REDIS_RETRY_SECONDS", 0.02)
        yield redis


class Process:
    """A notifier with a channel layer of its own, and another process beside it."""

    def __init__(self, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        hosts = [redis.create_database()]
        self.layer, self.other = (RedisPubSubChannelLayer(hosts=hosts) for _ in range(2))
        monkeypatch.setattr(notify, "get_channel_layer", lambda: self.layer)
        self.heard: list[int] = []
        self.notifier = notify.Notifier(self.heard.append)

    async def start(self) -> None:
        await self.notifier.join(Feed.ALL)
        await self.notifier.start()
        await self.until(lambda: Feed.ALL in self.heard)

    async def until(self, condition: Callable[[], bool], *feeds: int) -> None:
        """Publish here, and to the feeds as another process does, until it is so."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.notifier.publish({Feed.ALL}, Feed.ALL)
                for feed in feeds:
                    message = {"type": "log.grew", "upto": feed}
                    await self.other.group_send(f"feed.{feed}", message)
                await asyncio.sleep(0.02)


async def test_a_feed_that_is_joined_while_redis_is_away(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is heard afterwards; the tries leave nothing behind, and hold up no stop."""
    process = Process(redis, monkeypatch)
    layer, notifier = process.layer, process.notifier
    tries = Mock(wraps=layer.new_channel)
    monkeypatch.setattr(layer, "new_channel", tries)
    await process.start()
    redis.stop()
    tries.reset_mock()
    await process.until(lambda: tries.call_count > 10)
    assert len(layer.channels) <= 1
    await notifier.join(SESSION)
    redis.start()
    await process.until(lambda: SESSION in process.heard, SESSION)

    stops: list[asyncio.Task[None]] = []
    flush = layer.flush

    async def flush_while_it_stops() -> None:
        stops.append(asyncio.create_task(notifier.stop()))
        await flush()

    monkeypatch.setattr(layer, "flush", flush_while_it_stops)
    redis.stop()
    await process.until(lambda: bool(stops))
    async with asyncio.timeout(PATIENCE):
        await stops[0]
    await flush()
    await process.other.flush()


@pytest.mark.parametrize("call", ["group_send", "group_add"])
async def test_a_stop_that_redis_py_swallows(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It does so when it is cancelled in the moment in which it is done."""
    process, calls = Process(redis, monkeypatch), 0

    async def never_done(*_: object) -> None:
        nonlocal calls
        calls += 1
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    if call == "group_send":
        await process.start()
        monkeypatch.setattr(process.layer, call, never_done)
    else:
        monkeypatch.setattr(process.layer, call, never_done)
        await process.notifier.join(Feed.ALL)
        await process.notifier.start()
    await process.until(lambda: bool(calls))
    async with asyncio.timeout(PATIENCE):
        await process.notifier.stop()
    await process.other.flush()
