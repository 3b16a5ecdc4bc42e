"""The forwarder of another machine (D47): its clock is off, the network loses half its packets, the
bridge has another certificate, the pin is wrong. Each hook arrives once and in order, or waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conformance.https import parse_time
from tests.conformance.phone import Message, Phone
from tests.faults.clock import faketime
from tests.faults.land import Agent, Land, land
from tests.servers import stop_process, wait_until

HOUR, YEAR = 3600, 365 * 86400


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    with land(tmp_path_factory.mktemp("land")) as made:
        yield made


@pytest.fixture
def agent(place: Land, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(place, tmp_path)
    yield agent
    stop_process(agent.forwarder)


@pytest.fixture
def phone(place: Land) -> Phone:
    """It was there once, so that it gets what comes; over the other cable, of whatever key."""
    phone = place.bridge.phone(dial=place.over(place.mobile))
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


def test_a_clock_that_is_off(place: Land, agent: Agent, phone: Phone) -> None:
    """By an hour forth and a year back, one forwarder after the other: what is fired has the
    server's time.
    """
    for ahead in (HOUR, -YEAR):
        agent.forward(place.bridge.pairing().pin, **faketime(ahead))
        agent.fire(3)
        wait_until(lambda: agent.waiting() == 0, f"the spool is empty, {ahead} s")
        stop_process(agent.forwarder)
    for event in arrived(agent, phone):
        moment = parse_time(event["payload"]["timestamp"])
        assert abs((moment - datetime.now(UTC)).total_seconds()) < 300, event


def test_another_certificate_and_a_wrong_pin(place: Land, agent: Agent, phone: Phone) -> None:
    """A renewed certificate has the key that is pinned, and nothing changes; to another key not a
    hook is sent until somebody gives its pin.
    """
    bridge = place.bridge
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
    stop_process(agent.forwarder)
    bridge.minted.clear()
    agent.forward(bridge.pairing().pin)
    arrived(agent, phone)


def test_a_network_that_loses_half(place: Land, agent: Agent, phone: Phone) -> None:
    """Whatever was lost, each hook is there once, in order. The last test: the loss stays."""
    agent.forward(place.bridge.pairing().pin)
    place.wifi.lose_half()
    agent.fire(8)
    arrived(agent, phone)
