"""Several processes are one bridge (D46): two of `serve`, PostgreSQL, Redis."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from tests.conformance.agent_tools import bridges_of
from tests.conformance.bridge import EVENT, Bridge
from tests.conformance.https import assert_error
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session, prompt
from tests.conformance.test_connection_phases import let_in
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import Postgres, Redis, own, wait_until

pytestmark = pytest.mark.spec("processes")

# what a killed process held does not end by itself while these tests run
redis_server = own(Redis)
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
    """Counted on all processes (D33), with the same ids in the same order, once when it is posted
    to both at once (D31); and a home screen of one, of a session that nobody joined (D54).
    """
    sid, alone = new_session(), new_session()
    pair[0].accept(prompt(sid, 0))
    phones = [on(bridge, pair[0].device_token()).ready() for bridge in pair]
    for phone in phones:
        phone.join(sid)
    for number, bridge in enumerate(pair, 1):
        assert bridge.accept(prompt(sid, number))[0]["broadcast_count"] == 2
    both = prompt(sid, 3, event_id=new_id())
    with ThreadPoolExecutor(2) as pool:
        answers = [one.json() for one in pool.map(lambda bridge: bridge.post_hook(both), pair)]
    assert answers[0]["event_id"] == answers[1]["event_id"]
    here, there = ([event["id"] for event in one.wait_numbers(sid, [1, 2, 3])] for one in phones)
    assert here == there
    session = pair[1].session(sid)
    assert (session["websocket_connected"], session["hook_count"]) == (True, 4)
    pair[0].accept(prompt(alone, 0), hook("Stop", alone), prompt(alone, 1))

    def turns() -> list[str]:
        phones[1].ping()
        return [one["turn"] for one in phones[1].updates if one["session_id"] == alone]

    wait_until(lambda: turns()[-1:] == ["working"])  # it may be told between two events, too


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

    wait_until(goes_on)
    assert older.wait_closed() == 4409


def enter(bridge: Bridge, token: str) -> Phone:
    """Connect until those of the test before have been counted out."""
    phone = on(bridge, token)
    wait_until(lambda: let_in(phone))
    return phone


def test_the_limit_is_one(pair: Pair) -> None:
    """D23, D46: limits hold across processes: 6 in all."""
    for bridge in pair * 3:
        enter(bridge, pair[0].device_token())
    for bridge in pair:
        assert not let_in(on(bridge, pair[0].device_token()))


def test_a_killed_process_fills_no_limit(pair: Pair) -> None:
    """One that starts takes over its predecessor's connections, whose lease has not ended."""
    first, second = pair
    sid = new_session()
    first.accept(prompt(sid, 0))
    for _ in range(3):
        phone = enter(second, first.device_token())
        assert phone.health_check()["payload"]["ready"] is True
        phone.join(sid)
    assert first.accept(prompt(sid, 1))[0]["broadcast_count"] == 3
    second.kill()
    second.start()
    wait_until(lambda: first.accept(prompt(sid, 2))[0]["broadcast_count"] == 0)


@pytest.mark.slow
def test_the_lease_of_a_killed_process(
    postgres_server: Postgres, redis_server: Redis, tmp_path: Path
) -> None:
    """D46: its connections count as long as its last lease, at its real length, and no longer."""
    stores = {
        "database_url": postgres_server.create_database(),
        "redis_url": redis_server.create_database(),
    }
    with (
        QuickBridge(tmp_path / "first", **stores) as first,
        first.beside(tmp_path / "second") as second,
    ):
        on(second, first.device_token()).ready()
        wait_until(lambda: first.health().get("active_websockets") == 1)
        second.kill()
        killed = time.monotonic()
        wait_until(lambda: first.health().get("active_websockets") == 0)
        counted = time.monotonic() - killed
    assert counted > limits.LEASE_SECONDS - 2 * limits.LEASE_RENEWAL_SECONDS


@pytest.fixture
def dark(pair: Pair, redis_server: Redis) -> Iterator[Callable[[], None]]:
    """Takes Redis away when called; at the end it is back, and both processes become healthy."""
    yield redis_server.stop
    if redis_server.process is not None and redis_server.process.poll() is not None:
        redis_server.start()
    wait_until(lambda: all(one.health()["status"] == "healthy" for one in pair))


def test_forwarders_that_report_at_once(pair: Pair) -> None:
    """D47: the owner sees each of them, whichever process it reports to."""
    sources = [f"127.0.1.{number}" for number in range(1, 17)]

    def report(source: str) -> int:
        way = pair[hash(source) % 2].https(source=source)
        sent = {"json_body": prompt(new_session(), 0), "headers": {"X-Hook-Behind": "312 95"}}
        return way.post(EVENT, token=pair[0].hook_token, **sent).status

    with ThreadPoolExecutor(len(sources)) as pool:
        assert list(pool.map(report, sources)) == [200] * len(sources)
    for bridge in pair:
        told = bridge.get("/api/v1/info", bridge.admin_token).json()["forwarders"]
        assert sorted(one["address"] for one in told) == sorted(sources)


@pytest.mark.spec("device.revoke")
@pytest.mark.parametrize("redis", ["there", "away"])
def test_revoking_closes_on_every_process(pair: Pair, dark: Callable[[], None], redis: str) -> None:
    """D15: within two seconds, Redis or no Redis, without which a device can connect too; it is
    refused from then on, and others are left alone.
    """
    first, second = pair
    sid, pairing = new_session(), first.pairing()
    first.accept(prompt(sid, 0))
    if redis == "away":
        dark()
        behind = {"X-Hook-Behind": "312 95"}  # D47: a forwarder's backlog goes on
        assert first.post_hook(prompt(new_session(), 0), headers=behind).status == 200
    phone, other = (on(second, token).ready() for token in (pairing.token, first.device_token()))
    phone.join(sid)
    first.accept(prompt(sid, 1))
    phone.wait_numbers(sid, [1])
    assert re.search(rf"{pairing.name} +connected", first.manage("list_devices").stdout)
    first.manage("revoke_device", pairing.name)
    revoked = time.monotonic()
    assert phone.wait_closed() not in (1000, 1006)
    assert time.monotonic() - revoked < 30
    other.ping()
    assert phone.connect().auth()["payload"]["code"] == "AUTH_FAILED"
    assert_error(first.get("/api/v1/sessions", pairing.token), 401, "AUTH_INVALID_TOKEN")
