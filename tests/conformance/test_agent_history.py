"""A session whose beginning the log has lost: that is said, and the agent itself tells the last of
it (D29, D60; issue, Also).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.agent_tools import Script, quick_bridge, restart, tidied
from tests.conformance.agents import ask, begin, end, say, start, words
from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone

KEPT = 9  # rows of a session: those of two turns, and one


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain", "tells")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    settings = {"BRIDGE_SESSION_GRACE_SECONDS": "2", "BRIDGE_QUEUE_MAX": str(KEPT)}
    with quick_bridge(tmp_path_factory.mktemp("history"), script, **settings) as bridge:
        yield bridge


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest, quick: Bridge) -> Iterator[None]:
    with tidied(request, quick):
        yield


def buffers(phone: Phone, session_id: str) -> list[dict[str, Any]]:
    """The replay_buffers of the session on this connection; the bridge has sent all it will."""
    phone.until(
        lambda message: (
            message["type"] == "replay_buffer"
            and message["payload"]["session_id"] == session_id
            and "source" not in message["payload"]
        ),
        "what the log has",
    )
    return [message["payload"] for message in of(phone, "replay_buffer", session_id)]


def conversation(messages: list[dict[str, Any]]) -> list[str]:
    """Who said what, in order: a prompt, or an answer after an arrow."""
    found = []
    for message in messages:
        payload = message["payload"]
        if message["type"] == "agent_event":
            found.append(payload["payload"]["prompt"])
        elif message["type"] == "stream_chunk":
            found.append(f"→ {payload['content']}")
    return found


def test_what_the_agent_tells(quick: Bridge, script: Script) -> None:
    """Whoever resumes it, and a device that is new to it, gets complete false and the last of the
    conversation from before the log begins, once, marked, and with the same ids each time.
    """
    with quick.phones(2) as (phone, late):
        sid = begin(quick, phone, agent="tells")
        for number in range(4):
            said = ask(phone, sid, f"number {number}")
            phone.ack(*said)
        phone.close()
        restart(quick, "stop")  # which stores what was acknowledged
        phone.ready()
        assert start(phone, quick.root, sid, resume=True)["type"] == "session_ready"
        mine = buffers(phone, sid)
        assert [(one.get("source"), one["complete"]) for one in mine] == [
            ("agent", False),
            (None, False),
        ]
        told = mine[0]["messages"]
        assert conversation(told) == [
            line
            for number in range(4)
            for line in (f"number {number}", "→ about", f"→ number {number}")
        ], "this phone has acknowledged all: it is told what it may not have kept"
        assert {m["payload"]["payload"]["source"] for m in told if m["type"] == "agent_event"} == {
            "agent"
        }
        assert mine[1]["messages"] == [], "and gets no row twice"

        late.ready()
        late.join(sid)
        [from_agent, from_log] = buffers(late, sid)
        rows = from_log["messages"]
        first = next(line for line in conversation(rows) if not line.startswith("→"))
        assert conversation(from_agent["messages"]) == conversation(told)[: 3 * int(first[-1])]
        assert [m["id"] for m in from_agent["messages"]] == [m["id"] for m in told][
            : len(from_agent["messages"])
        ]
        assert rows[-len(said) :] == said
        assert from_log["complete"] is False

        assert words(ask(phone, sid, "and on")).endswith("and on")
        late.expect("stream_end", session_id=sid)
        end(phone, sid)


def test_an_agent_that_tells_nothing(quick: Bridge) -> None:
    """The log's own replay_buffer says that it begins later; a session that is whole is complete."""
    with quick.phones(2) as (phone, late):
        lost, whole = (begin(quick, phone, agent="plain") for _ in range(2))
        ask(phone, whole, "hello")
        for number in range(4):
            ask(phone, lost, f"number {number}")
        for session, complete in ((lost, False), (whole, True)):
            late.join(session)
            [only] = buffers(late, session)
            assert only["complete"] is complete and only["messages"] and "source" not in only
        say(phone, lost, "bye")
        for session in (lost, whole):
            end(phone, session)
