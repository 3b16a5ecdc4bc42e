"""Rate limits and the count of failed authentications (D16, D17, D46)."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.http.conftest import Api, check_error
from tests.servers import Redis

Clock = time_machine.Traveller


class Somebody:
    def __init__(self, rate_key: str) -> None:
        self.rate_key = rate_key


def use_up(group: str, principal: Somebody | None, address: str = "192.0.2.1") -> None:
    for _ in range(int(limits.RATES[group].partition("/")[0])):
        ratelimit.check(group, principal, address)


def is_limited(group: str, principal: Somebody | None, address: str = "192.0.2.1") -> int | None:
    failure = None
    try:
        ratelimit.check(group, principal, address)
    except BridgeError as error:
        failure = error
    if failure is None:
        return None
    wait: int = failure.fields["retry_after"]
    assert (failure.code, failure.headers) == ("RATE_LIMIT_EXCEEDED", {"Retry-After": str(wait)})
    return wait


@pytest.mark.parametrize(
    ("group", "rate"),
    [
        ("status", 60),
        ("hooks.event", 120),
        ("hooks.batch", 10),
        ("sessions", 30),
        ("files", 60),
        ("admin", 10),
        ("ws", 30),
    ],
)
def test_each_rate_of_the_specification(limited: Clock, group: str, rate: int) -> None:
    one = Somebody("device:1")
    for _ in range(rate):
        assert is_limited(group, one) is None
    wait = is_limited(group, one)
    assert wait is not None and 1 <= wait <= 60
    limited.shift(wait)
    assert is_limited(group, one) is None


def test_each_token_has_its_own_and_no_address_matters(limited: Clock) -> None:
    use_up("sessions", Somebody("device:1"))
    assert is_limited("sessions", Somebody("device:1"), "198.51.100.9") is not None
    assert is_limited("sessions", Somebody("device:2")) is None
    assert is_limited("sessions", None) is None
    assert is_limited("files", Somebody("device:1")) is None


def test_an_address_counts_where_there_is_no_token(limited: Clock) -> None:
    use_up("status", None, "192.0.2.1")
    assert is_limited("status", None, "192.0.2.1") is not None
    assert is_limited("status", None, "192.0.2.2") is None


def test_a_token_named_like_an_address_is_another(limited: Clock) -> None:
    use_up("status", None, "192.0.2.1")
    assert is_limited("status", Somebody("192.0.2.1")) is None


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


def test_off_lifts_every_limit() -> None:
    budget = ratelimit.MessageBudget()
    for _ in range(1300):
        ratelimit.check("hooks.batch", None, "192.0.2.1")
        ratelimit.failed_authentication("192.0.2.1")
        assert budget.take() is None


def test_messages_of_a_connection(limited: Clock) -> None:
    now = 100.0
    budget = ratelimit.MessageBudget(lambda: now)
    other = ratelimit.MessageBudget(lambda: now)
    assert [budget.take() for _ in range(1200)] == [None] * 1200
    assert budget.take() == 60
    now = 130.6
    assert budget.take() == 29
    now = 159.9
    assert budget.take() == 1
    assert other.take() is None
    now = 160.0
    assert [budget.take() for _ in range(1201)][-2:] == [None, 60]


# -- over HTTP -------------------------------------------------------------------------------------


def test_the_answer_to_one_too_many(limited: Clock, hook: Api, db: None) -> None:
    assert [hook.post("/hooks/batch", '{"events":[]}').status_code for _ in range(10)] == [200] * 10
    response = hook.post("/hooks/batch", '{"events":[]}')
    body = check_error(response, "RATE_LIMIT_EXCEEDED", 429)
    assert 1 <= body["retry_after"] <= 60
    assert response.headers["Retry-After"] == str(body["retry_after"])
    assert hook.get("/api/v1/info").status_code == 200
    limited.shift(body["retry_after"])
    assert hook.post("/hooks/batch", '{"events":[]}').status_code == 200


def test_guessing_is_stopped_and_the_right_token_still_works(
    limited: Clock, stranger: Api, hook: Api, pair: Callable[[], Api]
) -> None:
    device = pair()
    guess = Api("bridge_device_" + "x" * 43)
    assert [guess.get("/api/v1/info").status_code for _ in range(11)] == [401] * 10 + [429]
    assert stranger.get("/api/v1/sessions").status_code == 429
    assert guess.get("/api/v1/info", address="192.0.2.7").status_code == 401
    assert device.get("/api/v1/info").status_code == 200
    assert hook.get("/api/v1/info").status_code == 200
    limited.shift(60)
    assert guess.get("/api/v1/info").status_code == 401


def test_a_wrong_kind_at_the_hooks_is_a_failure_too(limited: Clock, device: Api) -> None:
    assert [device.post("/hooks/event", "{}").status_code for _ in range(11)] == [401] * 10 + [429]


def test_what_needs_no_token_is_limited_by_address(limited: Clock, stranger: Api) -> None:
    codes = [stranger.get("/api/v1/ws").status_code for _ in range(61)]
    assert codes == [400] * 60 + [429]
    assert stranger.get("/api/v1/ws", address="192.0.2.9").status_code == 400


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


def test_redis_is_asked_again_and_the_log_is_not_filled(
    limited: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("bridge_project.http.ratelimit.time.monotonic", lambda: now)
    monkeypatch.setattr(ratelimit, "shared_cache", lambda: GoneCache({}))
    GoneCache.asked = 0
    said = []
    for moment in (1000.0, 1006.0, 1012.0, 1054.0, 1061.0):
        now = moment
        with capture_logs() as logs:
            ratelimit.check("status", None, "192.0.2.1")
        said.append(len(logs))
    assert (GoneCache.asked, said) == (5, [1, 0, 0, 0, 1])
    monkeypatch.setattr(ratelimit, "shared_cache", lambda: caches["local"])
    now = 1070.0
    with capture_logs() as logs:
        ratelimit.check("status", None, "192.0.2.1")
    assert logs == []


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
