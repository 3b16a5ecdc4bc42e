"""An approval_required that is sent after its decision (D38), and one that is a question."""

from typing import Any

import pytest

from tests.conformance.agents import begin, end, log_of, tool
from tests.conformance.approvals import (
    ask,
    assert_stands,
    decide,
    greeted,
    notifications,
    of,
    post,
    pre,
)
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_now
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, prompt

DECIDED = {"decision", "decided_at", "decided_by"}


def decisions(messages: list[dict[str, Any]]) -> dict[str, tuple[str, str] | None]:
    """Call id → what its question says of its decision, and by whom; None: it is open."""
    found: dict[str, tuple[str, str] | None] = {}
    for payload in (m["payload"] for m in messages if m["type"] == "approval_required"):
        found[payload["tool_call_id"]] = None
        if DECIDED & payload.keys():
            assert_now(payload["decided_at"])
            found[payload["tool_call_id"]] = payload["decision"], payload["decided_by"]
    return found


def test_of_an_observed_session(bridge: Bridge, sid: str, joined: Phone) -> None:
    """What a device missed, `replay_request`, and a session that has ended."""
    with bridge.phones(1) as (away,):
        away.join(sid)
        bridge.fence(away)
        away.ack(*[message for message in away.messages if "id" in message])
        away.close()
        for call_id in ("phone", "machine", "refused", "open"):
            ask(bridge, joined, sid, {"command": call_id}, tool_call_id=call_id)
            if call_id == "phone":
                decide(joined, sid, call_id, "modified")
            if call_id == "machine":
                bridge.accept(post(sid, {"command": call_id}, tool_call_id=call_id))
            if call_id == "refused":
                bridge.accept(prompt(sid, 1))
        told = {
            "phone": ("modified", "device"),
            "machine": ("approved", "agent"),
            "refused": ("rejected", "agent"),
            "open": None,
        }
        away.ready()
        greeted(bridge, away)
        backlog = of(away, "approval_required", sid)
        assert len(backlog) == 4 and decisions(backlog) == told
        asked = {message["id"]: message for message in of(joined, "approval_required", sid)}
        assert decisions(list(asked.values())) == dict.fromkeys(told), "nobody had decided then"
        for later in backlog:
            first = asked[later["id"]]
            kept = {k: v for k, v in later["payload"].items() if k not in DECIDED}
            assert kept == first["payload"] and later["timestamp"] == first["timestamp"]
        assert decisions(log_of(joined, sid)) == told
        bridge.accept(hook("SessionEnd", sid), pre(sid, approval=True, tool_call_id="late"))
        bridge.fence(joined)
        over = told | {"open": ("rejected", "agent"), "late": ("rejected", "bridge")}
        assert decisions(log_of(joined, sid)) == over


@pytest.mark.spec("ws.session_interrupt")
def test_of_a_session_of_the_bridge(bridge: Bridge, phone: Phone) -> None:
    """The `replay_buffer` of who comes later; D40: an interrupt rejects what is pending."""
    sid, told = begin(bridge, phone), {}
    for decision in ("approved", "rejected", "modified"):
        call_id = tool(phone, sid)["tool_call_id"]
        decide(phone, sid, call_id, decision)
        told[call_id] = (decision, "device")
        phone.expect("stream_end", session_id=sid, finish_reason="stop")
    interrupted = tool(phone, sid)["tool_call_id"]
    phone.send("session_interrupt", {"session_id": sid})
    phone.expect("stream_end", session_id=sid, finish_reason="stop")
    assert notifications(phone, sid, "approval_decided")[-1]["data"]["reason"] == "interrupted"
    assert_stands(decide(phone, sid, interrupted, "approved"), "rejected", "bridge")
    told[interrupted] = ("rejected", "bridge")
    with bridge.phones(1) as (other,):
        other.join(sid)
        buffer = other.expect("replay_buffer", session_id=sid)["payload"]["messages"]
        assert decisions(buffer) == decisions(log_of(other, sid)) == told
        greeted(bridge, other)
        assert of(other, "approval_required", sid) == []
    end(phone, sid)


OPTIONS = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
QUESTION = {"question": "Which colour?", "header": "Colour", "multiSelect": False}
ASKED = {"questions": [QUESTION | {"options": OPTIONS}]}
ANSWER = ASKED | {"answers": {"Which colour?": "Blue"}}
WORDS = "Which colour?\n1. Red: warm\n2. Blue: cold"


def test_a_question_is_answered(bridge: Bridge) -> None:
    with bridge.phones(2) as (phone, other):
        sid = begin(bridge, phone)
        asked = tool(phone, sid, "AskUserQuestion", **ASKED)
        assert (asked["params"], asked["description"]) == (ASKED, WORDS)
        answer = decide(phone, sid, asked["tool_call_id"], "modified", ANSWER)
        assert answer["payload"]["forwarded"] is True
        result = phone.expect("tool_result", session_id=sid)["payload"]["result"]
        assert (result["success"], result["content"]) == (True, "Which colour? Blue")
        other.expect("notification", session_id=sid, notification_type="approval_decided")
        [notice] = notifications(other, sid, "approval_required")
        assert (notice["title"], notice["body"]) == ("The agent asks you", " ".join(WORDS.split()))
        [decided] = notifications(other, sid, "approval_decided")
        assert decided["title"] == "The question: answered" and decided["body"].endswith(": Blue")
