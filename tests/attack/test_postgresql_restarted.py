"""PostgreSQL is restarted, and is away while a phone logs in (D46)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.raw import upgraded
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import Postgres, running

RESTARTS = 3
AT_ONCE = 8  # requests, so that each of the threads that answer them has a connection to lose

Store = tuple[Postgres, Bridge]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server of our own, for it is stopped, and a bridge on it."""
    with running(Postgres) as postgres:
        url = postgres.create_database()
        place, first = tmp_path_factory.mktemp("bridge"), with_limits(AUTH_WAIT_SECONDS=300)
        with QuickBridge(place, database_url=url, first=first) as bridge:  # a stop takes its time
            bridge.pairing()  # the stock of devices is minted while the database is there
            yield postgres, bridge


def at_once(bridge: Bridge) -> list[int]:
    """The statuses of requests that are made together: half of them new sessions' events."""

    def one(number: int) -> int:
        if number % 2:
            return bridge.get("/api/v1/sessions", bridge.admin_token).status
        return bridge.post_hook(prompt(new_session(), number)).status

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(AT_ONCE)))


def test_the_first_requests_after_a_restart(store: Store) -> None:
    """None fails, and a phone that stays connected gets each event once."""
    (postgres, bridge), session_id = store, new_session()
    with bridge.phones() as [phone]:
        bridge.watch(phone, session_id)
        for number in range(RESTARTS):
            assert set(at_once(bridge)) == {200}
            postgres.stop()
            postgres.start()
            assert bridge.post_hook(prompt(session_id, number)).status == 200
            with bridge.phones() as [other]:
                other.join(session_id)
            assert set(at_once(bridge)) == {200}
            phone.wait_numbers(session_id, range(number + 1))
    assert bridge.session(session_id)["hook_count"] == RESTARTS + 1, "one made the session"


def test_an_auth_without_a_database(store: Store) -> None:
    """`connection_error` and a close with 4503, which a client comes back after."""
    postgres, bridge = store
    phone = bridge.phone().connect()
    postgres.stop()
    try:
        answer = phone.auth()
        payload = answer["payload"]
        assert (answer["type"], payload["code"]) == ("connection_error", "STORAGE_UNAVAILABLE")
        assert phone.wait_closed() == 4503
        for refused in (
            bridge.post_hook(prompt(new_session(), 1)),
            upgraded(bridge.port, Authorization=f"Bearer {phone.token}"),
        ):
            assert_error(refused, 503, "STORAGE_UNAVAILABLE")
            assert refused.headers["retry-after"] == "5"
        figures = bridge.get("/metrics", bridge.admin_token).body
        assert b"bridge_spool_waiting" in figures and b"bridge_queue_rows" not in figures
    finally:
        postgres.start()
    phone.ready()
    phone.close()
