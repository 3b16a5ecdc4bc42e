"""What happens in a terminal, on the phone's screens (D65)."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import post, pre
from tests.conformance.samples import hook, new_session, prompt
from tests.conformance.terminal import SOONER, Terminal
from tests.servers import wait_until
from tests.web.actions import close_sheet, open_approval
from tests.web.conftest import MakeBridge, MakePage

pytestmark = pytest.mark.web


def git(*arguments: str, at: Path) -> None:
    named = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *named, *arguments], cwd=at, check=True, capture_output=True)


def make_repository(root: Path) -> tuple[Path, Path]:
    """A repository and a work tree of it, on the branch `fix`, each with a change."""
    top = root / "project"
    top.mkdir()
    git("init", "-qb", "main", at=top)
    (top / "a.txt").write_text("1\n")
    git("add", ".", at=top)
    git("commit", "-qm", "one", at=top)
    tree = root / "trees" / "fix"
    git("worktree", "add", "-q", str(tree), "-b", "fix", at=top)
    (top / "a.txt").write_text("2\n")
    (tree / "only-in-fix.txt").write_text("x\n")
    return top, tree


def test_a_terminal_is_shown_as_it_is(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """Where it works, what it does, whose call it is, and what a hook has changed."""
    bridge = make_bridge()
    page = make_page(bridge).pair()
    top, tree = make_repository(bridge.root)
    sid = new_session()
    bridge.accept(
        hook("SessionStart", sid, {"working_directory": str(top)}),
        hook("UserPromptSubmit", sid, {"prompt": "Fix the login"}),
    )
    page.tap(".row-link", "Fix the login")
    page.find(".heading", "main")
    page.tap(".tabs a", "Changes")
    page.find(".file .title", "a.txt")
    where: dict[str, Any] = {"cwd": str(tree)}
    bridge.accept(pre(sid, {"command": "make test"}, tool_use_id="t1", **where))
    page.find(".heading", "Working · Bash: make test")
    page.find(".heading", "trees/fix · fix")
    page.find(".file .title", "only-in-fix.txt")
    page.tap(".tabs a", "Files")
    page.find(".title", "only-in-fix.txt")
    bridge.accept(post(sid, {"command": "compact -- make test"}, tool_use_id="t1", **where))
    subagent: dict[str, Any] = {"agent_id": "afdf6220138905b33", "agent_type": "reviewer"}
    bridge.accept(
        pre(sid, {"command": "make deploy"}, tool_use_id="t2", **subagent),
        pre(sid, {"command": "make deploy"}, True, permission_request=True, **subagent),
    )
    message = {"prompt": "It is\nreviewed.", "context": {"synthetic": True}}
    bridge.accept(hook("UserPromptSubmit", sid, message))
    page.tap(".tabs a", "Chat")
    page.find(".tool summary", "compact -- make test")
    page.find(".tool .whose", "changed by a hook")
    page.find(".tool .call", "Subagent: reviewer afdf62")
    page.find(".heading", "Waits at the machine · Bash: make deploy")
    page.tap("details.note summary", "From the agent itself: It is reviewed.")
    assert page.js("document.querySelectorAll('.bubble').length") == 1
    page.tap(".decide", "Look at it")
    page.find("dialog .facts", "subagent reviewer afdf62")
    page.tap("dialog button", "Close")
    page.tap(".back")
    page.find(".row .state", "Waits at the machine")


def test_silence_is_said(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """Nobody knows what it does; it may have been stopped at the machine. A question is silent."""
    bridge, sid = make_bridge(**SOONER), new_session()
    page = make_page(bridge).pair()
    bridge.accept(hook("UserPromptSubmit", sid, {"prompt": "Fix it"}), pre(sid, tool_use_id="t"))
    page.find(".row .state", "No sign")
    page.find(".row .now", "No sign since")
    page.tap(".row-link", "Fix it")
    page.find(".heading", "No sign since")
    bridge.accept(hook("Stop", sid))
    page.find(".heading", "Idle")
    bridge.accept(pre(sid, approval=True, tool_use_id="asks"))
    wait_until(lambda: bridge.session(sid)["quiet_since"] is not None)
    page.open("").find(".row .state", "Waits at the machine")


def test_of_many_terminals_some_are_folded(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """They are counted, and shown when somebody asks for them."""
    bridge = make_bridge()
    for number in range(30):
        sid = new_session()
        bridge.accept(hook("SessionStart", sid, {"working_directory": f"/home/dev/job-{number}"}))
    page = make_page(bridge).pair()
    page.wait_equal("document.querySelectorAll('.rows .row').length", 20)
    page.tap("button", "Show more (10 sessions)")
    page.wait_equal("document.querySelectorAll('.rows .row').length", 30)


def test_a_terminal_is_answered(
    make_bridge: MakeBridge, make_page: MakePage, tmp_path: Path
) -> None:
    """D66: the card says where it asks, the sheet what came of it; the desk may be first."""
    bridge = make_bridge(**SOONER)
    page = make_page(bridge).pair()
    agent = Terminal(bridge.data, new_session(), str(bridge.root), tmp_path / "home")
    try:
        agent.hook("UserPromptSubmit", prompt="Fix the login")
        refused = agent.asks("Bash", {"command": "make deploy"})
        page.find(".card-foot", "Asks at the machine and here · High risk")
        page.find(".row .state", "Waits for you")
        open_approval(page, "make deploy")
        page.find("dialog .status", "Asks at the machine and here: the first answer counts.")
        agent.register("waiting", time.time())
        page.tap("dialog .reasons button", "Reject and say why")
        page.type("dialog .reasons input", "Not on a Friday")
        page.tap("dialog .reasons .reject", "Reject")
        assert refused.answer() == {"behavior": "deny", "message": "Not on a Friday"}
        agent.register("busy", time.time())
        page.wait_text("Rejected by you. The agent has taken it.")
        close_sheet(page)

        question = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}
        asked = agent.asks("AskUserQuestion", {"questions": [question]})
        open_approval(page, "Which colour?")
        page.tap("dialog .choice", "Blue")
        page.tap("dialog .primary", "Answer")
        assert asked.answer()["updatedInput"]["answers"] == {"Which colour?": "Blue"}
        page.wait_text("Answered by you")
        close_sheet(page)

        first = agent.asks("Bash", {"command": "make test"})
        open_approval(page, "make test")
        page.find("dialog .primary", "Approve")
        agent.refuse(first)
        page.find("dialog .quiet", "Record approval")
        assert not page.js("document.querySelector('dialog .reasons')")
    finally:
        agent.kill()


def test_a_plan(make_bridge: MakeBridge, make_page: MakePage, tmp_path: Path) -> None:
    """D66: it reads as one of an agent here; where no hook waits, an answer is only recorded."""
    bridge = make_bridge(**SOONER)
    page = make_page(bridge).pair()
    agent = Terminal(bridge.data, new_session(), str(bridge.root), tmp_path / "home")
    try:
        plan = agent.asks("ExitPlanMode", {"plan": "# The plan\n\n1. Read **all**"})
        open_approval(page, "ExitPlanMode")
        page.find("dialog .markdown strong", "all")
        page.find("dialog .reject", "Keep planning")
        page.tap("dialog .primary", "Go on")
        assert plan.answer() == {"behavior": "allow", "updatedInput": {}}
        close_sheet(page)

        plan = agent.asks("ExitPlanMode", {"plan": "Shorter"})
        open_approval(page, "Shorter")
        page.find("dialog .primary", "Go on")
        agent.refuse(plan)
        page.find("dialog .quiet", "Record approval")
    finally:
        agent.kill()


def test_away(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """One device says it, every device shows it."""
    bridge = make_bridge()
    page = make_page(bridge).pair()
    page.find(".away[aria-pressed=false]")
    page.tap(".away", "Away")
    page.find(".away[aria-pressed=true]")
    with bridge.phones(1) as (phone,):
        phone.request("presence_set", {"away": False})
    page.find(".away[aria-pressed=false]")


def test_who_is_back_is_not_away_again(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """What this device has said before comes again with a reload, and is older."""
    bridge = make_bridge()
    page = make_page(bridge).pair()
    page.tap(".away", "Away")
    page.find(".away[aria-pressed=true]")
    bridge.accept(prompt(new_session(), "at the desk"))
    page.find(".away[aria-pressed=false]")
    page.open("").wait_ready()
    bridge.accept(prompt(new_session(), "behind what comes again"))
    page.find(".row-link", "behind what comes again")
    page.find(".away[aria-pressed=false]")
    page.open("wrong").find("h1", "What is wrong?")
    assert "undefined" not in page.text
