"""The conversation of one session: its own and one that runs at the machine (D52, D53)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.samples import new_session
from tests.hooks.scripted import fixture
from tests.live.test_real_hooks import Agent
from tests.web.actions import approve, say, start_demo
from tests.web.browser import Page

pytestmark = pytest.mark.web


def ask_to_use(page: Page, tool: str, params: dict[str, Any]) -> None:
    say(page, f"/tool {tool} {json.dumps(params)}")
    page.wait_text("waits for a decision")


def test_an_agent_is_started_decided_about_and_stopped(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "Say **hello**")
    page.wait_text("repeats what you say: Say hello")
    assert "from" not in page.find(".prompt .meta").text, "one's own prompt needs no name"
    chat = page.js("location.pathname")

    # A call is decided on its card; the sheet has the rest, over the chat that it leaves as it was.
    ask_to_use(page, "Bash", {"command": "echo from the phone"})
    page.js("void (document.querySelector('.stream').dataset.mark = 'the same')")
    page.find(".deciding pre", "echo from the phone")
    page.tap(".deciding a", "Details")
    page.find("dialog .sheet-foot")
    page.tap("dialog button", "Close")
    page.wait("!document.querySelector('dialog')")
    page.wait_equal("location.pathname", chat)
    assert page.js("document.querySelector('.stream').dataset.mark") == "the same"
    approve(page, ".deciding")
    page.wait_text("Bash is over.")
    page.wait("!document.querySelector('.deciding')")

    # What is critical takes the sheet.
    ask_to_use(page, "Bash", {"command": "rm -rf /"})
    page.tap(".decide", "Decide")
    page.find("dialog .reject")
    page.tap("dialog .reject")
    page.wait_text("Rejected by you")
    page.tap("dialog .primary", "Done")
    page.wait("!document.querySelector('dialog')")
    page.tap("details.tool summary", "Bash")
    page.wait_text("from the phone\n")

    say(page, "/sleep 600")
    page.wait_text("5 6 7")
    page.tap(".composer button[aria-label='Stop the agent']")
    page.wait("!document.querySelector('.streaming')", what="the agent has stopped")
    page.wait("document.querySelector('.composer .danger').hidden", what="nothing to stop any more")
    say(page, "And on")
    page.wait_text("repeats what you say: And on")


def test_a_session_at_the_machine_is_watched(page: Page, bridge: Bridge, tmp_path: Path) -> None:
    agent = Agent(bridge, tmp_path / "settings.json")
    session_id = new_session()

    def fire(name: str, **more: Any) -> None:
        agent.fire(fixture(name) | {"session_id": session_id} | more)

    fire("SessionStart-startup")
    fire("UserPromptSubmit", prompt="Fix the failing login test")
    page.tap(".row-link", "Fix the failing login test")
    page.wait_text("it can be watched here, not spoken to", "Fix the failing login test")
    assert not page.js("document.querySelector('.composer').checkVisibility()")
    fire("PreToolUse-Bash")
    fire("PermissionRequest-Bash", tool_input=fixture("PreToolUse-Bash")["tool_input"])
    page.wait_text("waits for a decision")
    page.tap(".decide", "Look at it")
    page.wait_text("Waiting at the machine. Your answer is only recorded")
    page.tap("dialog button", "Close")
    fire("PostToolUse-Bash")
    page.wait_gone("waits for a decision")
    fire("Stop")
    page.wait("document.querySelector('.composer .danger').hidden")
