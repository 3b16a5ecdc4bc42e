"""Heartbeats (spec, Limits and WebSocket operations), liveness (D25), the time for auth (D21),
proof by heartbeat (D27), slow clients (D30). What takes long runs side by side, each in a thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.raw import PONG, RawSocket
from tests.conformance.samples import hook, new_session, now, prompt
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import PATIENCE

SHORTER = 4  # the bridge's liveness and patience with a slow socket are so many times shorter
LIVENESS, SLOW = limits.LIVENESS_SECONDS / SHORTER, limits.SLOW_SOCKET_SECONDS / SHORTER
PONG_WAIT = limits.PONG_WAIT_SECONDS


class Hasty(QuickBridge):
    """A bridge that waits for a client's frames, and for it to take bytes, a quarter as long."""

    first = with_limits(LIVENESS_SECONDS=LIVENESS, SLOW_SOCKET_SECONDS=SLOW)


@dataclass
class Outcome:
    seconds: float
    messages: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    seen: dict[str, Any] = field(default_factory=dict)


def until_closed(socket: RawSocket) -> Outcome:
    started = time.monotonic()
    messages, code = socket.until_closed()
    socket.close()
    return Outcome(time.monotonic() - started, messages, code)


def silence(bridge: Bridge) -> Outcome:
    """A ready client from which no frame comes any more, not even a pong."""
    return until_closed(RawSocket(bridge.port, timeout=PATIENCE).ready(bridge.pairing().token))


def no_auth(bridge: Bridge) -> Outcome:
    """A socket that never says who it is."""
    socket = RawSocket(bridge.port, timeout=PATIENCE)
    assert socket.upgrade().status == 101
    return until_closed(socket)


def only_pongs(bridge: Bridge) -> Outcome:
    """A ready client that sends nothing but protocol pongs for longer than the liveness limit, then
    a message.
    """
    socket = RawSocket(bridge.port, timeout=180).ready(bridge.pairing().token)
    started = time.monotonic()
    while time.monotonic() - started < LIVENESS + 3:
        socket.frame(b"", PONG)
        time.sleep(1)  # the client's own rhythm, not a wait for the server
    answer = socket.read_until(
        socket.send(
            "health_check",
            {"timestamp": "2026-01-01T00:00:00Z", "client_nonce": "n", "client_capabilities": []},
        )
    )
    socket.close()
    return Outcome(time.monotonic() - started, [answer])


def heartbeat_proof(bridge: Bridge) -> Outcome:
    """Two events, no notification_ack: the first before an answered ping, the second after it;
    another ping ten seconds later; a reconnect.

    `sent_again` is what the next connection brings, `left_out` the same for a device that has
    acknowledged the event before these. `too_early` is it with both pings inside the pong wait.
    """
    session_id = new_session()
    bridge.accept(prompt(session_id, "before"))
    patient, acknowledging, hasty = phones = [bridge.phone() for _ in range(3)]
    for phone in phones:
        phone.ready()
        phone.join(session_id)
    bridge.accept(prompt(session_id, 0))
    for phone in phones:
        phone.wait_numbers(session_id, [0])
    acknowledging.ack(*acknowledging.events(session_id))
    bridge.accept(prompt(session_id, 1))
    for phone in phones:
        phone.wait_numbers(session_id, [0, 1])
        phone.ping()
    bridge.accept(prompt(session_id, 2))
    for phone in phones:
        phone.wait_numbers(session_id, [0, 1, 2])
    hasty.ping()
    hasty.close()
    hasty.ready()
    hasty.wait_numbers(session_id, [0, 1, 2])
    bridge.fence(hasty)
    started = time.monotonic()
    while time.monotonic() - started < PONG_WAIT + 1:  # the ten seconds that the proof is about
        time.sleep(1)
        for phone in (patient, acknowledging):
            phone.health_check()  # alive, and no heartbeat
    for phone in (patient, acknowledging):
        phone.ping()
        phone.close()
        phone.ready()
    bridge.accept(prompt(session_id, 3))
    for phone in (patient, acknowledging):
        phone.join(session_id)
        phone.collect(lambda phone=phone: 3 in phone.numbers(session_id), "the last event")  # type: ignore[misc]
    seen = {
        "sent_again": patient.numbers(session_id),
        "left_out": acknowledging.numbers(session_id),
        "too_early": hasty.numbers(session_id),
    }
    for phone in phones:
        phone.close()
    return Outcome(time.monotonic() - started, seen=seen)


def no_reader(bridge: Bridge) -> Outcome:
    """A joined client that stops reading while 24 MB of events arrive for it; another device on the
    same session reads on.
    """
    session_id, megabyte = new_session(), "x" * 1_000_000
    bridge.accept(prompt(session_id, "first"))
    pairing = bridge.pairing()
    stuck = RawSocket(bridge.port, timeout=180, receive_buffer=65536).ready(pairing.token)
    stuck.read_until(
        stuck.send(
            "session_start",
            {"agent": "a", "session_id": session_id, "working_directory": "/", "resume": False},
        )
    )
    reader = bridge.phone().ready()
    reader.join(session_id)
    before, slowest = bridge.memory(), 0.0
    started = time.monotonic()
    for number in range(24):
        posted = time.monotonic()
        bridge.accept(hook("UserPromptSubmit", session_id, {"prompt": megabyte, "number": number}))
        slowest = max(slowest, time.monotonic() - posted)
        reader.ping()  # it reads on, and is alive
    reader.wait_numbers(session_id, range(24), 30)
    grown = bridge.memory() - before
    # its own heartbeats keep the client alive for D25, until the bridge has ended the connection
    while time.monotonic() - started < PATIENCE:
        try:
            stuck.frame(b"", PONG)
        except OSError:
            break
        time.sleep(0.5)
    stuck.socket.settimeout(20)
    messages, code = stuck.until_closed()
    stuck.close()
    reader.close()
    received = [
        message["payload"]["payload"]["number"]
        for message in messages
        if message["type"] == "agent_event"
    ]
    back = bridge.phone(pairing).ready()
    back.collect(lambda: 23 in back.numbers(session_id), "the rest after the reconnect", 60)
    again = back.numbers(session_id)
    back.close()
    return Outcome(
        time.monotonic() - started,
        messages,
        code,
        {"slowest": slowest, "received": received, "again": again, "grown": grown},
    )


SCENARIOS = {
    function.__name__: function
    for function in (silence, only_pongs, no_auth, heartbeat_proof, no_reader)
}


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
    that pong and is not. Nothing is proven so of a device that acknowledges some rows, nor by two
    pings that are closer together.
    """
    seen = patient("heartbeat_proof").seen
    assert (seen["sent_again"], seen["left_out"]) == ([2, 3], [1, 2, 3])
    assert seen["too_early"] == [0, 1, 2]


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
