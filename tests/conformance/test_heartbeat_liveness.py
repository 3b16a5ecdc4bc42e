"""Heartbeats (spec, Limits and WebSocket operations), liveness (D25), the time for auth (D21),
proof by heartbeat (D27), slow clients (D30).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import now
from tests.conformance.scenarios import LIVENESS, SCENARIOS, Hasty, Outcome

Patient = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def patient(make_bridge: Callable[..., Bridge]) -> Iterator[Patient]:
    """Starts what takes long, all at once; `patient(name)` waits for an outcome."""
    bridge = make_bridge("hasty", kind=Hasty, BRIDGE_MAX_WEBSOCKETS="20")
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        futures = {name: pool.submit(run, bridge) for name, run in SCENARIOS.items()}
        yield lambda name: futures[name].result()
    bridge.stop()


def test_the_times() -> None:
    """Spec, Limits; D21, D25, D30; two of them are made shorter here."""
    assert (limits.HEARTBEAT_INTERVAL_SECONDS, limits.PONG_WAIT_SECONDS) == (15, 10)
    assert (limits.AUTH_WAIT_SECONDS, limits.LIVENESS_SECONDS) == (10, 45)
    assert limits.SLOW_SOCKET_SECONDS == 30


@pytest.mark.spec("ws.heartbeat_ping", "ws.heartbeat_pong", "envelope.heartbeat")
def test_a_ping_may_carry_more(phone: Phone) -> None:
    """D3: unknown fields are never an error; the pong has its type and a timestamp alone."""
    more = {"id": "hb-1", "payload": {}}
    phone.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()} | more))
    pong = phone.until(lambda message: message["type"] == "heartbeat_pong", "heartbeat_pong")
    assert set(pong) == {"type", "timestamp"}


def test_every_ping_has_its_pong(phone: Phone) -> None:
    """Spec: heartbeat_ping, reply heartbeat_pong."""
    for _ in range(10):
        phone.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
    phone.collect(
        lambda: sum(message["type"] == "heartbeat_pong" for message in phone.messages) == 10,
        "10 pongs",
    )


def test_heartbeats_are_answered_before_ready(device: Phone) -> None:
    """D21: before ready heartbeats are allowed."""
    device.connect()
    assert device.auth()["type"] == "connection_ack"
    device.ping()


@pytest.mark.slow
@pytest.mark.spec("limit.heartbeat", "wscode.CONN_TIMEOUT")
def test_a_silent_client_is_closed(patient: Patient) -> None:
    """D25: no frame for 45 seconds: connection_error CONN_TIMEOUT, then 4408."""
    outcome = patient("silence")
    assert outcome.messages and outcome.messages[-1]["type"] == "connection_error", outcome
    assert outcome.messages[-1]["payload"]["code"] == "CONN_TIMEOUT"
    assert outcome.code == 4408
    assert outcome.seconds >= LIVENESS - 1


@pytest.mark.slow
def test_protocol_pongs_keep_a_client_alive(patient: Patient) -> None:
    """D25: protocol pongs count as frames."""
    outcome = patient("only_pongs")
    assert outcome.seconds > LIVENESS
    assert outcome.messages[0]["type"] == "health_status"


@pytest.mark.slow
@pytest.mark.spec("wscode.CONN_TIMEOUT")
def test_no_auth_within_10_seconds(patient: Patient) -> None:
    """D21: no auth within 10 seconds: connection_error CONN_TIMEOUT, close 4408."""
    outcome = patient("no_auth")
    assert [message["type"] for message in outcome.messages] == ["connection_error"]
    assert outcome.messages[0]["payload"]["code"] == "CONN_TIMEOUT"
    assert outcome.code == 4408
    assert outcome.seconds >= limits.AUTH_WAIT_SECONDS - 1


@pytest.mark.slow
@pytest.mark.spec("delivery.cursor", "limit.pong_wait")
def test_a_heartbeat_proves_what_came_before_a_pong_ten_seconds_older(patient: Patient) -> None:
    """D27: event 1 went out before the pong of a ping 10 s older and is proven; event 2 came after
    that pong and is not. Nothing is proven so of a device that acknowledges some rows.
    """
    seen = patient("heartbeat_proof").seen
    assert (seen["sent_again"], seen["left_out"]) == ([2, 3], [1, 2, 3])


@pytest.mark.slow
def test_two_pings_close_together_prove_nothing(patient: Patient) -> None:
    """D27: the older ping must be at least 10 seconds older."""
    assert patient("heartbeat_proof").seen["too_early"] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.spec("delivery.slow")
def test_a_client_that_takes_no_byte_is_closed_and_recovers(patient: Patient) -> None:
    """D30: closed (4413) after 30 seconds; ingestion and other devices go on meanwhile; what it
    missed comes by its cursor.
    """
    outcome = patient("no_reader")
    received = outcome.seen["received"]
    assert received == list(range(len(received))) and len(received) < 24, received
    assert outcome.code in (4413, None), (
        "a frame may not fit any more into a full socket; any other close code is wrong"
    )
    assert outcome.seen["again"] == list(range(24)), (
        "nothing was acknowledged: all of it is sent again, in order"
    )


@pytest.mark.slow
@pytest.mark.spec("delivery.slow")
def test_ingestion_never_waits_for_a_client(patient: Patient) -> None:
    """D30: ingestion never waits for a client, and a socket's backlog is not held in memory (24 MB
    were posted).
    """
    outcome = patient("no_reader")
    assert outcome.seen["slowest"] < outcome.seconds, "no post took as long as the reader lived"
    assert outcome.seen["grown"] < 64 * 1024 * 1024, "24 MB of events must not pile up in memory"
