"""A session whose beginning the log has lost: the agent itself tells the last of it (D29, D60)."""

from typing import Any

from tests.conformance.agent_tools import bridge_of, restart, script_of
from tests.conformance.agents import ask, begin, end, start, words
from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone

KEPT = 9  # rows of a session: those of two turns, and one


script, bridge = script_of("tells"), bridge_of(BRIDGE_QUEUE_MAX=str(KEPT))


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


def test_what_the_agent_tells(bridge: Bridge) -> None:
    """What was before the log begins, once, marked, and with the same ids each time."""
    with bridge.phones(2) as (phone, late):
        sid = begin(bridge, phone, agent="tells")
        for number in range(4):
            said = ask(phone, sid, f"number {number}")
            phone.ack(*said)
        phone.close()
        restart(bridge, "stop")  # which stores what was acknowledged
        phone.ready()
        assert start(phone, bridge.root, sid, resume=True)["type"] == "session_ready"
        from_agent, from_log = buffers(phone, sid)
        assert (from_agent["source"], from_agent["complete"]) == ("agent", False)
        assert not from_log["complete"] and from_log["messages"] == [], "it gets no row twice"
        told = from_agent["messages"]
        numbers = [f"number {number}" for number in range(4)]
        all_of_it = [line for one in numbers for line in (one, "→ about", f"→ {one}")]
        assert conversation(told) == all_of_it, "it is told also what it may not have kept"
        prompts = [one["payload"]["payload"] for one in told if one["type"] == "agent_event"]
        assert {one["source"] for one in prompts} == {"agent"}

        late.ready()
        late.join(sid)
        from_agent, from_log = buffers(late, sid)
        rows, again = from_log["messages"], from_agent["messages"]
        first = next(line for line in conversation(rows) if not line.startswith("→"))
        assert conversation(again) == all_of_it[: 3 * int(first[-1])]
        assert [one["id"] for one in again] == [one["id"] for one in told][: len(again)]
        assert rows[-len(said) :] == said and from_log["complete"] is False

        assert words(ask(phone, sid, "and on")).endswith("and on")
        late.expect("stream_end", session_id=sid)
        end(phone, sid)
