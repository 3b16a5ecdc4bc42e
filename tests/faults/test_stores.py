"""Redis and PostgreSQL go away and come back under load: 503 is all that happens (D46)."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from bridge_project.kernel import limits
from tests.conformance.agents import begin, end, log_of, say, words
from tests.conformance.bridge import Bridge
from tests.conformance.https import Response, assert_error
from tests.conformance.samples import new_session, prompt
from tests.faults.load import under_load
from tests.faults.quick import QuickBridge
from tests.servers import PATIENCE, Postgres, Redis, running, wait_until
from tests.web.link import Link

pytestmark = pytest.mark.slow

PARTS = {"websocket_server", "hook_endpoint", "agent_sdk", "disk_space"}
ANSWERS_WITHIN = 30.0  # seconds for /health: what it gives its checks is 2
BACK_WITHIN = 30.0  # seconds after a store answers again, however long it was away
GOES_ON_WITHIN = 60.0  # seconds until a process that sleeps is left alone: PostgreSQL waits for 5
DELIVERED_WITHIN = 30.0  # seconds after it was acknowledged, without Redis


@dataclass
class Stores:
    postgres: Postgres
    redis: Redis
    bridges: list[Bridge]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Servers of our own, for they are treated badly, and two bridges that share them."""
    with running(Postgres) as postgres, running(Redis) as redis:
        shared = {"database_url": postgres.create_database(), "redis_url": redis.create_database()}
        place = tmp_path_factory.mktemp("stores")
        with QuickBridge(place / "first", **shared) as first, first.beside(place / "second") as two:
            yield Stores(postgres, redis, [first, two])


def health(bridge: Bridge) -> Response:
    """GET /health, by a token that needs no database; answered in time, whatever is away."""
    asked = time.monotonic()
    answer = bridge.get("/api/v1/health", bridge.hook_token)
    assert time.monotonic() - asked < ANSWERS_WITHIN
    return answer


def assert_degraded(answer: Response, part: str) -> None:
    """D48: 503 with the spec's body only; this part is unhealthy."""
    body = answer.json()
    assert answer.status == 503 and body["status"] == "degraded", answer
    assert set(body) == {"status", "version", "checks", "timestamp"}
    assert body["checks"] == dict.fromkeys(PARTS, "healthy") | {part: "unhealthy"}


def wait_healthy(bridges: list[Bridge]) -> None:
    def all_healthy() -> bool:
        return all(health(bridge).status == 200 for bridge in bridges)

    wait_until(all_healthy, "healthy again by itself", within=BACK_WITHIN)


@pytest.mark.spec("code.STORAGE_UNAVAILABLE")
@pytest.mark.parametrize(
    ("how", "seconds"), [(signal.SIGINT, 8), (signal.SIGQUIT, 2)], ids=["orderly", "immediate"]
)
def test_postgresql_stops_and_starts(stores: Stores, how: signal.Signals, seconds: float) -> None:
    """D46: 503 with Retry-After, nothing acknowledged that is not stored, back by itself: soon,
    though in eight seconds attempts that come ever more rarely have become too rare.
    """
    with under_load(stores.bridges, watchers=2, timeout=PATIENCE) as load:
        load.more(10)
        token = stores.bridges[0].device_token()
        stores.postgres.stop(how)
        away = time.monotonic()
        for bridge in stores.bridges:
            assert_degraded(health(bridge), "hook_endpoint")
            # nobody knows whose token it is then, and nobody is let in
            assert_degraded(bridge.get("/api/v1/health", token), "hook_endpoint")
            for any_token in (token, "x" * 43):
                assert_error(bridge.get("/api/v1/sessions", any_token), (401, 503))

        def noticed() -> bool:
            over = time.monotonic() - away >= seconds
            return over and all(poster.refusals for poster in load.posters)

        wait_until(noticed, "each poster was refused")
        back = time.monotonic()
        stores.postgres.start()
        wait_healthy(stores.bridges)
        load.more(1, BACK_WITHIN)
        load.more(10)
        assert not load.acknowledged(away, back)
        assert not load.unanswered(), "an answer is owed also without a database"
        for refusal in load.refusals():
            assert_error(refusal.answer, 503, "STORAGE_UNAVAILABLE")
            assert int(refusal.answer.headers["retry-after"]) > 0
            assert refusal.seconds < 30, "nobody waits for a server that says that it is not there"
        load.finish()


