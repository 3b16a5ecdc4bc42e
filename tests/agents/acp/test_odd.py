"""What ACP agents send that is too large, lacks a field, or contradicts itself (D68, D76)."""

from typing import Any

import pytest

from bridge_project.kernel import limits
from sessions_app.agents import sanitize
from sessions_app.agents.events import (
    ApprovalAsked,
    Chunk,
    TitleChanged,
    ToolFailed,
    ToolStarted,
    ToolStopped,
    ToolSucceeded,
    TurnEnded,
    UsageChanged,
)
from tests.agents.conftest import Open
from tests.agents.drive import APPROVED, kinds, only, text

pytestmark = pytest.mark.asyncio(loop_scope="module")
LARGE = "'x' * 10_000_000"
TEXT = f"[{{'type': 'content', 'content': {{'type': 'text', 'text': {LARGE}}}}}]"


@pytest.mark.parametrize(
    "code",
    [
        f"ask('c', title='Run', kind='execute', content={TEXT})",
        f"ask('c', title={LARGE}, kind='execute')",
        f"ask('c', title='Edit', content=[{{'type': 'diff', 'path': 'a', 'newText': {LARGE}}}])",
        f"request('elicitation/create', mode='form', message={LARGE}, requestedSchema={{}})",
    ],
)
async def test_nobody_is_asked_about_ten_megabytes(opened: Open, code: str) -> None:
    """What no person can read is refused, and shown as far as a phone can take it."""
    drive = await opened(APPROVED)
    said = await drive.turn(f"/do n = {code}; say(str(answer(n)))")
    assert kinds(said) == ["ToolStarted", "ToolStopped", "TurnEnded"]
    assert "too long" in only(ToolStopped, said).reason
    assert "reject_once" in text(said) or "decline" in text(said)
    shown = sanitize.storable_call(only(ToolStarted, said).call)
    assert len(str(shown)) < limits.AGENT_CALL_BYTES


async def test_ten_megabytes_that_nobody_decides_about(opened: Open) -> None:
    """They come cut, or in pieces; the session goes on."""
    drive = await opened()
    said = await drive.turn(
        f"/do say({LARGE})\n"
        f"update('tool_call', toolCallId='c', title='Look', status='completed', content={TEXT})\n"
        f"update('session_info_update', title={LARGE})\n"
        f"update('plan', entries=[{{'content': {LARGE}}}])\n"
        "say('end')"
    )
    assert text(said) == "x" * 10_000_000 + "end"
    results = [event for event in said if isinstance(event, ToolSucceeded)]
    assert [len(sanitize.truncate(one.content)) for one in results] == [
        limits.TOOL_OUTPUT_BYTES + len("\n[cut: 10000000 bytes in all]"),
        limits.TOOL_OUTPUT_BYTES + len("\n[cut: 10000004 bytes in all]"),
    ]
    assert only(TitleChanged, said).title.startswith("xxx")
    assert "hello" in text(await drive.turn("hello"))


@pytest.mark.parametrize(
    "message",
    [
        "update('tool_call', title='x', status='completed')",
        "update('tool_call_update', toolCallId=7, status='completed')",
        "update('tool_call', toolCallId=None, rawInput='x')",
        "update('usage_update', used=float('nan'), size=float('inf'))",
        "update('usage_update', used=1, size=1, cost={'amount': float('nan'), 'currency': 'USD'})",
        "update('usage_update', used=10**40, size=1)",
        "update('usage_update', used=1, size=1, _meta={'_claude/rateLimit': {'status': ['x']}})",
        "update('current_mode_update')",
        "update('config_option_update')",
        "update('available_commands_update')",
        "update('session_info_update', title={'a': 1})",
        "update('plan', entries={'a': 1})",
        "update(['x'])",
        "update('unheard_of', content=7)",
        "send(method='session/update')",
        "send(method='session/update', params=7)",
        "send(method='session/update', params={'update': {}})",
        "send(method='session/unheard_of', params={})",
        "send(method='elicitation/complete', params={})",
    ],
)
async def test_a_message_without_a_field(opened: Open, message: str) -> None:
    """It is skipped, or taken as far as it goes; what comes behind it is not lost."""
    drive = await opened()
    said = await drive.turn(f"/do say('before '); {message}; say('behind')")
    assert text(said) == "before behind" and only(TurnEnded, said).finish_reason == "stop"
    assert not [event for event in said if isinstance(event, ToolFailed)]
    assert "hello" in text(await drive.turn("hello"))


