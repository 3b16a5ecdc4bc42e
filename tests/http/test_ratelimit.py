"""Rate limits and the count of failed authentications (D16, D17, D46)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.redis import RedisCache
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from bridge_project.http import ratelimit
from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.text import network_of
from tests.http.conftest import Api
from tests.servers import Redis

Clock = time_machine.Traveller


def use_up(group: str, token: str | None, address: str = "192.0.2.1") -> None:
    for _ in range(int(limits.RATES[group].partition("/")[0])):
        ratelimit.check(group, token, address)


def is_limited(group: str, token: str | None, address: str = "192.0.2.1") -> int | None:
    failure = None
    try:
        ratelimit.check(group, token, address)
    except BridgeError as error:
        failure = error
    if failure is None:
        return None
    wait: int = failure.fields["retry_after"]
    assert (failure.code, failure.headers) == ("RATE_LIMIT_EXCEEDED", {"Retry-After": str(wait)})
    return wait


def test_a_token_named_like_an_address_is_another(limited: Clock) -> None:
    use_up("status", None, "192.0.2.1")
    assert is_limited("status", "192.0.2.1") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("unix", "unix", True),
    ],
)
def test_what_is_one_address(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same


# -- over HTTP -------------------------------------------------------------------------------------


def test_a_wrong_kind_at_the_hooks_is_a_failure_too(limited: Clock, device: Api) -> None:
    assert [device.post("/hooks/event", "{}").status_code for _ in range(11)] == [401] * 10 + [429]


# -- without Redis ---------------------------------------------------------------------------------


class GoneCache(BaseCache):
    """A Redis that is away; ``asked`` counts how often somebody waited for it."""

    asked = 0

    def add(self, *args: Any, **kwargs: Any) -> bool:
        type(self).asked += 1
        raise RedisConnectionError("Connection refused")

    incr = get = add


def test_redis_away_means_counting_alone(limited: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "shared_cache", lambda: GoneCache({}))
    GoneCache.asked = 0
    caches["local"].clear()
    with capture_logs() as logs:
        use_up("hooks.batch", None)
        assert is_limited("hooks.batch", None) is not None
    assert GoneCache.asked == 1, "one request found it away, the others did not wait for it"
    assert [entry["event"] for entry in logs] == ["redis_unreachable"]


def test_redis_that_goes_between_two_commands(
    limited: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """django-ratelimit adds, then increments: the local cache knows nothing of what was added to
    the shared one.
    """

    class Half(GoneCache):
        def add(self, *args: Any, **kwargs: Any) -> bool:
            return False

    monkeypatch.setattr(ratelimit, "shared_cache", lambda: Half({}))
    caches["local"].clear()
    assert is_limited("status", None) is None


def test_two_processes_share_a_count_in_redis_and_each_has_its_own_without(
    limited: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Redis(tmp_path)
    server.start()
    try:
        for _ in range(2):  # each process has its own client
            client = RedisCache(server.url, {"OPTIONS": {"socket_connect_timeout": 1}})
            monkeypatch.setattr(ratelimit, "shared_cache", lambda client=client: client)
            for _ in range(5):
                assert is_limited("hooks.batch", None) is None
        assert is_limited("hooks.batch", None) is not None
    finally:
        server.stop()
    caches["local"].clear()
    use_up("hooks.batch", None)
    assert is_limited("hooks.batch", None) is not None
