"""What an agent plans and what its subagents do, on the phone's screens (D69)."""

from typing import Any

import pytest

from tests.conformance.approvals import post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session
from tests.web.browser import Page
from tests.web.conftest import MakePage
from tests.web.test_screens import check

pytestmark = pytest.mark.web
SUBAGENT: dict[str, Any] = {"agent_id": "afdf6220138905b33", "agent_type": "reviewer"}
JOB = {"description": "Read the login", "prompt": "Read it whole", "subagent_type": "reviewer"}


@pytest.fixture
def session(make_page: MakePage, bridge: Bridge) -> tuple[Page, str]:
    page, sid = make_page(bridge).pair(), new_session()
    bridge.accept(hook("UserPromptSubmit", sid, {"prompt": "Fix the login"}))
    page.open(f"s/{sid}").wait_text("Fix the login")
    return page, sid


def called(bridge: Bridge, sid: str, id_: str, tool: str, params: Any, result: Any) -> None:
    about: dict[str, Any] = {"tool": tool, "tool_use_id": id_}
    bridge.accept(pre(sid, params, **about), post(sid, params, result=result, **about))


def test_tasks_are_one_card(session: tuple[Page, str], bridge: Bridge, axe: str) -> None:
    page, sid = session
    for number, text in enumerate(("Find the bug", "Mend it"), 1):
        task = {"id": str(number), "subject": text}
        called(bridge, sid, f"c{number}", "TaskCreate", {"subject": text}, {"task": task})
    page.wait_text("0 of 2 tasks done")
    change = {"taskId": "1", "status": "completed"}
    ended = {"success": True, "taskId": "1", "updatedFields": ["status"]}
    called(bridge, sid, "u", "TaskUpdate", change, ended)
    page.wait_text("1 of 2 tasks done", "✓ Find the bug")
    assert page.js("document.querySelectorAll('details.tool').length") == 1
    check(page, axe, "Mend it")


def test_a_subagent_is_one_row(session: tuple[Page, str], bridge: Bridge, axe: str) -> None:
    """What it does now, what it asks without a tap, all its calls after one, its end."""
    page, sid = session
    bridge.accept(
        pre(sid, JOB, tool="Agent", tool_use_id="a"),
        pre(sid, {"command": "ls src"}, tool_use_id="t1", **SUBAGENT),
        post(sid, {"command": "ls src"}, tool_use_id="t1", **SUBAGENT),
        pre(sid, {"command": "make deploy"}, True, tool_use_id="t2", **SUBAGENT),
    )
    page.find(".tool .call", "Subagent: Read the login")
    page.find(".tool .whose", "Bash: make deploy")
    page.find(".calls .decide", "Look at it")
    assert page.js("document.querySelectorAll('.calls > li').length") == 1
    page.tap("details.tool summary", "Subagent: Read the login")
    page.find(".calls .tool", "Bash: ls src")
    page.find(".tool-body", "Read it whole")
    check(page, axe, "Bash: ls src")
    page.tap("details.tool summary", "Subagent: Read the login")
    page.wait_equal("document.querySelectorAll('.calls > li').length", 1)
    bridge.accept(
        post(sid, {"command": "make deploy"}, tool_use_id="t2", **SUBAGENT),
        post(sid, JOB, tool="Agent", tool_use_id="a", result={"agentId": SUBAGENT["agent_id"]}),
    )
    page.wait("document.querySelector('[data-state=completed] .call')")
    page.find(".tool .whose", "2 calls")
    page.wait_equal("document.querySelectorAll('.calls > li').length", 0)
