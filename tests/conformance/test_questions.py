"""A question of an agent (AskUserQuestion) comes with its choices, and is answered from a phone."""

from __future__ import annotations

import json

from tests.conformance import agents
from tests.conformance.approvals import ask, decide, notifications, post
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone

OPTIONS = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
QUESTION = {"question": "Which colour?", "header": "Colour", "multiSelect": False}
ASKED = {"questions": [QUESTION | {"options": OPTIONS}]}
ANSWER = ASKED | {"answers": {"Which colour?": "Blue"}}
WORDS = "Which colour?\n1. Red: warm\n2. Blue: cold"


def test_a_question_is_answered(bridge: Bridge) -> None:
    """Its choices stand in the call and in words; what was answered is said to every device."""
    with bridge.phones(2) as (phone, other):
        sid = agents.begin(bridge, phone)
        agents.say(phone, sid, f"/tool AskUserQuestion {json.dumps(ASKED)}")
        asked = phone.expect("approval_required", session_id=sid)["payload"]
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


def test_a_question_at_the_machine(bridge: Bridge, sid: str, joined: Phone) -> None:
    """An answer from a phone is noted; the one at the machine is the one that counts."""
    call_id = ask(bridge, joined, sid, ASKED, tool="AskUserQuestion", tool_call_id="q")
    bridge.fence(joined)
    [notice] = notifications(joined, sid, "approval_required")
    assert notice["title"] == "The agent asks at the machine"
    assert notice["body"] == " ".join(WORDS.split())
    bridge.accept(post(sid, ANSWER, tool="AskUserQuestion", tool_call_id=call_id, result=ANSWER))
    result = joined.expect("tool_result", session_id=sid)["payload"]["result"]
    assert result["content"] == "Which colour? Blue"
    bridge.fence(joined)
    [decided] = notifications(joined, sid, "approval_decided")
    assert decided["body"] == "The question was answered at the machine."
