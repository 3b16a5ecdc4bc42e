"""Heartbeats (spec, Limits), liveness (D25), the time for auth (D21), proof by heartbeat (D27),
slow clients (D30). What takes long runs side by side, each in a thread.
"""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


Outcome = dict[str, Any]


def until_closed(socket: RawSocket) -> Outcome:
    started = time.monotonic()
    messages, code = socket.until_closed()
    socket.close()
    return {"seconds": time.monotonic() - started, "messages": messages, "code": code}


def silence(bridge: Bridge) -> Outcome:
    """A ready client from which no frame comes any more, not even a pong."""
    return until_closed(RawSocket(bridge.port, timeout=PATIENCE).ready(bridge.pairing().token))


def no_auth(bridge: Bridge) -> Outcome:
    """A socket that never says who it is."""
    socket = RawSocket(bridge.port, timeout=PATIENCE)
    assert socket.upgrade().status == 101
    return until_closed(socket)


def only_pongs(bridge: Bridge) -> Outcome:
    """Protocol pongs alone for longer than the liveness limit, then a message."""
    socket = RawSocket(bridge.port, timeout=180).ready(bridge.pairing().token)
    started = time.monotonic()
    while time.monotonic() - started < LIVENESS + 3:
        socket.frame(b"", PONG)
        time.sleep(1)  # the client's own rhythm, not a wait for the server
    health = {"timestamp": now(), "client_nonce": "n", "client_capabilities": []}
    answer = socket.read_until(socket.send("health_check", health))
    socket.close()
    return {"seconds": time.monotonic() - started, "answer": answer}


def heartbeat_proof(bridge: Bridge) -> Outcome:
    """Two events, the first before an answered ping, the second after it; another ping ten seconds
    later; a reconnect, and what it brings.

    Event 0 before these is acknowledged by one device; another sends both pings at once; a third
    acknowledges notifications alone, all that the spec asks: those of the others' pairing.
    """
    session_id = new_session()
    bridge.accept(prompt(session_id, "before"))
    notified, patient, acknowledging, hasty = phones = [bridge.phone().ready() for _ in range(4)]
    for phone in phones:
        phone.join(session_id)
    bridge.accept(prompt(session_id, 0))
    for phone in phones:
        phone.wait_numbers(session_id, [0])
    acknowledging.ack(*acknowledging.events(session_id))
    ids = [notified.expect("notification")["id"]]
    notified.send("notification_ack", {"notification_ids": ids})
    bridge.accept(prompt(session_id, 1))
    for phone in phones:
        phone.wait_numbers(session_id, [0, 1])
        phone.ping()
    bridge.accept(prompt(session_id, 2))
    for phone in phones:
        phone.wait_numbers(session_id, [0, 1, 2])
    hasty.ping()
    hasty.close()
    hasty.ready().wait_numbers(session_id, [0, 1, 2])
    bridge.fence(hasty)
    started = time.monotonic()
    while time.monotonic() - started < PONG_WAIT + 1:  # the ten seconds that the proof is about
        time.sleep(1)
        for phone in (notified, patient, acknowledging):
            phone.health_check()  # alive, and no heartbeat
    for phone in (notified, patient, acknowledging):
        phone.ping()
        phone.close()
        phone.ready()
    bridge.accept(prompt(session_id, 3))
    for phone in (notified, patient, acknowledging):
        phone.join(session_id)
        phone.collect(lambda phone=phone: 3 in phone.numbers(session_id), "the last event")  # type: ignore[misc]
    names = ("notified", "patient", "acknowledging", "hasty")
    return {name: phone.numbers(session_id) for name, phone in zip(names, phones, strict=True)}


def no_reader(bridge: Bridge) -> Outcome:
    """A joined client that stops reading while 24 MB of events arrive for it; another reads on."""
    session_id, megabyte = new_session(), "x" * 1_000_000
    bridge.accept(prompt(session_id, "first"))
    pairing = bridge.pairing()
    stuck = RawSocket(bridge.port, timeout=180, receive_buffer=65536).ready(pairing.token)
    joining = {"agent": "a", "session_id": session_id, "working_directory": "/", "resume": False}
    stuck.read_until(stuck.send("session_start", joining))
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
    events = [message["payload"] for message in messages if message["type"] == "agent_event"]
    back = bridge.phone(pairing).ready()
    back.collect(lambda: 23 in back.numbers(session_id), "the rest after the reconnect", 60)
    return {
        "code": code,
        "received": [event["payload"]["number"] for event in events],
        "again": back.numbers(session_id),
        "slowest": slowest,
        "seconds": time.monotonic() - started,
        "grown": grown,
    }


