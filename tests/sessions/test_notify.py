"""What a process hears of others through a Redis that goes and comes (D46)."""

import asyncio
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from channels_redis.pubsub import RedisPubSubChannelLayer

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.log import notify
from sessions_app.models import Feed
from tests.servers import PATIENCE, Redis, running

SESSION = 7


async def test_a_feed_that_is_joined_while_redis_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is heard afterwards; the tries leave nothing behind, and hold up no stop."""
    heard: list[int] = []
    with running(Redis) as redis:
        monkeypatch.setattr(notify, "conf", conf.model_copy(update={"redis_url": redis.url}))
        monkeypatch.setattr(limits, "REDIS_RETRY_SECONDS", 0.02)
        layer, other = (RedisPubSubChannelLayer(hosts=[redis.url]) for _ in range(2))
        monkeypatch.setattr(notify, "get_channel_layer", lambda: layer)
        tries = Mock(wraps=layer.new_channel)
        monkeypatch.setattr(layer, "new_channel", tries)
        notifier = notify.Notifier(heard.append)

        async def until(condition: Callable[[], bool], *feeds: int) -> None:
            """Publish here, and to the feeds as another process does, until it is so."""
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    notifier.publish({Feed.ALL}, Feed.ALL)
                    for feed in feeds:
                        await other.group_send(f"feed.{feed}", {"type": "log.grew", "upto": feed})
                    await asyncio.sleep(0.02)

        await notifier.join(Feed.ALL)
        await notifier.start()
        await until(lambda: Feed.ALL in heard)
        redis.stop()
        tries.reset_mock()
        await until(lambda: tries.call_count > 10)
        assert len(layer.channels) <= 1
        await notifier.join(SESSION)
        redis.start()
        await until(lambda: SESSION in heard, SESSION)

        stops: list[asyncio.Task[None]] = []
        flush = layer.flush

        async def flush_while_it_stops() -> None:
            stops.append(asyncio.create_task(notifier.stop()))
            await flush()

        monkeypatch.setattr(layer, "flush", flush_while_it_stops)
        redis.stop()
        await until(lambda: bool(stops))
        async with asyncio.timeout(PATIENCE):
            await stops[0]
        await flush()
        await other.flush()
