"""Heartbeats (spec, Limits), liveness (D25), the time for auth (D21), proof by heartbeat (D27),
slow clients (D30). What takes long runs side by side, each in a thread.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import nothing_more, replayed
from tests.conformance.phone import Phone
from tests.conformance.raw import PONG, RawSocket
from tests.conformance.samples import PAYLOADS, hook, new_session, now, prompt
from tests.faults.quick import QuickBridge
from tests.servers import PATIENCE
from tests.short import SHORT, short

Limits = Mapping[str, float]
REAL: Limits = {name: getattr(limits, name) for name in SHORT}


def closed_after(socket: RawSocket, seconds: float, started: float) -> str:
    messages, code = socket.until_closed()
    socket.close()
    assert messages[-1]["type"] == "connection_error", messages
    assert messages[-1]["payload"]["code"] == "CONN_TIMEOUT"
    assert code == 4408 and time.monotonic() - started >= seconds
    return str(messages[-1]["payload"]["message"])


def silence(bridge: Bridge, of: Limits) -> None:
    """A ready client from which no frame comes any more, not even a pong, is closed."""
    started = time.monotonic()
    ready = RawSocket(bridge.port).ready(bridge.pairing().token)
    closed_after(ready, of["LIVENESS_SECONDS"], started)


def no_auth(bridge: Bridge, of: Limits) -> None:
    """And a socket that never says who it is, or says it with a version that cannot be read."""
    started, said = time.monotonic(), {"token": bridge.pairing().token, "platform": "ios"}
    for version in (None, "banana"):
        socket = RawSocket(bridge.port)
        assert socket.upgrade().status == 101
        if version is not None:
            socket.send("auth", said | {"client_version": version})
        why = closed_after(socket, of["AUTH_WAIT_SECONDS"], started)
        assert why == f"No auth came within {of['AUTH_WAIT_SECONDS']} seconds."


def only_pongs(bridge: Bridge, of: Limits) -> None:
    """Protocol pongs alone keep a client alive for longer than the liveness limit."""
    socket = RawSocket(bridge.port).ready(bridge.pairing().token)
    started = time.monotonic()
    while time.monotonic() - started < of["LIVENESS_SECONDS"] + 3:
        socket.frame(b"", PONG)
        time.sleep(1)  # the client's own rhythm, not a wait for the server
    health = {"timestamp": now(), "client_nonce": "n", "client_capabilities": []}
    answer = socket.read_until(socket.send("health_check", health))
    assert answer["type"] == "health_status"
    socket.close()


def heartbeat_proof(bridge: Bridge, of: Limits) -> None:
    """D27: a ping proves what came before a pong some seconds older: event 1, but not event 2.

    It proves nothing for a device that acknowledges some rows (event 0), nor do two pings at once.
    Who answers notifications alone, or these and tool results, which is all that the spec asks,
    counts as one that never does; so does what a device is paired with anew, whatever was there
    before.
    """
    session_id, first = new_session(), bridge.pairing()
    bridge.watch(older := bridge.phone(first).ready(), session_id)
    older.close()
    renewed = bridge.phone(bridge.mint("--device", first.name)).ready()
    phones = [renewed, *[bridge.phone().ready() for _ in range(5)]]
    _, notified, answering, _, acknowledging, hasty = phones
    for phone in phones:
        phone.join(session_id)
    bridge.accept(hook("PostToolUse", session_id, PAYLOADS["PostToolUse"] | {"number": 0}))
    for phone in phones:
        phone.wait_numbers(session_id, [0])
    acknowledging.ack(*acknowledging.events(session_id))
    types = ("notification", "tool_result")
    for phone, answered in ((notified, types[:1]), (answering, types)):
        ids = [phone.expect(type_)["id"] for type_ in answered]
        phone.send("notification_ack", {"notification_ids": ids})  # without a ping
    bridge.accept(prompt(session_id, 1))
    for phone in phones:
        phone.wait_numbers(session_id, [0, 1])
        phone.ping()
    bridge.accept(prompt(session_id, 2))
    for phone in phones:
        phone.wait_numbers(session_id, [0, 1, 2])
    hasty.ping()
    hasty.again().wait_numbers(session_id, [0, 1, 2])
    nothing_more(bridge, hasty, session_id, [0, 1, 2])
    started = time.monotonic()
    while time.monotonic() - started < of["PONG_WAIT_SECONDS"] + 1:  # which the proof is about
        time.sleep(1)
        for phone in phones:
            phone.health_check()  # alive, and no heartbeat
    for phone in phones[:5]:
        phone.ping()
        phone.again()
    bridge.accept(prompt(session_id, 3))
    for phone in phones[:5]:
        expected = [1, 2, 3] if phone is acknowledging else [2, 3]
        phone.join(session_id)
        phone.collect(lambda phone=phone: 3 in phone.numbers(session_id), "the last event")  # type: ignore[misc]
        assert phone.numbers(session_id) == expected


def no_reader(bridge: Bridge, of: Limits) -> None:
    """D30: a client that stops reading is closed and recovers by its cursor; nobody waits."""
    session_id, megabyte = new_session(), "x" * 1_000_000
    bridge.accept(prompt(session_id, "first"))
    pairing = bridge.pairing()
    stuck = RawSocket(bridge.port, receive_buffer=65536).ready(pairing.token)
    joining = {"agent": "a", "session_id": session_id, "working_directory": "/", "resume": False}
    stuck.read_until(stuck.send("session_start", joining))
    reader = bridge.phone().ready()
    reader.join(session_id)
    before, started = bridge.memory(), time.monotonic()
    for number in range(24):
        bridge.accept(hook("UserPromptSubmit", session_id, {"prompt": megabyte, "number": number}))
        reader.ping()  # it reads on, and is alive
    reader.wait_numbers(session_id, range(24))
    assert bridge.memory() - before < 64 * 1024 * 1024, "24 MB must not pile up in memory"
    # its own heartbeats keep the client alive for D25, until the bridge has ended the connection
    with suppress(OSError):
        while time.monotonic() - started < PATIENCE:
            stuck.frame(b"", PONG)
            time.sleep(0.5)
    stuck.socket.settimeout(20)
    messages, code = stuck.until_closed()
    stuck.close()
    assert code in (4413, None)  # a close frame may not fit any more into a full socket
    received = replayed({"messages": messages})
    assert received == list(range(len(received))) and len(received) < 24, received
    back = bridge.phone(pairing).ready()
    back.collect(lambda: 23 in back.numbers(session_id), "the rest after the reconnect")
    assert back.numbers(session_id) == list(range(24)), "nothing was acknowledged: all comes again"


Scenario = Callable[[Bridge, Limits], None]
SCENARIOS: tuple[Scenario, ...] = (silence, only_pongs, no_auth, heartbeat_proof, no_reader)


NAMES = ("AUTH_WAIT_SECONDS", "PONG_WAIT_SECONDS", "LIVENESS_SECONDS", "SLOW_SOCKET_SECONDS")
LIVED = {"short": (short(*NAMES), SHORT), "real": ({}, REAL)}


@pytest.fixture(scope="module", params=["short", pytest.param("real", marks=pytest.mark.slow)])
def patient(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Scenario], None]]:
    """Starts what takes long, all at once; `patient(scenario)` waits for its end."""
    profile, times = LIVED[request.param]
    with (
        QuickBridge(
            tmp_path_factory.mktemp("bridge"), BRIDGE_MAX_WEBSOCKETS="20", **profile
        ) as bridge,
        ThreadPoolExecutor(len(SCENARIOS)) as pool,
    ):
        futures = {scenario: pool.submit(scenario, bridge, times) for scenario in SCENARIOS}
        yield lambda scenario: futures[scenario].result()


def test_the_times() -> None:
    """Tests of every day live through shorter ones; tests/short.py."""
    assert (limits.HEARTBEAT_INTERVAL_SECONDS, limits.PONG_WAIT_SECONDS) == (15, 10)
    assert (limits.AUTH_WAIT_SECONDS, limits.LIVENESS_SECONDS) == (10, 45)
    assert limits.SLOW_SOCKET_SECONDS == 30
    remembered = (limits.EVENT_ID_MEMORY_SECONDS, limits.REQUEST_MEMORY_SECONDS)
    assert remembered == (24 * 3600, 600)
    assert (limits.REPLAY_BUFFER_SECONDS, limits.SESSION_GRACE_SECONDS) == (1800, 300)
    assert (limits.AGENT_IDLE_SECONDS, limits.CIRCUIT_BREAKER_PROBE_SECONDS) == (1800, 60)


@pytest.mark.spec("ws.heartbeat_ping", "ws.heartbeat_pong", "envelope.heartbeat")
def test_a_ping_may_carry_more(device: Phone) -> None:
    """D3; the pong has its type and a timestamp alone. D21: it is answered before ready."""
    assert device.connect().auth()["type"] == "connection_ack"
    device.send("heartbeat_ping", {"more": 1})
    pong = device.until(lambda message: message["type"] == "heartbeat_pong", "heartbeat_pong")
    assert set(pong) == {"type", "timestamp"}


@pytest.mark.slow
def test_an_auth_that_waits_for_the_database(mortal: Bridge) -> None:
    """D21: it came in time, and is answered when the database can be written again."""
    phone = mortal.phone().connect()
    with mortal.locked():
        body = {"token": phone.token, "client_version": "1.2.3", "platform": "ios"}
        sent = phone.send("auth", body)
        time.sleep(limits.AUTH_WAIT_SECONDS + 2)
    assert phone.answer_to(sent)["type"] == "connection_ack"


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.spec(
    "limit.heartbeat wscode.CONN_TIMEOUT delivery.cursor limit.pong_wait delivery.slow"
)
def test_what_takes_long(patient: Callable[[Scenario], None], scenario: Scenario) -> None:
    patient(scenario)
