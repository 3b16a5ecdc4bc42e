"""An agent of the Agent Client Protocol that lies, behind a real bridge, as phones see it (D38)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge_project.kernel import limits
from tests.attack.conftest import answer
from tests.conformance.agent_tools import bridge_of, script_of, session_of, wait_status
from tests.conformance.agents import ask, begin, end, log_of, question, say, words
from tests.conformance.approvals import decide, decided, notifications, of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge

pytestmark = pytest.mark.slow

Do = Callable[[str], str]

script, bridge, session = script_of("plain"), bridge_of(), session_of("plain")


@pytest.fixture
def do(phone: Phone, session: str) -> Do:
    """Have the session's agent execute this."""
    return lambda code: say(phone, session, f"/do {code}")


def test_a_call_that_changes_while_it_is_decided_about(phone: Phone, session: str, do: Do) -> None:
    """Asked again under the same id: who approved the first has approved the first."""
    do(
        "first = ask('c', kind='execute', rawInput={'command': 'ls'})\n"
        "second = ask('c', kind='execute', rawInput={'command': 'touch made'})\n"
        "say(f'{allowed(first)} {allowed(second)}')"
    )
    one, other = question(phone, session), question(phone, session)
    assert [call["params"]["command"] for call in (one, other)] == ["ls", "touch made"]
    assert one["tool_call_id"] != other["tool_call_id"]
    stands = decide(phone, session, one["tool_call_id"], "approved")
    assert stands["payload"]["code"] == "TOOL_ALREADY_DECIDED", "nobody asks about it any more"
    decide(phone, session, other["tool_call_id"], "rejected")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert words(phone.messages).endswith("False False")


@pytest.mark.parametrize(
    ("since", "is_allowed"),
    [
        ({"command": "touch made"}, False),
        ({"command": ["sh", "-c", "ls"], "description": "List"}, True),
        ({"description": "List"}, True),
    ],
)
def test_a_call_that_is_told_anew_before_it_is_approved(
    phone: Phone, session: str, do: Do, since: dict[str, Any], is_allowed: bool
) -> None:
    """The command that was shown is approved, in whatever form the agent tells of it since."""
    do(
        "asked = ask('c', kind='execute', rawInput={'command': 'ls'})\n"
        f"update('tool_call_update', toolCallId='c', rawInput={since})\n"
        "say('told'); say(str(allowed(asked)))"
    )
    call = question(phone, session)
    phone.collect(lambda: words(phone.messages).endswith("told"), "it has told so")
    decide(phone, session, call["tool_call_id"], "approved")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert words(phone.messages).endswith(f"told{is_allowed}")
    results = [one["payload"]["result"] for one in of(phone, "tool_result", session)]
    assert is_allowed or "changed the command" in results[0]["error"]


def test_a_call_that_runs_although_nobody_allowed_it(
    bridge: QuickBridge, phone: Phone, session: str, do: Do
) -> None:
    """D37: every device is told, also of one that is reported anew; it never counts as approved."""
    bridge.played_unallowed = ('Bash {"command":"rm x"}',)
    for decision, report in (
        ("rejected", "tool_call_update"),
        ("rejected", "tool_call"),
        (None, "tool_call_update"),
    ):
        do(
            "asked = ask('c', kind='execute', rawInput={'command': 'rm x'})\n"
            f"{'allowed(asked)' if decision else ''}\n"
            f"update('{report}', toolCallId='c', title='rm', status='in_progress')\n"
            "for _ in range(2):\n"
            "    update('tool_call_update', toolCallId='c', status='completed')\n"
        )
        call = question(phone, session)
        if decision:
            decide(phone, session, call["tool_call_id"], decision)
        phone.expect("stream_end", session_id=session, finish_reason="stop")
        told, id_ = notifications(phone, session), call["tool_call_id"]
        about = [one for one in told if one["data"].get("tool_call_id") == id_]
        [alarm] = [one for one in about if one["data"].get("code") == "REJECTED_CALL_RAN"]
        assert alarm["priority"] == "high" and alarm["notification_type"] == "error"
        assert decided(phone, session)[id_] == "rejected"


def test_an_id_that_is_used_in_each_turn(phone: Phone, session: str, do: Do) -> None:
    """D37: an agent counts its calls anew: each call is one, announced, decided and concluded."""
    for command in ("ls", "ls", "date"):
        do(
            "call = {'toolCallId': '1', 'title': 'ls', 'kind': 'execute'}\n"
            "update('tool_call', rawInput={'command': 'ls'}, **call)\n"
            f"allowed(ask('1', kind='execute', rawInput={{'command': {command!r}}}))\n"
            "update('tool_call_update', toolCallId='1', status='completed')"
        )
        answer(phone, session, "approved")
    told, asked_about, ended = (
        [message["payload"]["tool_call_id"] for message in of(phone, type_, session)]
        for type_ in ("tool_call", "approval_required", "tool_result")
    )
    assert told == asked_about == ended and len(set(told)) == 3


