"""Titles, usage and plans of ACP agents are taken where they come (D72)."""

from typing import Any

import pytest

from bridge_project.protocol.resources import Usage
from sessions_app.agents.events import TitleChanged, ToolStarted, ToolSucceeded, UsageChanged
from tests.agents.conftest import Open
from tests.agents.drive import kinds, only

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_title(opened: Open) -> None:
    """An update without one is none: agents put other things into it."""
    said = await (await opened()).turn(
        "/do update('session_info_update', _meta={'x': 1}); update('session_info_update')\n"
        "[update('session_info_update', title=one) for one in (None, 7, 'Find the bug')]"
    )
    assert only(TitleChanged, said).title == "Find the bug"


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ({"used": 5, "size": 10}, {"context_tokens": 5, "context_window": 10}),
        (
            {"used": 5, "size": 0, "cost": {"amount": 0.5, "currency": "USD"}},
            {"context_tokens": 5, "cost_usd": 0.5},
        ),
        ({"used": 5, "size": 0, "cost": {"amount": 0.5, "currency": "EUR"}}, {"context_tokens": 5}),
        ({"size": 10}, {"context_tokens": 0, "context_window": 10}),
        ({"used": -1, "size": "x", "cost": 7}, {"context_tokens": 0}),
    ],
)
async def test_usage(opened: Open, told: dict[str, Any], used: dict[str, Any]) -> None:
    said = await (await opened()).turn(f"/do update('usage_update', **{told})")
    assert only(UsageChanged, said).usage == Usage(**used)


async def test_a_limit_of_the_account(opened: Open) -> None:
    """As claude-agent-acp adds it to the protocol."""
    limit = {"status": "allowed_warning", "rateLimitType": "five_hour", "utilization": 0.9}
    limit |= {"resetsAt": 1_800_000_000}
    said = await (await opened()).turn(
        f"/do update('usage_update', used=1, size=2, _meta={{'_claude/rateLimit': {limit}}})"
    )
    [told] = only(UsageChanged, said).usage.limits or []
    assert (told.name, told.status, told.used) == ("five_hour", "near", 0.9)
    assert told.resets_at == "2027-01-15T08:00:00.000Z"


async def test_a_plan(opened: Open) -> None:
    """It is a list of claude-code's kind, whatever the agent puts in; the same twice is one."""
    steps = [
        {"content": "Look", "status": "completed", "priority": "high"},
        {"content": "Mend", "status": "paused"},
        {"content": ["Test"], "status": "in_progress", "priority": 7},
        "no step",
    ]
    said = await (await opened()).turn(
        f"/do [update('plan', entries={steps}) for _ in 'ab']; update('plan')"
    )
    assert kinds(said) == ["ToolStarted", "ToolSucceeded"] * 2 + ["TurnEnded"]
    first, empty = (event.call for event in said if isinstance(event, ToolStarted))
    assert first.tool == empty.tool == "TodoWrite" and empty.params == {"todos": []}
    assert [(one["content"], one["status"]) for one in first.params["todos"]] == [
        ("Look", "completed"),
        ("Mend", "pending"),
        ('["Test"]', "in_progress"),
    ]
    done = next(event for event in said if isinstance(event, ToolSucceeded))
    assert done.content == '[x] Look\n[ ] Mend\n[>] ["Test"]'
