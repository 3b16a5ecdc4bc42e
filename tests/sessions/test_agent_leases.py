"""Agents of a process that others take for dead (D22, D35, D46)."""

import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.conformance.agent_tools import Script, begun, bridges_of, script_of, wait_status
from tests.conformance.agents import answer_to, ask, begin, end, log_of, send_start, start, words
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone
from tests.faults.quick import with_limits
from tests.servers import Postgres

LEASE = 5
Pair = list[Bridge]

HASTY = with_limits(LEASE_SECONDS=LEASE, LEASE_RENEWAL_SECONDS=1)  # taken for dead sooner
script, pair = script_of("plain"), bridges_of(2, "script", first=HASTY)


@pytest.fixture
def phones(pair: Pair) -> Iterator[tuple[Phone, Phone]]:
    """One on each; they do not check the pin: each process has its own certificate here."""
    both = [Phone(bridge.port, pair[0].pairing().token, None).ready() for bridge in pair]
    yield both[0], both[1]
    for phone in both:
        phone.vanish()


def health(bridge: Bridge) -> int:
    return bridge.get("/api/v1/health", bridge.admin_token).status


def test_a_process_that_slept_for_longer_than_its_lease(
    pair: Pair, phones: tuple[Phone, Phone], script: Script
) -> None:
    """D46: a session that is resumed has one agent, whose words alone are told."""
    (first, second), (near, far) = pair, phones
    taken, back = (begun(first, near, "/rate old 6000 100") for _ in range(2))
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    try:
        for sid in (taken, back):
            wait_status(second, sid, "paused")
        assert start(far, "", taken, resume=True)["type"] == "session_ready"
        asked = send_start(near, "", back, "", resume=True)
    finally:
        first.process.send_signal(signal.SIGCONT)
    with suppress(ConnectionError):
        assert answer_to(near, asked)["type"] == "session_ready"
    far.join(back)
    eventually(lambda: len(script.processes()) == 2)
    for sid in (taken, back):
        assert words(ask(far, sid, "new")).endswith("new")
        log = log_of(far, sid)
        kinds = [one["type"] for one in log if one["type"].startswith("stream_")]
        assert kinds.count("stream_end") == 2 == kinds.count("stream_start")
        ended = [one["type"] for one in log].index("stream_end")
        assert "old" not in words(log[ended:]), "what it heard in its sleep is not said"
        end(far, sid)


def test_processes_whose_database_was_away_are_not_dead(
    pair: Pair, phones: tuple[Phone, Phone], script: Script, postgres_server: Postgres
) -> None:
    """D46: whoever looks first leaves the others the time to renew their leases."""
    (first, second), (near, far) = pair, phones
    script.assert_gone()
    sessions = [(first, near, begin(first, near, agent="plain"))]
    sessions += [(second, far, begin(second, far, agent="plain"))]
    agents = script.processes().keys()
    postgres_server.stop()
    time.sleep(LEASE + 1)
    postgres_server.start()
    for bridge, phone, sid in sessions:
        eventually(lambda bridge=bridge: health(bridge) == 200)
        assert words(ask(phone, sid, "still here")).endswith("still here")
    assert script.processes().keys() == agents
    for _, phone, sid in sessions:
        end(phone, sid)
