"""A session that its grace timer closed, and whose beginning the log has lost, on the screen (D60)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import agents
from tests.conformance.agent_tools import Script, wait_status
from tests.web.conftest import MakeBridge, MakePage

pytestmark = pytest.mark.web


def test_a_conversation_from_yesterday(
    make_bridge: MakeBridge, make_page: MakePage, tmp_path: Path
) -> None:
    """A new browser sees the past, marked; one that has kept it sees nothing twice."""
    script = Script(tmp_path, "tells")
    bridge = make_bridge(
        BRIDGE_ACP_AGENTS=script.setting, BRIDGE_SESSION_GRACE_SECONDS="2", BRIDGE_QUEUE_MAX="9"
    )
    phone = bridge.phone().ready()
    session_id = agents.begin(bridge, phone, agent="tells")
    for number in range(4):
        agents.ask(phone, session_id, f"number {number}")
    phone.close()
    wait_status(bridge, session_id, "closed", 60)

    page = make_page(bridge).pair()
    page.tap(".row-link", "number 0")
    page.tap("button", "Resume")
    page.find(".bubble.mine", "number 0")
    page.wait_text("from the agent's history")
    page.type(".composer textarea", "and today")
    page.tap(".composer button[type=submit]")
    page.find(".bubble.mine", "and today")
    page.wait_text("9 characters")

    page.open()  # nobody is in the session any more
    wait_status(bridge, session_id, "closed", 60)
    page.tap(".row-link", "number 0")
    page.tap("button", "Resume")
    wait_status(bridge, session_id, "active", 60)
    page.type(".composer textarea", "more")
    page.tap(".composer button[type=submit]")
    page.wait_text("4 characters")
    bubbles = "[...document.querySelectorAll('.bubble.mine > p:first-child')].map(b => b.innerText)"
    page.wait_equal(bubbles, [*(f"number {number}" for number in range(4)), "and today", "more"])
