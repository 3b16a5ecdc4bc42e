"""The network is cut under load between hosts that are network namespaces (D23, D26, D31, D46,
D47): nothing acknowledged is lost, nothing doubled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, parse_time
from tests.conformance.phone import Message, Phone
from tests.conformance.samples import new_session, prompt
from tests.faults.clock import faketime
from tests.faults.hosts import Cable, Host, Relay, bridge_on, hosts
from tests.faults.land import IMPATIENT, Agent, Land, land
from tests.faults.load import under_load, within
from tests.servers import Postgres, Redis, wait_until

ANSWERS_WITHIN = 30.0  # seconds for /health: what it gives its checks is 2
DOWN = 3.0  # seconds without a network: longer than clients of this test wait for an answer
# seconds: /info promises producers 30; it takes 5 until TCP gives up, and a queue behind that
TOLD_WITHIN = 25.0
HOUR, YEAR = 3600, 365 * 86400
GOES_ON_WITHIN = 60.0  # seconds, also when the host that is gone held the head of the log


@pytest.fixture(scope="module", name="land")
def made_land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    with land(tmp_path_factory.mktemp("land"), BRIDGE_MAX_WEBSOCKETS="20") as made:
        yield made


@pytest.fixture
def agent(land: Land, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(land, tmp_path)
    yield agent
    agent.stop()


def test_the_network_is_cut_under_load(land: Land, agent: Agent) -> None:
    """D26, D27, D31, D47: what was acknowledged before, and what was accepted although the answer
    was lost, is on the phone once and in order.
    """
    phone = land.bridge.phone()
    agent.forward(land.bridge.pairing().pin)
    agent.fire()
    wait_until(
        lambda: agent.waiting() == 0 and land.bridge.knows(agent.session_id),
        "the first hook is through",
    )
    phone.ready().close()
    with under_load([land.bridge], new_session(), timeout=IMPATIENT, patience=IMPATIENT) as load:
        agent.fire(5)
        land.wifi.cut(land.server)
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


# -- the forwarder of another machine (D47): each hook arrives once and in order, or waits ---------


@pytest.fixture
def phone(land: Land) -> Phone:
    """It was there once, so that it gets what comes; over the other cable, of whatever key."""
    phone = land.bridge.phone(dial=land.over(land.mobile))
    phone.pin = None
    phone.ready().close()
    return phone


def arrived(agent: Agent, phone: Phone) -> list[Message]:
    """All that was fired; nothing more waits, and nothing was set aside."""
    wait_until(lambda: agent.waiting() == 0, "the spool is empty")
    phone.ready()
    phone.join(agent.session_id)
    events = phone.wait_numbers(agent.session_id, range(agent.fired))
    phone.close()
    return events


def test_a_clock_that_is_off(land: Land, agent: Agent, phone: Phone) -> None:
    """By an hour forth and a year back, one forwarder after the other: what is fired has the
    server's time.
    """
    for ahead in (HOUR, -YEAR):
        agent.forward(land.bridge.pairing().pin, **faketime(ahead))
        agent.fire(3)
        wait_until(lambda: agent.waiting() == 0, f"the spool is empty, {ahead} s")
        agent.stop()
    for event in arrived(agent, phone):
        moment = parse_time(event["payload"]["timestamp"])
        assert abs((moment - datetime.now(UTC)).total_seconds()) < 300, event


def test_another_certificate_and_a_wrong_pin(land: Land, agent: Agent, phone: Phone) -> None:
    """A renewed certificate has the key that is pinned, and nothing changes; to another key not a
    hook is sent until somebody gives its pin.
    """
    bridge = land.bridge
    pin = bridge.pairing().pin
    agent.forward(pin)
    agent.fire(2)
    wait_until(lambda: agent.waiting() == 0, "the first arrive")
    bridge.stop()
    (bridge.data / "tls" / "server.crt").unlink()
    bridge.start()
    agent.fire(2)
    wait_until(lambda: agent.waiting() == 0, "so they do with a new certificate")
    bridge.stop()
    for name in ("server.crt", "server.key"):
        (bridge.data / "tls" / name).unlink()
    bridge.start()
    agent.fire(2)
    wait_until(lambda: "pin" in agent.said.read_text(), "it says what is wrong")
    assert agent.waiting() == 2
    agent.stop()
    bridge.minted.clear()
    agent.forward(bridge.pairing().pin)
    arrived(agent, phone)


def test_a_network_that_loses_half(land: Land, agent: Agent, phone: Phone) -> None:
    """Whatever was lost, each hook is there once, in order. The last test: the loss stays."""
    agent.forward(land.bridge.pairing().pin)
    land.wifi.lose_half()
    agent.fire(8)
    arrived(agent, phone)


# -- two bridges and their stores ------------------------------------------------------------------


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
