"""Several processes are one bridge (D46): two of `serve`, PostgreSQL, Redis."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.agent_tools import bridges_of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session, prompt
from tests.faults.quick import with_limits
from tests.servers import Redis

pytestmark = pytest.mark.spec("processes")


# what a killed process held does not end by itself while these tests run
pair = bridges_of(2, first=with_limits(LEASE_SECONDS=3600), BRIDGE_MAX_WEBSOCKETS="6")
Pair = list[Bridge]


@pytest.fixture(autouse=True)
def hang_up(pair: Pair) -> Iterator[None]:
    """A test that fails leaves no connection to the next one."""
    yield
    for bridge in pair:
        bridge.hang_up()


def on(bridge: Bridge, token: str) -> Phone:
    """A phone that does not check the pin: each process has its own certificate here."""
    phone = Phone(bridge.port, token)
    bridge.called.append(phone)
    return phone


def test_an_event_reaches_sockets_of_both(pair: Pair) -> None:
    """Counted on all processes (D33), with the same ids in the same order."""
    sid = new_session()
    pair[0].accept(prompt(sid, 0))
    phones = [on(bridge, pair[0].device_token()).ready() for bridge in pair]
    for phone in phones:
        phone.join(sid)
    for number, bridge in enumerate(pair, 1):
        assert bridge.accept(prompt(sid, number))[0]["broadcast_count"] == 2
    here, there = ([event["id"] for event in one.wait_numbers(sid, [1, 2])] for one in phones)
    assert here == there
    assert pair[1].session(sid)["websocket_connected"] is True


def test_a_home_screen_of_one_shows_sessions_of_the_other(pair: Pair) -> None:
    """D54: session_update, of a session that nobody joined."""
    first, second = pair
    sid, phone = new_session(), on(second, first.device_token()).ready()
    first.accept(prompt(sid, 0), hook("Stop", sid), prompt(sid, 1))

    def told() -> bool:
        phone.ping()
        turns = [one["turn"] for one in phone.updates if one["session_id"] == sid]
        return turns[-1:] == ["working"]  # it may be told between two events, too

    eventually(told)


def test_the_same_event_id_on_both(pair: Pair) -> None:
    """D31 across processes, at the same time."""
    body = prompt(new_session(), 1, event_id=new_id())
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda bridge: bridge.post_hook(body), pair))
    assert [answer.status for answer in answers] == [200, 200]
    assert len({answer.json()["event_id"] for answer in answers}) == 1
    assert pair[0].session(body["session_id"])["hook_count"] == 1


def test_replacement_across_processes(pair: Pair) -> None:
    """D23: the newer connection continues from the device's cursor."""
    first, second = pair
    sid, token = new_session(), first.device_token()
    first.accept(prompt(sid, 0))
    older = on(first, token).ready()
    older.join(sid)
    first.accept(prompt(sid, 1), prompt(sid, 2))
    older.ack(older.wait_numbers(sid, [1, 2])[0])

    def goes_on() -> bool:
        """With what is not stored yet, a newer one of another process has it again (D27)."""
        newer = on(second, token).ready()
        newer.collect(lambda: 2 in newer.numbers(sid), "the last event")
        return newer.numbers(sid) == [2]

    eventually(goes_on)
    assert older.wait_closed() == 4409


def is_let_in(phone: Phone) -> bool:
    """It is refused until those of the test before have been counted out."""
    return bool(phone.connect().auth()["type"] == "connection_ack")


def test_the_limit_is_one(pair: Pair) -> None:
    """D23, D46: limits hold across processes: 6 in all."""
    first, _second = pair
    phones = [on(pair[number % 2], first.device_token()) for number in range(6)]
    for phone in phones:
        eventually(lambda phone=phone: is_let_in(phone))
    for bridge in pair:
        extra = on(bridge, first.device_token())
        extra.connect()
        assert extra.auth()["payload"]["code"] == "RATE_LIMITED"
        assert extra.wait_closed() == 4429


def test_a_killed_process_fills_no_limit(pair: Pair) -> None:
    """One that starts takes over its predecessor's connections, whose lease has not ended."""
    first, second = pair
    sid = new_session()
    first.accept(prompt(sid, 0))
    for _ in range(3):
        phone = on(second, first.device_token())
        eventually(lambda phone=phone: is_let_in(phone))
        assert phone.health_check()["payload"]["ready"] is True
        phone.join(sid)
    assert first.accept(prompt(sid, 1))[0]["broadcast_count"] == 3
    second.kill()
    second.start()
    eventually(lambda: first.accept(prompt(sid, 2))[0]["broadcast_count"] == 0)


@pytest.fixture
def dark(pair: Pair, redis_server: Redis) -> Iterator[Callable[[], None]]:
    """Takes Redis away when called; at the end it is back, and both processes become healthy."""
    yield redis_server.stop
    if redis_server.process is not None and redis_server.process.poll() is not None:
        redis_server.start()
    for bridge in pair:
        eventually(
            lambda bridge=bridge: bridge.get("/api/v1/health", bridge.hook_token).status == 200
        )


@pytest.mark.spec("device.revoke")
@pytest.mark.parametrize("redis", ["there", "away"])
def test_revoking_closes_on_every_process(pair: Pair, dark: Callable[[], None], redis: str) -> None:
    """D15: within two seconds, Redis or no Redis, without which a device can connect too."""
    first, second = pair
    sid, pairing = new_session(), first.pairing()
    first.accept(prompt(sid, 0))
    if redis == "away":
        dark()
    phone = on(second, pairing.token).ready()
    phone.join(sid)
    first.accept(prompt(sid, 1))
    phone.wait_numbers(sid, [1])
    first.manage("revoke_device", pairing.name)
    revoked = time.monotonic()
    assert phone.wait_closed(60) not in (1000, 1006)
    assert time.monotonic() - revoked < 30
