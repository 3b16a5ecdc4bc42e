"""What takes long: the scenarios of test_heartbeat_liveness.py run side by side, each in a thread
of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import IO, Any

from bridge_project.kernel import limits
from tests.conformance.bridge import Bridge
from tests.conformance.raw import PONG, RawSocket
from tests.conformance.samples import hook, new_session, prompt
from tests.faults.quick import QuickBridge, nursery
from tests.servers import PATIENCE, Running

SHORTER = 4  # the bridge's liveness and patience with a slow socket are so many times shorter
LIVENESS, SLOW = limits.LIVENESS_SECONDS / SHORTER, limits.SLOW_SOCKET_SECONDS / SHORTER
PONG_WAIT = limits.PONG_WAIT_SECONDS
CODE = f"""
import runpy, sys
from bridge_project.kernel import limits
vars(limits).update(LIVENESS_SECONDS={LIVENESS}, SLOW_SOCKET_SECONDS={SLOW})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Hasty(QuickBridge):
    """A bridge that waits for a client's frames, and for it to take bytes, a quarter as long."""

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        return nursery.spawn(["-c", *arguments], self.environment, log, log, CODE)


@dataclass
class Outcome:
    seconds: float
    messages: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None
    seen: dict[str, Any] = field(default_factory=dict)


def silence(bridge: Bridge) -> Outcome:
    """A ready client from which no frame comes any more, not even a pong."""
    socket = RawSocket(bridge.port, timeout=90).ready(bridge.pairing().token)
    started = time.monotonic()
    messages, code = socket.until_closed()
    socket.close()
    return Outcome(time.monotonic() - started, messages, code)


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


def no_auth(bridge: Bridge) -> Outcome:
    """A socket that never says who it is."""
    socket = RawSocket(bridge.port, timeout=180)
    assert socket.upgrade().status == 101
    started = time.monotonic()
    messages, code = socket.until_closed()
    socket.close()
    return Outcome(time.monotonic() - started, messages, code)


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
