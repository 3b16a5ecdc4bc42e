"""How whole and in which order an agent's words reach the phones (SPEC stream_chunk; D26, D29, D30;
issue, Shown by). How soon: `make bench ARGS=streams`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.agent_tools import Script, stream
from tests.conformance.agents import ask, begin, end, say, words
from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge, eventually

SESSIONS, PER_SECOND, COUNT = 10, 100, 200


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain")


@pytest.fixture(scope="module")
def bridge(make_bridge: Callable[..., Bridge], script: Script) -> Iterator[Bridge]:
    bridge = make_bridge("streams", BRIDGE_ACP_AGENTS=script.setting)
    yield bridge
    bridge.stop()


@pytest.mark.spec("ws.stream_start", "ws.stream_chunk", "ws.stream_end")
def test_ten_sessions_to_two_phones(bridge: Bridge) -> None:
    """Issue, Shown by: ten sessions at once, 100 chunks a second each, two phones: nothing lost, in
    order, the same rows for both; a heartbeat is answered meanwhile.
    """
    with bridge.phones(3) as (first, second, pulse):
        sessions = [begin(bridge, first, agent="plain") for _ in range(SESSIONS)]
        for sid in sessions:
            second.join(sid)
        for number, sid in enumerate(sessions):
            say(first, sid, f"/rate s{number} {COUNT} {PER_SECOND}")
        pulse.ping()
        rows = 0
        for number, sid in enumerate(sessions):
            for phone in (first, second):
                phone.collect(
                    lambda phone=phone, sid=sid: bool(of(phone, "stream_end", sid)),  # type: ignore[misc]
                    "its end",
                )
            begun, *chunks, ended = seen = stream(first.messages, sid)
            assert stream(second.messages, sid) == seen, f"other rows of session {number}"
            assert (begun["type"], ended["type"]) == ("stream_start", "stream_end")
            assert words(chunks) == "".join(f"s{number}-{chunk} " for chunk in range(COUNT))
            assert ended["payload"]["finish_reason"] == "stop"
            rows += len(seen)
        for sid in sessions:
            end(first, sid)
    assert rows < SESSIONS * COUNT / 2, "what is said within 50 ms is one row"


def test_a_phone_that_does_not_read_slows_nobody(bridge: Bridge, script: Script) -> None:
    """D30; issue: a slow phone never slows the agent: 4 MB said at full speed are with the other
    phone at once, and the slow one gets all of it later. One that comes then gets the last of it.
    """
    with bridge.phones(2) as (quick, slow):
        sid = begin(bridge, quick, agent="plain")
        slow.join(sid)
        label, count = "x" * 2000, 2000
        messages = ask(quick, sid, f"/rate {label} {count} 1000000")
        assert script.lines("said")[-1]["label"] == label, "the agent has said it all"
        assert words(messages) == "".join(f"{label}-{number} " for number in range(count))
        slow.collect(lambda: bool(of(slow, "stream_end", sid)), "the end, at last")
        assert stream(slow.messages, sid) == stream(quick.messages, sid)
        with bridge.phones(1) as (late,):
            late.join(sid)
            buffer = late.expect("replay_buffer", session_id=sid)["payload"]
            assert buffer["complete"] is False, "D29: what was cut is said"
            assert len(json.dumps(buffer["messages"])) < 110_000, "D30"
            assert buffer["messages"][-1] == messages[-1]
        end(quick, sid)
    eventually(lambda: not script.processes())
