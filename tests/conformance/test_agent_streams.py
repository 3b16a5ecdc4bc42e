"""How soon, how whole and in which order an agent's words reach the phones (SPEC stream_chunk; D26,
D30; issue, Shown by).
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from tests.conformance.agent_tools import Script, figure, stream
from tests.conformance.agents import ask, begin, end, say, words
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Message, Phone

SESSIONS, PER_SECOND, SECONDS = 10, 100, int(os.environ.get("TEST_STREAM_SECONDS", "4"))
FIRST_CHUNK = 0.15  # seconds at the median
# seconds at most for a heartbeat at p99 here; the loop's own lag is what `make bench ARGS=streams`
# holds to its goal
ROUND_TRIP = 1.0


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain")


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge], script: Script) -> Iterator[Bridge]:
    bridge = make_bridge("streams", BRIDGE_ACP_AGENTS=script.setting)
    yield bridge
    bridge.stop()


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


@pytest.mark.spec("ws.stream_chunk")
def test_the_first_chunk_is_soon_there(bridge: Bridge, phone: Phone) -> None:
    """Issue, Shown by: at the phone within 150 ms of the agent's own first chunk, whose time it
    carries.
    """
    sid, late = begin(bridge, phone, agent="plain"), []
    for _ in range(20):
        say(phone, sid, "/stamp")
        chunk = phone.expect("stream_chunk", session_id=sid)
        late.append(time.time() - float(chunk["payload"]["content"].split()[0]))
        phone.expect("stream_end", session_id=sid)
        phone.untaken.clear()  # the rest of what was said
    figure(
        f"first chunk at the phone after: median {statistics.median(late) * 1000:.0f} ms, worst {max(late) * 1000:.0f} ms of {len(late)}"
    )
    assert statistics.median(late) < FIRST_CHUNK
    end(phone, sid)


def listen(phone: Phone, sessions: list[str], stop: threading.Event) -> list[Message]:
    """Everything up to the end of every session's turn."""
    open_, deadline = set(sessions), time.monotonic() + SECONDS + 60
    while open_:
        assert time.monotonic() < deadline and not stop.is_set(), f"no end of {len(open_)} sessions"
        message = phone.receive()
        if message["type"] == "stream_end":
            open_.discard(message["payload"]["session_id"])
    return phone.messages


def round_trips(phone: Phone, until: list[Future[list[Message]]] | float) -> list[float]:
    """Seconds that heartbeats took, one after another, until the others are done or for so many
    seconds.
    """
    times: list[float] = []
    futures, deadline = (
        (until, time.monotonic() + SECONDS + 90)
        if isinstance(until, list)
        else ([], time.monotonic() + until)
    )
    while time.monotonic() < deadline and (not futures or wait(futures, timeout=0.03).not_done):
        began = time.monotonic()
        phone.ping()
        times.append(time.monotonic() - began)
    return times


@pytest.mark.spec("ws.stream_start", "ws.stream_chunk", "ws.stream_end")
def test_ten_sessions_to_two_phones(bridge: Bridge, script: Script) -> None:
    """Issue, Shown by: ten sessions at once, 100 chunks a second each, two phones: nothing lost, in
    order, the same rows for both; heartbeats are answered meanwhile, whose round trip, the clients'
    own work included, bounds the event loop's lag."""
    count = SECONDS * PER_SECOND
    with bridge.phones(3) as (first, second, pulse):
        sessions = [begin(bridge, first, agent="plain") for _ in range(SESSIONS)]
        for sid in sessions:
            second.join(sid)
        quiet = round_trips(pulse, 0.5)
        stop = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            try:
                for number, sid in enumerate(sessions):
                    say(first, sid, f"/rate s{number} {count} {PER_SECOND}")
                busy = [pool.submit(listen, phone, sessions, stop) for phone in (first, second)]
                lag = round_trips(pulse, busy)
            finally:
                stop.set()
            heard = [future.result() for future in busy]
        for number, sid in enumerate(sessions):
            of_both = [stream(messages, sid) for messages in heard]
            assert of_both[0] == of_both[1], f"the phones saw different rows of session {number}"
            kinds = [message["type"] for message in of_both[0]]
            assert (
                kinds[0] == "stream_start"
                and kinds[-1] == "stream_end"
                and set(kinds[1:-1]) == {"stream_chunk"}
            ), kinds
            assert words(of_both[0]) == "".join(f"s{number}-{chunk} " for chunk in range(count))
            assert of_both[0][-1]["payload"]["finish_reason"] == "stop"
        for sid in sessions:
            end(first, sid)
    slowest = max(line["seconds"] for line in script.lines("said"))
    figures = ", ".join(
        f"{name} p50 {percentile(some, 0.5) * 1000:.0f} p99 {percentile(some, 0.99) * 1000:.0f} ms"
        for name, some in zip(("quiet", "busy"), (quiet, lag), strict=True)
    )
    rows = sum(len(stream(heard[0], sid)) for sid in sessions)
    figure(
        f"heartbeats: {figures} (of {len(lag)}); {SESSIONS * count} chunks in {rows} messages; the slowest agent took {slowest:.1f} s for {SECONDS} s"
    )
    assert percentile(lag, 0.99) < ROUND_TRIP
    assert rows < SESSIONS * count / 2, "what is said within 50 ms is one row"


def test_a_phone_that_does_not_read_slows_nobody(bridge: Bridge, script: Script) -> None:
    """D30; issue: a slow phone never slows the agent: 4 MB said at full speed are with the other
    phone at once, and the slow one gets all of it later.
    """
    with bridge.phones(2) as (quick, slow):
        sid = begin(bridge, quick, agent="plain")
        slow.join(sid)
        label, count = "x" * 2000, 2000
        said = len(script.lines("said"))
        messages = ask(quick, sid, f"/rate {label} {count} 1000000")
        assert len(script.lines("said")) == said + 1, "the agent has said it all"
        expected = "".join(f"{label}-{number} " for number in range(count))
        assert words(messages) == expected
        slow.collect(
            lambda: bool([m for m in slow.messages[-1:] if m["type"] == "stream_end"]),
            "the end, at last",
        )
        assert stream(slow.messages, sid) == stream(quick.messages, sid)
        with bridge.phones(1) as (late,):
            late.join(sid)
            buffer = late.expect("replay_buffer", session_id=sid)["payload"]
            assert buffer["complete"] is False, "D29: what was cut is said"
            assert len(json.dumps(buffer["messages"])) < 110_000, "D30"
            assert buffer["messages"][-1] == messages[-1]
        end(quick, sid)
    eventually(lambda: not script.processes())
