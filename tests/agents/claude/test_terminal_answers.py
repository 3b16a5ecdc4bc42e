"""The real program's dialogs, answered from a phone beside the desk (D66)."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agents.claude.test_terminal import LONG, Desk, asked, begin, bridge, desk, sit_down
from tests.agents.claude_model import Block, Model, Text, Tool
from tests.conformance.approvals import decide, notifications
from tests.conformance.phone import Phone
from tests.conformance.terminal import until
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]
__all__ = ["bridge", "desk", "sit_down"]


@pytest.fixture(scope="module", autouse=True)
def answers(bridge: QuickBridge) -> None:
    settings = str(Path(os.environ["CLAUDE_CONFIG_DIR"], "settings.json"))
    bridge.manage("install_hooks", "--settings", settings, "--answer", "--yes")


def touch(model: Model, name: str, *more: Block) -> str:
    """A prompt whose call makes a file of that name in the program's directory."""
    return model.play(name, [Tool("Bash", {"command": f"touch {name}"}), *more], [Text("Done.")])


def shown(desk: Desk) -> None:
    wait_until(lambda: "Doyouwant" in desk.text(desk.answered), desk.tail)


def until_outcome(phone: Phone, session_id: str, outcome: str) -> dict[str, Any]:
    def last() -> dict[str, Any]:
        told = notifications(phone, session_id, "approval_decided")
        return next((one["data"] for one in told if one["data"].get("outcome")), {})

    phone.collect(lambda: bool(last()), "what came of it")
    assert last()["outcome"] == outcome
    return last()


def test_yes(model: Model, bridge: QuickBridge, phone: Phone, desk: Desk) -> None:
    sid = begin(phone, desk, touch(model, "yes"))
    question = asked(phone, sid)
    assert question["answerable"] is True
    shown(desk)
    recorded = decide(phone, sid, question["tool_call_id"], "approved")["payload"]
    assert recorded["forwarded"] is True
    until_outcome(phone, sid, "taken")
    until(phone, sid, turn="idle", pending_approvals=0)
    assert (bridge.root / "yes").exists()


def test_no_with_a_reason(model: Model, bridge: QuickBridge, phone: Phone, desk: Desk) -> None:
    sid = begin(phone, desk, touch(model, "no"))
    call = asked(phone, sid)["tool_call_id"]
    shown(desk)
    decide(phone, sid, call, "rejected", reason="not on a Friday")
    until_outcome(phone, sid, "taken")
    until(phone, sid, turn="idle")
    assert "notonaFriday" in desk.text()
    assert any("not on a Friday" in str(one["messages"]) for one in model.requests)
    assert not (bridge.root / "no").exists()


def test_changed(model: Model, bridge: QuickBridge, phone: Phone, desk: Desk) -> None:
    sid = begin(phone, desk, touch(model, "asked_for"))
    question = asked(phone, sid)
    params = question["params"] | {"command": "touch changed"}
    shown(desk)
    decide(phone, sid, question["tool_call_id"], "modified", params)
    until_outcome(phone, sid, "taken")
    until(phone, sid, turn="idle")
    assert (bridge.root / "changed").exists() and not (bridge.root / "asked_for").exists()


COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}],
    "multiSelect": False,
}


def test_a_question(model: Model, phone: Phone, desk: Desk) -> None:
    prompt = model.play("ask", [Tool("AskUserQuestion", {"questions": [COLOUR]})], [Text("Done.")])
    sid = begin(phone, desk, prompt)
    question = asked(phone, sid)
    answers = question["params"] | {"answers": {"Which colour?": "Blue"}}
    wait_until(lambda: "Whichcolour?" in desk.text(), desk.tail)
    decide(phone, sid, question["tool_call_id"], "modified", answers)
    result = phone.expect("tool_result", session_id=sid)["payload"]["result"]
    assert result["content"] == "Which colour? Blue"
    until_outcome(phone, sid, "taken")
    until(phone, sid, turn="idle")


def test_the_desk_says_yes_first(model: Model, phone: Phone, desk: Desk) -> None:
    """The phone is told within a second that it has no say any more."""
    play = model.play("long", [Tool("Bash", {"command": LONG})], [Text("Done.")])
    sid = begin(phone, desk, play)
    call = asked(phone, sid)["tool_call_id"]
    desk.allow()
    start = time.monotonic()
    told = phone.expect("approval_state", session_id=sid)["payload"]
    assert told["answerable"] is False and time.monotonic() - start < 2
    assert decide(phone, sid, call, "rejected")["payload"]["forwarded"] is False
    until_outcome(phone, sid, "desk_first")
