"""The channel layer's connections to Redis notice a network that is gone without a word (D46): what the system itself knows of them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from channels_redis.pubsub import RedisPubSubChannelLayer

from bridge_project.away import redis_host
from tests.servers import Redis, wait_until

KEEPALIVE = "02"  # the timer of a connection on which nothing is under way
JIFFIES = 100  # a second, in /proc


def timers(port: int) -> list[tuple[str, float]]:
    """Of each connection to a local port: which timer of the kernel runs, and in how many seconds it is over."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, _, timer, *_ = line.split()
        if state == "01" and int(remote.rpartition(":")[2], 16) == port:
            kind, _, when = timer.partition(":")
            found.append((kind, int(when, 16) / JIFFIES))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
async def test_a_subscriber_that_only_listens_is_probed_after_seconds(redis_server: Redis) -> None:
    layer: Any = RedisPubSubChannelLayer(hosts=[redis_host(redis_server.url)])
    port = urlsplit(redis_server.url).port
    assert port is not None
    before = len(timers(port))
    channel = await layer.new_channel()
    await layer.group_add("feed.1", channel)
    await asyncio.to_thread(wait_until, lambda: len(timers(port)) > before and all(kind == KEEPALIVE for kind, _ in timers(port)), 5, "keepalive on all")
    assert all(seconds <= 5.1 for _, seconds in timers(port)), timers(port)
    await layer.group_send("feed.1", {"type": "log.grew", "upto": 7})
    assert (await asyncio.wait_for(layer.receive(channel), 5))["upto"] == 7
    await layer.flush()


@pytest.mark.parametrize(("url", "network"), [("redis://h:1/0", True), ("rediss://h:1/0", True), ("unix:///run/redis.sock", False)])
def test_what_kinds_of_address_are_told(url: str, network: bool) -> None:
    """A socket of the same machine has no network to lose, and its client takes no such option."""
    from channels_redis.utils import create_pool

    connection = create_pool(redis_host(url)).make_connection()
    assert (redis_host(url).get("socket_keepalive") is True) is network and connection is not None