def test_another_sessions_id(bridge: Bridge, phone: Phone, session: str, do: Do) -> None:
    """Whatever session an agent names, it speaks and asks in its own."""
    other = begin(bridge, phone, agent="plain")
    ask(phone, other, "/do say(agent.session)")
    name = words(of(phone, "stream_chunk", other))
    do(
        f"agent.session = {name!r}\n"
        "say('I am the other. ')\n"
        "update('tool_call', toolCallId='t', title='Look', kind='search', status='completed')\n"
        "yes = allowed(ask('c', kind='execute', rawInput={'command': 'ls'}))\n"
        "say(str(yes))"
    )
    decide(phone, session, question(phone, session)["tool_call_id"], "approved")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert words(of(phone, "stream_chunk", session)) == "I am the other. True"
    kinds = {message["type"] for message in log_of(phone, other)}
    assert kinds == {"agent_event", "stream_start", "stream_chunk", "stream_end"}
    end(phone, other)


def test_a_result_before_its_call(phone: Phone, session: str) -> None:
    """A device never sees the result of a call that it does not know, nor two results."""
    said = ask(
        phone,
        session,
        "/do for status in ('completed', 'failed', 'completed'):\n"
        "    update('tool_call_update', toolCallId='early', status=status)\n"
        "update('tool_call', toolCallId='early', title='make', kind='execute', status='pending')\n"
        "update('tool_call_update', toolCallId='early', status='completed')\n",
    )
    calls = [message for message in said if message["type"].startswith("tool_")]
    assert [call["type"] for call in calls] == ["tool_call", "tool_result"] * 2
    first, its, other, others = (call["payload"]["tool_call_id"] for call in calls)
    assert first == its != other == others


def test_more_questions_than_a_person_reads(
    bridge: Bridge, phone: Phone, session: str, do: Do
) -> None:
    """So many wait, and the rest is refused: every phone that connects gets all that wait."""
    most = limits.AGENT_QUESTIONS_WAITING
    do(
        f"asked = [ask(f'c{{n}}', kind='execute', rawInput={{'command': f'make {{n}}'}})"
        f" for n in range({most + 50})]\n"
        f"say(str([allowed(number) for number in asked[{most}:]].count(False)))\n"
        "answer(asked[0])"
    )
    phone.expect("stream_chunk", session_id=session, content="50")
    waiting = bridge.get(f"/api/v1/sessions/{session}", bridge.admin_token).json()
    assert waiting["pending_approvals"] == most
    phone.send("session_interrupt", {"session_id": session})
    phone.expect("stream_end", session_id=session, finish_reason="stop")


def test_a_line_of_a_hundred_megabytes(bridge: Bridge, phone: Phone) -> None:
    """The agent is ended, said why; the bridge holds no more of it than one message."""
    other, session = (begin(bridge, phone, agent="plain") for _ in range(2))
    before = bridge.memory()
    say(phone, session, f"/do sys.stdout.write('x' * {100 * 2**20}); sys.stdout.flush()")
    wait_status(bridge, session, "error")
    failed = phone.expect("error", session_id=session)["payload"]
    assert str(limits.AGENT_MESSAGE_BYTES) in failed["message"], failed
    assert bridge.memory() - before < 2 * limits.AGENT_MESSAGE_BYTES
    phone.ping()
    assert "here" in words(ask(phone, other, "/do say('here')"))
    for each in (other, session):
        phone.join(each)
        end(phone, each)


def test_a_call_of_megabytes(phone: Phone, session: str) -> None:
    """Nobody is asked about what no phone could take or person read; it is told cut."""
    said = ask(
        phone,
        session,
        f"/do call = {{'command': 'true', 'note': 'x' * {20 * 2**20}}}\n"
        "say(str(allowed(ask('c', kind='execute', rawInput=call))))",
    )
    assert words(said) == "False" and not of(phone, "approval_required", session)
    [call] = [message["payload"] for message in of(phone, "tool_call", session)]
    assert call["params"]["command"] == "true" and len(json.dumps(call)) < 2**20
    [result] = [message["payload"]["result"] for message in of(phone, "tool_result", session)]
    assert "long" in result["error"] and not result["success"]


def test_paths_that_are_no_text(phone: Phone, session: str, do: Do) -> None:
    """A person is asked all the same, and no rule covers them."""
    for path in ("\\ud800", "a\\0b"):
        do(f"ask('c', kind='execute', rawInput={{'command': 'ls', 'cwd': '{path}'}})")
        call = answer(phone, session, "rejected")
        assert call["params"]["command"] == "ls" and "remember" not in call
        assert "Outside the allowed roots" in call["description"]