@pytest.mark.parametrize(
    "request_",
    [
        "request('session/request_permission')",
        "request('session/request_permission', toolCall=7, options=7)",
        "request('session/request_permission', toolCall={'title': 'ls'})",
        "request('elicitation/create', mode=7)",
        "request('elicitation/create', mode='voice', message='x')",
        "request('elicitation/create', mode='url', message='x')",
    ],
)
async def test_a_request_without_a_field_is_answered(opened: Open, request_: str) -> None:
    """No agent waits for ever, and nothing is allowed by it."""
    drive = await opened()
    said = await drive.turn(f"/do n = {request_}; answer(n); say(str(agent.waiting[n]))")
    assert "allow" not in text(said) and "accept" not in text(said)
    assert only(TurnEnded, said).finish_reason == "stop"


@pytest.mark.parametrize("call_id", ["7", "None", "''", "['x']"])
async def test_a_request_whose_call_has_no_usable_id(opened: Open, call_id: str) -> None:
    """The person is asked all the same."""
    drive = await opened(APPROVED)
    said = await drive.turn(
        f"/do say(str(allowed(ask({call_id}, title='ls', rawInput={{'command': 'ls'}}))))"
    )
    assert text(said) == "True" and only(ApprovalAsked, said).call.params == {"command": "ls"}


async def test_usage_that_is_no_number(opened: Open) -> None:
    said = await (await opened()).turn(
        "/do cost = {'amount': float('inf'), 'currency': 'USD'}\n"
        "limit = {'status': 'rejected', 'utilization': float('nan'), 'resetsAt': 10**40}\n"
        "update('usage_update', used=1, size=2, cost=cost, _meta={'_claude/rateLimit': limit})"
    )
    used = only(UsageChanged, said).usage
    assert (used.context_tokens, used.cost_usd) == (1, None)
    [limit] = used.limits or []
    assert (limit.status, limit.used, limit.resets_at) == ("reached", None, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("a", "allow_once"), ("b", "allow_always"), ("c", "allow_always")], "a"),
        ([("b", "allow_always"), ("a", "allow_once"), ("n", "reject_always")], "a"),
        ([("a", "allow_always"), ("b", "allow_always"), ("n", "reject_once")], "n"),
        ([("a", "allow_once"), ("a", "allow_once"), ("n", "reject_once")], "n"),
        ([("a", "allow_once"), ("a", "reject_once")], "cancelled"),
        ([("y", "allow_by_team"), ("n", "reject_always")], "n"),
        ([], "cancelled"),
    ],
)
async def test_options_of_several_kinds(
    opened: Open, given: list[tuple[str, str]], said: str
) -> None:
    """What is approved is this one call, once: nothing else is ever chosen."""
    drive = await opened(APPROVED)
    options: list[dict[str, Any]] = [
        {"optionId": id_, "name": "Yes", "kind": kind} for id_, kind in given
    ]
    call = {"title": "ls", "rawInput": {"command": "ls"}}
    told = await drive.turn(f"/do say(str(answer(ask('c', options={options}, **{call}))))")
    assert f"'{said}'" in text(told)


async def test_a_title_that_is_not_the_command(opened: Open) -> None:
    """The command is shown and rated, whatever stands over it; the title is shown as well."""
    drive = await opened(APPROVED)
    for title in ("echo hello", "rm -rf build", "Says hello to everybody"):
        call = {"title": title, "kind": "execute", "rawInput": {"command": "rm -rf build"}}
        said = await drive.turn(f"/do allowed(ask('c', **{call}))")
        asked = only(ApprovalAsked, said).call
        assert (asked.params["command"], asked.risk_level) == ("rm -rf build", "critical")
        assert "rm -rf build" in asked.description and title in asked.description


async def test_half_a_character_in_what_is_said_of_a_session(opened: Open) -> None:
    """In titles, plans and forms it is U+FFFD."""
    drive = await opened(APPROVED)
    half = chr(0xD83D)
    said = await drive.turn(
        f"/do half = chr({ord(half)})\n"
        "update('plan', entries=[{'content': half}])\n"
        "answer(request('elicitation/create', mode='form', message=half, requestedSchema={}))"
    )
    plan = sanitize.storable_call(next(e for e in said if isinstance(e, ToolStarted)).call)
    assert plan.params["todos"][0]["content"] == "\ufffd"
    asked = sanitize.storable_call(only(ApprovalAsked, said).call)
    assert asked.params["questions"][0]["question"] == "\ufffd"
    assert not [event for event in said if isinstance(event, Chunk)]
