"""The bridge's clock is an hour off, or jumps by an hour while it runs (D19, D25, D26, D31, D33,
D46, D47): nothing is lost, doubled or over too soon.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.raw import PING, PONG, RawSocket
from tests.conformance.samples import new_id, new_session, now, prompt
from tests.faults.clock import ClockBridge
from tests.faults.load import under_load
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import Postgres, wait_until

pytestmark = pytest.mark.usefixtures("other_clock")

HOUR = 3600.0
# seconds after a jump, until the bridge's own leases are right again: sooner than it would have
# renewed them
COUNTED_WITHIN = 4.5
PING_SECONDS, PING_WITHIN = 4, 25.0  # between two pings of the server, in place of 20


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockBridge]:
    """Certificate, tokens and database were made while its clock was an hour ahead."""
    bridge = ClockBridge(tmp_path_factory.mktemp("clock"))
    bridge.first += with_limits(PING_SECONDS=PING_SECONDS)
    bridge.set(HOUR)
    with bridge:
        yield bridge


@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_phone_with_another_time_is_warned_and_served(bridge: ClockBridge, ahead: float) -> None:
    """D25: a warning CLOCK_SKEW, clock_sync false, ready true; D19: certificates that a phone with
    the right time can trust, also one that is an hour late.
    """
    bridge.set(ahead)
    sid = new_session()
    bridge.accept(prompt(sid, 0, timestamp=now(ahead)))
    phone = bridge.phone()
    phone.connect()
    assert phone.auth()["type"] == "connection_ack"
    payload = phone.health_check()["payload"]
    assert payload["warnings"] == ["CLOCK_SKEW"] and payload["ready"] is True, payload
    assert payload["checks"]["clock_sync"] is False and payload["latency_ms"] >= 0
    phone.join(sid)
    bridge.accept(prompt(sid, 1, timestamp=now(ahead)))
    phone.wait_numbers(sid, [1])
    phone.close()
    assert bridge.certificates_are_good(0) and bridge.certificates_are_good(-HOUR)


class Listener(threading.Thread):
    """A client that says nothing of itself and answers the server's pings (D25: that is enough)."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(daemon=True)
        self.socket = RawSocket(bridge.port, timeout=180).ready(bridge.pairing().token)
        self.pings: list[float] = []

    def run(self) -> None:
        try:
            while True:
                opcode, data = self.socket.read_frame()
                if opcode == PING:
                    self.pings.append(time.monotonic())
                    self.socket.frame(data, PONG)
        except (OSError, EOFError):
            pass

    def end(self) -> None:
        """Its thread has gone before the socket's number is given to another file."""
        self.socket.socket.shutdown(socket.SHUT_RDWR)
        self.join(180)
        self.socket.close()


def listening(bridge: ClockBridge, session_id: str) -> int:
    [answer] = bridge.accept(prompt(session_id, new_id(), timestamp=now(bridge.ahead)))
    return int(answer["broadcast_count"])


@pytest.mark.slow
def test_the_clock_jumps_under_load(bridge: ClockBridge) -> None:
    """D25, D26, D27, D31, D33: an hour forth and back: no event lost or doubled, no socket closed,
    no lease at an end, and pings go on.
    """
    bridge.set(0)
    sid, listener = new_session(), Listener(bridge)
    listener.start()
    with under_load([bridge], watchers=2) as load:
        phone = bridge.phone().ready()
        bridge.accept(prompt(sid, 0))
        phone.join(sid)
        for ahead in (HOUR, -HOUR, 0.0):
            bridge.set(ahead)
            wait_until(lambda: listening(bridge, sid) == 1, "counted", seconds=COUNTED_WITHIN)
            load.more(10)
        jumped = time.monotonic()
        phone.ping()
        phone.close()
        load.finish()
        assert [len(watcher.views) for watcher in load.watchers] == [1, 1], "a socket was closed"
        assert not load.unanswered()
        codes = [refusal.answer.json()["code"] for refusal in load.refusals()]
        assert set(codes) <= {"HOOK_STALE_TIMESTAMP"}
        assert len(codes) <= 3 * len(load.posters), (
            "refused once for each jump, then with the server's time"
        )
    wait_until(
        lambda: any(at > jumped for at in listener.pings), "a ping since", seconds=PING_WITHIN
    )
    listener.end()


def test_two_hosts_whose_clocks_differ(postgres_server: Postgres, tmp_path: Path) -> None:
    """D33, D46: several hosts are one bridge, also when one of them is an hour ahead: none takes
    the other's leases for over.
    """
    sid, url = new_session(), postgres_server.create_database()
    with QuickBridge(tmp_path / "right", database_url=url) as right:
        right.accept(prompt(sid, 0))
        here = right.phone().ready()
        here.join(sid)
        ahead = ClockBridge(tmp_path, **right.shared)
        ahead.set(HOUR)
        with ahead:
            for count in (
                right.accept(prompt(sid, 0))[0]["broadcast_count"],
                listening(ahead, sid),
            ):
                assert count == 1, "the newcomer has taken the other's leases for over"
            there = ahead.phone().ready()
            there.join(sid)
            for number in range(1, 4):
                assert right.accept(prompt(sid, number))[0]["broadcast_count"] == 2
                assert listening(ahead, sid) == 2
            there.close()
        here.close()
