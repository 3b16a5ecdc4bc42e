"""A session whose beginning the log has lost: the agent itself tells the last of it (D29, D60)."""

from typing import Any

from tests.conformance.agent_tools import bridge_of, script_of
from tests.conformance.agents import ask, begin, end, resume, words
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone

# a session keeps the rows of two turns, and one
script, bridge = script_of("tells"), bridge_of(BRIDGE_QUEUE_MAX="9")


def buffers(phone: Phone, session_id: str) -> list[list[dict[str, Any]]]:
    """What the agent tells and what the log has, marked so, of a session that was just joined."""
    both = [phone.expect("replay_buffer", session_id=session_id)["payload"] for _ in range(2)]
    marks = [(one.get("source"), one["complete"]) for one in both]
    assert marks == [("agent", False), (None, False)]
    return [one["messages"] for one in both]


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


def test_what_the_agent_tells(bridge: Bridge) -> None:
    """What was before the log begins, once, marked, and with the same ids each time."""
    with bridge.phones(2) as (phone, late):
        sid = begin(bridge, phone, agent="tells")
        for number in range(4):
            said = ask(phone, sid, f"number {number}")
            phone.ack(*said)
        phone.close()
        bridge.restart("stop")  # which stores what was acknowledged
        phone.ready()
        assert resume(bridge, phone, sid)["type"] == "session_ready"
        told, rows = buffers(phone, sid)
        assert rows == [], "it gets no row twice"
        numbers = [f"number {number}" for number in range(4)]
        all_of_it = [line for one in numbers for line in (one, "→ about", f"→ {one}")]
        assert conversation(told) == all_of_it, "it is told also what it may not have kept"
        prompts = [one["payload"]["payload"] for one in told if one["type"] == "agent_event"]
        assert {one["source"] for one in prompts} == {"agent"}

        late.ready().join(sid)
        again, rows = buffers(late, sid)
        first = next(line for line in conversation(rows) if not line.startswith("→"))
        assert conversation(again) == all_of_it[: 3 * int(first[-1])]
        assert [one["id"] for one in again] == [one["id"] for one in told][: len(again)]
        kept, said = (
            [one for one in each if one["type"] != "message_state"] for each in (rows, said)
        )
        assert kept[-len(said) :] == said

        assert words(ask(phone, sid, "and on")).endswith("and on")
        late.expect("stream_end", session_id=sid)
        end(phone, sid)
