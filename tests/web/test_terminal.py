"""What happens in a terminal, on the phone's screens (D65)."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import post, pre
from tests.conformance.samples import hook, new_session
from tests.conformance.terminal import SOONER
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
    page.find(".heading", "trees/fix · primary-agent · fix")
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
    page.find(".tool .whose", "subagent reviewer afdf62")
    page.find(".heading", "Waits at the machine · Bash: make deploy")
    page.tap("details.note summary", "From the agent itself: It is reviewed.")
    assert page.js("document.querySelectorAll('.bubble').length") == 1
    page.tap(".decide", "Look at it")
    page.find("dialog .facts", "subagent reviewer afdf62")
    page.tap("dialog button", "Close")
    page.tap(".back")
    page.find(".row .state", "Waits at the machine")


def test_silence_is_said(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """Nobody knows what it does; it may have been stopped at the machine."""
    bridge, sid = make_bridge(**SOONER), new_session()
    page = make_page(bridge).pair()
    bridge.accept(hook("UserPromptSubmit", sid, {"prompt": "Fix it"}), pre(sid, tool_use_id="t"))
    page.find(".row .state", "No sign")
    page.find(".row .now", "No sign since")
    page.tap(".row-link", "Fix it")
    page.find(".heading", "No sign since")
    bridge.accept(hook("Stop", sid))
    page.find(".heading", "Idle")


def test_old_idle_terminals_are_folded(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """They are counted, and shown when somebody asks for them."""
    bridge = make_bridge()
    for number in range(30):
        sid = new_session()
        bridge.accept(hook("SessionStart", sid, {"working_directory": f"/home/dev/job-{number}"}))
    page = make_page(bridge)
    page.before_load("{ const now = Date.now; Date.now = () => now() + 7_200_000; }")
    page.pair()
    page.wait_equal("document.querySelectorAll('.rows .row').length", 20)
    page.tap("button", "Show 10 older idle sessions")
    page.wait_equal("document.querySelectorAll('.rows .row').length", 30)
