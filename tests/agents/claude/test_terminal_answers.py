"""The real program's dialogs, answered from a phone beside the desk (D66)."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sessions_app.agents.claude import program as claude
from tests.agents.claude.test_terminal import (
    LONG,
    Desk,
    Open,
    asked,
    begin,
    bridge,
    desk,
    sit_down,
)
from tests.agents.claude_model import Block, Model, Refused, Text, Tool
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


def test_the_desk_says_no(model: Model, bridge: QuickBridge, phone: Phone, desk: Desk) -> None:
    """The hook ends at once; what the phone says then is too late, and nothing stays open."""
    sid = begin(phone, desk, touch(model, "no_at_the_desk"))
    call = asked(phone, sid)["tool_call_id"]
    desk.answer("4")
    assert phone.expect("approval_state", session_id=sid)["payload"]["answerable"] is False
    assert decide(phone, sid, call, "approved")["payload"]["forwarded"] is False
    until_outcome(phone, sid, "desk_first")
    until(phone, sid, turn="idle", doing=None, pending_approvals=0)
    assert not (bridge.root / "no_at_the_desk").exists()


def test_esc_at_the_desk(model: Model, phone: Phone, desk: Desk) -> None:
    sid = begin(phone, desk, touch(model, "esc"))
    asked(phone, sid)
    desk.answer("\x1b")
    assert phone.expect("approval_state", session_id=sid)["payload"]["answerable"] is False
    until(phone, sid, turn="idle", doing=None, pending_approvals=0)
    (told,) = notifications(phone, sid, "approval_decided")
    assert told["data"]["decision"] == "rejected" and told["data"]["decided_by"] == "agent"


def test_yes_at_the_desk_and_then_on_the_phone(model: Model, phone: Phone, desk: Desk) -> None:
    """The phone's yes is not what allowed it, and says so."""
    play = model.play("long", [Tool("Bash", {"command": LONG})], [Text("Done.")])
    sid = begin(phone, desk, play)
    call = asked(phone, sid)["tool_call_id"]
    desk.allow()
    phone.expect("approval_state", session_id=sid)
    assert decide(phone, sid, call, "approved")["payload"]["forwarded"] is False
    until_outcome(phone, sid, "desk_first")


# a plan

PLANNING = ("--permission-mode", "plan", "--settings", '{"useAutoModeDuringPlan": false}')
PLAN = "# The plan\n\n1. Make a file"


@pytest.fixture
def planner(model: Model, phone: Phone, sit_down: Open) -> tuple[Desk, str, str]:
    """A program that asks whether to go on with its plan, which it keeps in a file of its own."""
    desk = sit_down(*PLANNING)
    sid = begin(phone, desk, model.play("word", [Text("A word.")]))
    phone.expect("notification", session_id=sid, notification_type="task_complete")
    file = Path(re.findall(r"create your plan at (.+?\.md)", str(model.requests))[-1])
    file.parent.mkdir(exist_ok=True)
    file.write_text(PLAN)
    then = [Tool("Bash", {"command": "touch planned"})]
    desk.say(model.play("plan", [Tool("ExitPlanMode", {})], then, [Text("Done.")]))
    question = asked(phone, sid)
    assert (question["params"]["plan"], question["answerable"]) == (PLAN, True)
    wait_until(lambda: desk.status() == "waiting", desk.tail)
    return desk, sid, question["tool_call_id"]


def test_a_plan(bridge: QuickBridge, phone: Phone, planner: tuple[Desk, str, str]) -> None:
    """The program goes on with it, and asks as it does out of plan mode."""
    desk, sid, call = planner
    begun = len(desk.shown)
    assert decide(phone, sid, call, "approved")["payload"]["forwarded"] is True
    until_outcome(phone, sid, "taken")
    wait_until(lambda: "manualmodeon" in desk.text(begun), desk.tail)
    call = asked(phone, sid)["tool_call_id"]
    decide(phone, sid, call, "approved")
    wait_until((bridge.root / "planned").exists, desk.tail)
    until(phone, sid, turn="idle", pending_approvals=0)


def test_no_plan_with_a_reason(
    model: Model, bridge: QuickBridge, phone: Phone, planner: tuple[Desk, str, str]
) -> None:
    """It plans on; that it asks the next thing at once shows that it has taken the answer."""
    desk, sid, call = planner
    (bridge.root / "planned").unlink(missing_ok=True)
    begun = len(desk.shown)
    decide(phone, sid, call, "rejected", reason="Shorter, please")
    until_outcome(phone, sid, "taken")
    next_ = asked(phone, sid)
    assert next_["params"] == {"command": "touch planned"}
    assert "Shorter, please" in str(model.requests[-1]["messages"])
    assert "manualmodeon" not in desk.text(begun)
    decide(phone, sid, next_["tool_call_id"], "rejected")
    until(phone, sid, turn="idle")
    assert not (bridge.root / "planned").exists()