Scenario = Callable[[Bridge], Outcome]
Patient = Callable[[Scenario], Outcome]
SCENARIOS: tuple[Scenario, ...] = (silence, only_pongs, no_auth, heartbeat_proof, no_reader)


@pytest.fixture(scope="module")
def patient(make_bridge: Callable[..., Bridge]) -> Iterator[Patient]:
    """Starts what takes long, all at once; `patient(scenario)` waits for an outcome."""
    bridge = make_bridge("hasty", kind=Hasty, BRIDGE_MAX_WEBSOCKETS="20")
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        futures = {scenario: pool.submit(scenario, bridge) for scenario in SCENARIOS}
        yield lambda scenario: futures[scenario].result()
    bridge.stop()


def test_the_times() -> None:
    """Two of them are made shorter here."""
    assert (limits.HEARTBEAT_INTERVAL_SECONDS, limits.PONG_WAIT_SECONDS) == (15, 10)
    assert (limits.AUTH_WAIT_SECONDS, limits.LIVENESS_SECONDS) == (10, 45)
    assert limits.SLOW_SOCKET_SECONDS == 30


@pytest.mark.spec("ws.heartbeat_ping", "ws.heartbeat_pong", "envelope.heartbeat")
def test_a_ping_may_carry_more(device: Phone) -> None:
    """D3; the pong has its type and a timestamp alone. D21: it is answered before ready."""
    assert device.connect().auth()["type"] == "connection_ack"
    more = {"id": "hb-1", "payload": {}}
    device.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()} | more))
    pong = device.until(lambda message: message["type"] == "heartbeat_pong", "heartbeat_pong")
    assert set(pong) == {"type", "timestamp"}


@pytest.mark.slow
@pytest.mark.spec("limit.heartbeat", "wscode.CONN_TIMEOUT")
@pytest.mark.parametrize(
    ("scenario", "seconds"), [(silence, LIVENESS), (no_auth, limits.AUTH_WAIT_SECONDS)]
)
def test_a_silent_client_is_closed(patient: Patient, scenario: Scenario, seconds: float) -> None:
    outcome = patient(scenario)
    assert outcome["messages"][-1]["type"] == "connection_error", outcome
    assert outcome["messages"][-1]["payload"]["code"] == "CONN_TIMEOUT"
    assert outcome["code"] == 4408 and outcome["seconds"] >= seconds - 1


@pytest.mark.slow
def test_protocol_pongs_keep_a_client_alive(patient: Patient) -> None:
    outcome = patient(only_pongs)
    assert outcome["seconds"] > LIVENESS
    assert outcome["answer"]["type"] == "health_status"


@pytest.mark.slow
@pytest.mark.spec("delivery.cursor", "limit.pong_wait")
def test_a_heartbeat_proves_what_came_before_a_pong_ten_seconds_older(patient: Patient) -> None:
    """D27: nothing is proven so of a device that acknowledges some rows, nor by two pings that are
    closer together.
    """
    assert patient(heartbeat_proof) == {
        "notified": [2, 3],
        "patient": [2, 3],
        "acknowledging": [1, 2, 3],
        "hasty": [0, 1, 2],
    }


@pytest.mark.slow
@pytest.mark.spec("delivery.slow")
def test_a_client_that_takes_no_byte_is_closed_and_recovers(patient: Patient) -> None:
    """D30: what it missed comes by its cursor; ingestion and other devices never waited for it, and
    its backlog was not held in memory.
    """
    outcome = patient(no_reader)
    received = outcome["received"]
    assert received == list(range(len(received))) and len(received) < 24, received
    # a close frame may not fit any more into a full socket
    assert outcome["code"] in (4413, None)
    assert outcome["again"] == list(range(24)), "nothing was acknowledged: all comes again"
    assert outcome["slowest"] < outcome["seconds"], "no post took as long as the reader lived"
    assert outcome["grown"] < 64 * 1024 * 1024, "24 MB of events must not pile up in memory"
