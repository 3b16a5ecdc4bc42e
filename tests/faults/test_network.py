"""The network is cut under load between hosts that are network namespaces (D23, D26, D31, D46,
D47): nothing acknowledged is lost, nothing doubled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error
from tests.conformance.samples import new_session, prompt
from tests.faults.hosts import Cable, Host, Relay, bridge_on, hosts
from tests.faults.land import IMPATIENT, Agent, Land, land
from tests.faults.load import under_load, within
from tests.servers import Postgres, Redis, stop_process, wait_until

ANSWERS_WITHIN = 30.0  # seconds for /health: what it gives its checks is 2
DOWN = 3.0  # seconds without a network: longer than clients of this test wait for an answer
# seconds: /info promises producers 30; it takes 5 until TCP gives up, and a queue behind that
TOLD_WITHIN = 25.0
GOES_ON_WITHIN = 60.0  # seconds, also when the host that is gone held the head of the log


@pytest.fixture(scope="module", name="land")
def made_land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    with land(tmp_path_factory.mktemp("land"), BRIDGE_MAX_WEBSOCKETS="20") as made:
        yield made


@pytest.fixture
def agent(land: Land, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(land, tmp_path)
    agent.forward(land.bridge.pairing().pin)
    yield agent
    stop_process(agent.forwarder)


@pytest.mark.parametrize("end", ["clients", "server"])
def test_the_network_is_cut_under_load(land: Land, agent: Agent, end: str) -> None:
    """D26, D27, D31, D47: what was acknowledged before, and what was accepted although the answer
    was lost, is on the phone once and in order.
    """
    phone = land.bridge.phone()
    agent.fire()
    wait_until(
        lambda: agent.waiting() == 0 and land.bridge.knows(agent.session_id),
        "the first hook is through",
    )
    phone.ready().close()
    with under_load([land.bridge], new_session(), timeout=IMPATIENT, patience=IMPATIENT) as load:
        agent.fire(5)
        land.wifi.cut(getattr(land, end))
        cut = time.monotonic()
        agent.fire(10)
        within(
            DOWN + 15,
            lambda: (
                time.monotonic() - cut >= DOWN and all(poster.unanswered for poster in load.posters)
            ),
            "each poster is without an answer",
        )
        assert agent.waiting() >= 10, "nothing can have got through"
        land.wifi.mend()
        load.more(10)
        agent.fire(5)
        load.finish()
        assert not load.refusals()
        assert len(load.watchers[0].views) > 1, "the phone has noticed nothing"
    wait_until(
        lambda: agent.waiting() == 0,
        "the forwarder has sent everything: its patience between two attempts is at most 30 seconds",
    )
    land.bridge.accept(prompt(agent.session_id, "after"))
    phone.ready()
    phone.wait_numbers(agent.session_id, [*range(1, agent.fired), "after"])
    phone.close()


def test_a_phone_that_changes_networks(land: Land) -> None:
    """D23, D27: Wi-Fi is gone without a word; over the mobile network the phone is back at once, in
    the place of the half-open connection.
    """
    sid, pairing = new_session(), land.bridge.pairing()
    land.bridge.accept(prompt(sid, 0))
    phone = land.bridge.phone(pairing).ready()
    phone.join(sid)
    land.bridge.accept(prompt(sid, 1))
    phone.ack(*phone.wait_numbers(sid, [1]))
    mobile = {"dial": land.over(land.mobile)}
    https = land.bridge.https(**mobile)
    land.wifi.cut(land.clients)
    try:
        for number in (2, 3):
            answer = https.post(
                "/api/v1/hooks/event", token=land.bridge.hook_token, json_body=prompt(sid, number)
            )
            assert answer.status == 200 and answer.json()["broadcast_count"] == 1, (
                "the half-open connection still counts"
            )
        moved = land.bridge.phone(pairing, **mobile)
        moved.ready()
        moved.wait_numbers(sid, [2, 3])
        moved.join(sid)
        answer = https.post(
            "/api/v1/hooks/event", token=land.bridge.hook_token, json_body=prompt(sid, 4)
        )
        assert answer.json()["broadcast_count"] == 1, (
            "the half-open connection has given its place to the new one"
        )
        moved.wait_numbers(sid, [2, 3, 4])
    finally:
        land.wifi.mend()
    assert phone.wait_closed(30) in (4409, 1006), (
        "a phone that is back on the old network finds its connection ended"
    )
    assert phone.numbers(sid)[0] == 1 and len(phone.numbers(sid)) == len(set(phone.numbers(sid)))
    moved.close()


@pytest.fixture
def cities(
    postgres_server: Postgres, redis_server: Redis, tmp_path: Path
) -> Iterator[tuple[list[Bridge], Cable, Host]]:
    """Two bridges on hosts of their own, Redis and PostgreSQL on a third, clients on a fourth; the
    cable from the second bridge to the stores.
    """
    with hosts(4) as (first, second, stores, clients), ExitStack() as ending:
        for port, server in ((5432, postgres_server), (6379, redis_server)):
            ending.callback(Relay(stores, port, ("127.0.0.1", server.port)).close)
        database = urlsplit(postgres_server.create_database()).path
        cables = [Cable(host, stores) for host in (first, second)]
        bridges: list[Bridge] = []
        for host, cable in zip((first, second), cables, strict=True):
            settings = (
                {
                    name: bridges[0].settings[name]
                    for name in ("BRIDGE_HOOK_TOKEN", "BRIDGE_ADMIN_TOKEN")
                }
                if bridges
                else {}
            )
            urls = {
                "database_url": f"postgresql://postgres@{cable.there}:5432{database}",
                "redis_url": f"redis://{cable.there}:6379/0",
            }
            directory = tmp_path / str(len(bridges))
            bridge: Bridge = bridge_on(host, directory, BRIDGE_HOST="0.0.0.0", **urls, **settings)
            outside = Cable(host, clients)
            bridge.dial = lambda timeout, address=outside.here, port=bridge.port: clients.dial(
                address, port, timeout
            )
            bridges.append(bridge.spawn())
        for bridge in bridges:
            assert bridge.process is not None
            ending.callback(bridge.process.kill)
            ending.callback(bridge.hang_up)
        for bridge in bridges:
            bridge.wait_ready()
        yield bridges, cables[1], stores


@pytest.mark.slow
def test_one_of_two_bridges_loses_the_stores(cities: tuple[list[Bridge], Cable, Host]) -> None:
    """D46: the bridge that is cut off says 503, in time, and acknowledges nothing; the other one
    goes on, also when the lost one held the log's head.
    """
    bridges, cable, stores = cities
    with under_load(
        bridges, new_session(), posters=8, watchers=2, timeout=TOLD_WITHIN, pace=0
    ) as load:
        fine, lost = load.posters[0::2], load.posters[1::2]
        load.more(10)
        cable.cut(stores)
        cut = time.monotonic()
        load.more(1, GOES_ON_WITHIN, fine)
        within(
            TOLD_WITHIN,
            lambda: all(poster.refusals for poster in lost),
            "each poster of the bridge without stores is told",
        )
        asked = time.monotonic()
        answer = bridges[1].get("/api/v1/health", bridges[1].hook_token)
        assert answer.status == 503 and time.monotonic() - asked < ANSWERS_WITHIN, answer
        words = answer.json()["checks"]
        assert words["hook_endpoint"] == words["websocket_server"] == "unhealthy", words
        load.more(10, posters=fine)
        mended = time.monotonic()
        cable.mend()
        load.more(10)
        assert not [
            name for poster in lost for name, at in poster.times.items() if cut + 1 < at < mended
        ], "acknowledged without a database"
        assert (
            not [refusal for poster in fine for refusal in poster.refusals]
            and max(poster.slowest for poster in fine) < GOES_ON_WITHIN
        )
        for refusal in load.refusals():
            assert_error(refusal.answer, 503, "STORAGE_UNAVAILABLE")
            assert refusal.seconds < TOLD_WITHIN
        load.finish()