def test_a_socket_outlives_its_database(stores: Stores, tmp_path: Path) -> None:
    """D46: also at the end of a cursor, and where the bridge itself leaves a session."""
    there = stores.postgres.create_database()
    with closing(Link(stores.postgres.port)) as link:
        url = there.replace(f":{stores.postgres.port}/", f":{link.port}/")
        with QuickBridge(tmp_path, database_url=url) as bridge, bridge.phones() as (phone,):
            phone.close()
            bridge.accept(prompt(sid := new_session(), "missed"))
            link.ended_by = b"CLOSE "
            phone.ready().wait_numbers(sid, ["missed"])
            wait_until(lambda: link.ended_by is None, "it was cut")
            session_id = begin(bridge, phone)
            link.ended_by = b'DELETE FROM "sessions_app_join"'
            end(phone, session_id)
            wait_until(lambda: "call=leave" in bridge.log.read_text(), "it waits")
            phone.ping()


def test_a_turn_outlives_a_database_that_is_away(stores: Stores) -> None:
    """D79: for longer than a lease; what was said meanwhile is kept, once and in order."""
    bridge = stores.bridges[0]
    with bridge.phones() as (phone,):
        session_id = begin(bridge, phone)
        say(phone, session_id, "/sleep 3")
        phone.expect("stream_chunk", session_id=session_id)
        stores.postgres.stop(signal.SIGINT)
        away = time.monotonic()
        wait_until(lambda: time.monotonic() - away > 2 * limits.LEASE_SECONDS, "the lease is over")
        stores.postgres.start()
        wait_healthy(stores.bridges)
        wait_until(lambda: bridge.session(session_id)["turn"] == "idle")
        phone.close()
        phone.ready().join(session_id)
        kept = log_of(phone, session_id)
        assert [one["type"] for one in kept].count("stream_end") == 1
        assert words(kept).endswith("Slept for 3 seconds.")
        end(phone, session_id)


@pytest.mark.spec("http.health.degraded")
def test_redis_stops_and_starts(stores: Stores) -> None:
    """D46: no event is refused, sockets go on from the log, and /health says it."""
    patient = {"timeout": PATIENCE, "patience": PATIENCE}
    with under_load(stores.bridges, watchers=2, **patient) as load:
        load.more(10)
        stores.redis.stop(signal.SIGKILL)
        gone = time.monotonic()
        for bridge in stores.bridges:
            wait_until(lambda bridge=bridge: health(bridge).status == 503, "degraded")
            assert_degraded(health(bridge), "websocket_server")
        load.more(50)
        stores.redis.start()
        back = time.monotonic()
        wait_healthy(stores.bridges)
        load.more(10)
        assert not load.refusals() and not load.unanswered()
        load.finish()
        for watcher in load.watchers:
            assert len(watcher.views) == 1, f"a socket was closed: {watcher.views}"
            during = load.acknowledged(gone, back)
            assert during
            assert max(watcher.arrived[name] - at for name, at in during.items()) < DELIVERED_WITHIN


def asleep_in_a_transaction(postgres: Postgres) -> set[tuple[int, object]]:
    """The sessions of PostgreSQL that hold a transaction open, with the time since when."""
    select = (
        "SELECT pid, state_change FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    )
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        return set(connection.execute(select).fetchall())


def freeze_in_a_transaction(bridge: Bridge, postgres: Postgres) -> None:
    """Stop the process, as a machine falls asleep, while it holds a transaction open."""
    for _ in range(100):
        bridge.running.send_signal(signal.SIGSTOP)
        before = asleep_in_a_transaction(postgres)
        time.sleep(0.3)  # so long the other process, which lives, never pauses
        if before & asleep_in_a_transaction(postgres):
            return
        bridge.running.send_signal(signal.SIGCONT)
        time.sleep(0.01)  # another moment
    raise AssertionError("never in a transaction")


def test_a_process_falls_asleep_holding_the_head(stores: Stores) -> None:
    """D26, D46: it must not keep the others from the log, nor break anything on waking."""
    awake, sleeper = stores.bridges
    with under_load([awake, sleeper], posters=8, watchers=2, timeout=40, pace=0) as load:
        load.more(10)
        freeze_in_a_transaction(sleeper, stores.postgres)
        try:
            load.more(10, GOES_ON_WITHIN, load.posters[0::2])
        finally:
            sleeper.running.send_signal(signal.SIGCONT)
        load.more(10)
        assert {refusal.answer.status for refusal in load.refusals()} <= {503}
        load.finish()
