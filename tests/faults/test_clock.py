"""The bridge's clock is an hour off, or jumps by an hour while it runs (D19, D25, D26, D31, D33,
D46, D47): nothing is lost, doubled or over too soon.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.conformance import phone as phones
from tests.conformance.bridge import Bridge
from tests.conformance.https import parse_time
from tests.conformance.raw import PING, PONG, RawSocket
from tests.conformance.samples import new_id, new_session, now, prompt
from tests.faults.clock import ClockBridge
from tests.faults.load import under_load, within
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import Postgres

HOUR = 3600.0
# seconds after a jump, until the bridge's own leases are right again: sooner than it would have
# renewed them
COUNTED_WITHIN = 4.5
PING_SECONDS = 4  # between two pings of the server, in place of 20
PING_WITHIN = 25.0


@pytest.fixture(autouse=True)
def other_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness holds every pong against our clock; here it only has to be a time."""
    monkeypatch.setattr(phones, "assert_now", parse_time)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockBridge]:
    """Certificate, tokens and database were made while its clock was an hour ahead."""
    bridge = ClockBridge(tmp_path_factory.mktemp("clock"))
    bridge.first += with_limits(PING_SECONDS=PING_SECONDS)
    bridge.set(HOUR)
    bridge.start()
    bridge.pin = bridge.pairing().pin
    yield bridge
    bridge.hang_up()
    assert bridge.process is not None
    bridge.kill()


@pytest.fixture(params=[HOUR, -HOUR], ids=["ahead", "behind"])
def off(request: pytest.FixtureRequest, bridge: ClockBridge) -> ClockBridge:
    bridge.set(request.param)
    return bridge


def test_a_phone_with_another_time_is_warned_and_served(off: ClockBridge) -> None:
    """D25: a warning CLOCK_SKEW, clock_sync false, ready true; D19: certificates that a phone with
    the right time can trust.
    """
    sid = new_session()
    off.accept(prompt(sid, 0, timestamp=now(off.ahead)))
    phone = off.phone()
    phone.connect()
    assert phone.auth()["type"] == "connection_ack"
    payload = phone.health_check()["payload"]
    assert payload["warnings"] == ["CLOCK_SKEW"] and payload["ready"] is True, payload
    assert payload["checks"]["clock_sync"] is False and payload["latency_ms"] >= 0
    phone.join(sid)
    off.accept(prompt(sid, 1, timestamp=now(off.ahead)))
    phone.wait_numbers(sid, [1])
    phone.close()
    raw = RawSocket(off.port)
    leaf = x509.load_der_x509_certificate(raw.socket.getpeercert(binary_form=True))  # type: ignore[attr-defined]
    raw.close()
    authority = x509.load_pem_x509_certificate(off.get("/ca.crt").body)
    for certificate in (leaf, authority):
        assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(
            hours=1
        ) and certificate.not_valid_after_utc > datetime.now(UTC)


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
    sid = new_session()
    listener = Listener(bridge)
    listener.start()
    with under_load([bridge], new_session(), watchers=2) as load:
        phone = bridge.phone().ready()
        bridge.accept(prompt(sid, 0))
        phone.join(sid)
        for ahead in (HOUR, -HOUR, 0.0):
            bridge.set(ahead)
            within(
                COUNTED_WITHIN,
                lambda: listening(bridge, sid) == 1,
                "the phone that is there is counted",
            )
            load.more(10)
        jumped = time.monotonic()
        phone.ping()
        phone.close()
        load.finish()
        assert [len(watcher.views) for watcher in load.watchers] == [1, 1], "a socket was closed"
        assert not sum(poster.unanswered for poster in load.posters)
        assert {refusal.answer.json()["code"] for refusal in load.refusals()} <= {
            "HOOK_STALE_TIMESTAMP"
        }
        assert len(load.refusals()) <= 3 * len(load.posters), (
            "refused once for each jump, then with the server's time"
        )
    within(PING_WITHIN, lambda: any(at > jumped for at in listener.pings), "a ping after the jump")
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
        ahead.spawn()
        try:
            counted = set()
            while not ahead.answers():
                counted.add(right.accept(prompt(sid, 0))[0]["broadcast_count"])
                time.sleep(0.2)
            assert counted == {1}, "the newcomer has taken the other's leases for over"
            there = ahead.phone().ready()
            there.join(sid)
            for number in range(1, 4):
                assert right.accept(prompt(sid, number))[0]["broadcast_count"] == 2
                assert listening(ahead, sid) == 2
            there.close()
        finally:
            ahead.hang_up()
            assert ahead.process is not None
            ahead.kill()
        here.close()