# who is killed


def hook_of(desk: Desk) -> psutil.Process:
    """The shell of the program's hook that waits."""
    (found,) = [one for one in psutil.Process(desk.process.pid).children() if _waits(one)]
    return found


def _waits(process: psutil.Process) -> bool:
    try:
        return "answer.sh" in " ".join(process.cmdline())
    except psutil.Error:  # it is over
        return False


def is_over(hook: psutil.Process) -> bool:
    return not hook.is_running() or hook.status() == psutil.STATUS_ZOMBIE


def test_the_bridge_is_killed(model: Model, bridge: QuickBridge, phone: Phone, desk: Desk) -> None:
    """The dialog is untouched; what the phone says to the next bridge allows nothing."""
    sid = begin(phone, desk, touch(model, "killed"))
    call = asked(phone, sid)["tool_call_id"]
    shown(desk)
    hook = hook_of(desk)
    bridge.kill()
    wait_until(lambda: is_over(hook), "the hook ends")
    bridge.start()
    phone.again().join(sid)
    assert asked(phone, sid)["answerable"] is False
    assert decide(phone, sid, call, "approved")["payload"]["forwarded"] is False
    assert desk.status() == "waiting" and not (bridge.root / "killed").exists()
    desk.allow()
    phone.expect("tool_result", session_id=sid)
    until(phone, sid, turn="idle", pending_approvals=0)


def test_the_program_is_killed(model: Model, phone: Phone, desk: Desk) -> None:
    sid = begin(phone, desk, touch(model, "gone"))
    asked(phone, sid)
    shown(desk)
    hook = hook_of(desk)
    desk.process.kill()
    assert phone.expect("approval_state", session_id=sid)["payload"]["answerable"] is False
    wait_until(lambda: is_over(hook), "the hook ends")
    phone.expect("session_end", session_id=sid)
    until(phone, sid, session_status="closed", pending_approvals=0)


# where no dialog is shown


def subagent(model: Model, name: str) -> str:
    job = model.play("job", [Tool("Bash", {"command": f"touch {name}"})], [Text("Done.")])
    given = {"description": "Sub job", "prompt": job, "subagent_type": "general-purpose"}
    return model.play("sent", [Tool("Agent", given)], [Text("Sent.")])


def test_a_subagent_asks_at_the_desk(model: Model, phone: Phone, desk: Desk) -> None:
    sid = begin(phone, desk, subagent(model, "by_desk"))
    assert "answerable" not in asked(phone, sid)
    desk.allow()
    phone.expect("tool_result", session_id=sid, tool="Bash")
    until(phone, sid, turn="idle", pending_approvals=0)


@pytest.fixture
def leave(phone: Phone) -> Iterator[Callable[[], object]]:
    """Say that the owner is away, until the test is over."""
    yield lambda: phone.request("presence_set", {"away": True})
    phone.request("presence_set", {"away": False})


def test_a_subagent_asks_one_who_is_away(
    model: Model, bridge: QuickBridge, phone: Phone, desk: Desk, leave: Callable[[], object]
) -> None:
    """The desk shows nothing meanwhile. The prompt came before the owner left: it ends *away*."""
    sid = begin(phone, desk, model.play("sent", Refused(529, "Overloaded", "overloaded_error")))
    phone.expect("agent_event", session_id=sid, event="UserPromptSubmit")
    leave()
    subagent(model, "by_phone")
    question = asked(phone, sid)
    assert question["answerable"] is True and "Doyouwant" not in desk.text()
    decide(phone, sid, question["tool_call_id"], "approved")
    until_outcome(phone, sid, "taken")
    until(phone, sid, turn="idle", pending_approvals=0)
    assert (bridge.root / "by_phone").exists() and "Doyouwant" not in desk.text()


def test_a_script_waits_for_nothing(
    model: Model, bridge: QuickBridge, phone: Phone, leave: Callable[[], object], tmp_path: Path
) -> None:
    """What `claude -p` asks is refused as without the bridge, although its owner is away."""
    leave()
    command = [str(claude.program()), "-p", touch(model, "script")]
    said = []
    for home in (str(tmp_path), os.environ["CLAUDE_CONFIG_DIR"]):
        known = os.environ | {"CLAUDE_CONFIG_DIR": home}
        done = subprocess.run(command, cwd=bridge.root, env=known, capture_output=True, check=False)
        said.append((done.returncode, done.stdout, done.stderr))
    assert said[0] == said[1] == (0, b"Done.\n", b"")
    told = phone.expect("notification", notification_type="approval_required")["payload"]
    assert told["title"] == "Bash asks at the machine"
    assert not (bridge.root / "script").exists()
