"""A terminal is answered from the phone: the hook waits beside the dialog (D66)."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.approvals import (
    assert_refused,
    assert_stands,
    decide,
    greeted,
    notifications,
    of,
    pre,
)
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session
from tests.conformance.terminal import SOONER, Terminal, shown, until
from tests.faults.quick import QuickBridge, bridge_of_module
from tests.servers import wait_until
from tests.short import short

pytestmark = pytest.mark.spec("ws.approval_response", "ws.approval_required")

LIMITS = SOONER["TESTS_SHORT"].split()
bridge = bridge_of_module(BRIDGE_MAX_WEBSOCKETS="100", **short(*LIMITS, "HOOK_OUTCOME_SECONDS"))
hasty = bridge_of_module(**short("AWAY_SECONDS", "PROCESS_CHECK_SECONDS"))

Open = Callable[..., Terminal]
LS = {"command": "ls"}
QUESTION = {"questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
ANSWERED = {**QUESTION, "answers": {"Which?": "B"}}
PLAN = {"plan": "1. Do it"}


def asked(phone: Phone, session_id: str, **fields: Any) -> dict[str, Any]:
    found = phone.expect("approval_required", session_id=session_id, **fields)
    return dict(found["payload"])


def shows(agent: Terminal) -> None:
    """The program shows its dialog, as its registry says."""
    agent.register("waiting", time.time())


def goes_on(agent: Terminal) -> None:
    agent.register("busy", time.time())


def outcomes(phone: Phone, session_id: str) -> list[Any]:
    told = notifications(phone, session_id, "approval_decided")
    return [one["data"]["outcome"] for one in told if "outcome" in one["data"]]


def until_outcome(phone: Phone, session_id: str, outcome: str) -> None:
    phone.collect(lambda: outcomes(phone, session_id) == [outcome], f"it is {outcome}")


def states(phone: Phone, session_id: str) -> list[bool]:
    return [one["payload"]["answerable"] for one in of(phone, "approval_state", session_id)]


FORMS: dict[str, tuple[str, dict[str, Any], tuple[Any, ...], dict[str, str], dict[str, Any]]] = {
    "yes": ("Bash", LS, ("approved",), {}, {"behavior": "allow"}),
    "no, with a reason": (
        *("Bash", LS, ("rejected",), {"reason": "Not now"}),
        {"behavior": "deny", "message": "Not now"},
    ),
    "changed": (
        *("Bash", LS, ("modified", {"command": "ls -l"}), {}),
        {"behavior": "allow", "updatedInput": {"command": "ls -l"}},
    ),
    "a question": (
        *("AskUserQuestion", QUESTION, ("modified", ANSWERED), {}),
        {"behavior": "allow", "updatedInput": ANSWERED},
    ),
    "a plan": ("ExitPlanMode", PLAN, ("approved",), {}, {"behavior": "allow", "updatedInput": {}}),
    "no plan": (
        *("ExitPlanMode", PLAN, ("rejected",), {"reason": "Shorter"}),
        {"behavior": "deny", "message": "Shorter"},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_goes_to_the_dialog_in_the_agents_own_form(
    phone: Phone, agent: Terminal, sid: str, form: str
) -> None:
    tool, params, decision, more, printed = FORMS[form]
    goes_on(agent)
    dialog = agent.asks(tool, params)
    question = asked(phone, sid)
    assert question["answerable"] is True and question["source"] == "hooks"
    told = notifications(phone, sid, "approval_required")
    phone.collect(lambda: bool(notifications(phone, sid, "approval_required")), "it is told")
    told = notifications(phone, sid, "approval_required")
    assert told[-1]["title"].endswith("asks at the machine and here")
    shows(agent)
    recorded = decide(phone, sid, question["tool_call_id"], *decision, **more)
    assert recorded["payload"]["forwarded"] is True
    assert dialog.answer() == printed
    goes_on(agent)
    until_outcome(phone, sid, "taken")
    assert states(phone, sid) == [False]
    until(phone, sid, turn="working", pending_approvals=0)


def test_the_next_event_shows_it_where_there_is_no_registry(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    dialog = agent.asks("Bash", LS)
    decide(phone, sid, asked(phone, sid)["tool_call_id"], "approved")
    assert dialog.answer() == {"behavior": "allow"}
    agent.tool("PostToolUse", "ls")
    until_outcome(phone, sid, "taken")


def test_the_desk_was_first(phone: Phone, agent: Terminal, sid: str) -> None:
    """Within a second the hook leaves, and what a device decides then is told to be too late."""
    dialog = agent.asks("Bash", LS)
    call = asked(phone, sid)["tool_call_id"]
    shows(agent)
    until(phone, sid, **{"continue": {"how": "answer", "reason": "", "ends": False}})
    time.sleep(0.6)  # two looks at the dialog that waits
    assert not dialog.over
    goes_on(agent)
    wait_until(lambda: dialog.over, "it is ended", within=1.5)
    phone.collect(lambda: shown(phone, sid)["continue"]["how"] != "answer", "not any more")
    assert dialog.answer() is None
    assert phone.expect("approval_state", session_id=sid)["payload"]["answerable"] is False
    recorded = decide(phone, sid, call, "rejected")["payload"]
    assert recorded["forwarded"] is False
    until_outcome(phone, sid, "desk_first")
    agent.tool("PostToolUse", "ls")
    phone.expect("tool_result", session_id=sid)
    agent.hook("Stop")
    until(phone, sid, turn="idle")
    assert notifications(phone, sid, "error") == [], "nobody is alarmed"


@pytest.mark.spec("ws.approval_state")
def test_no_at_the_desk_ends_the_hook(phone: Phone, agent: Terminal, sid: str) -> None:
    dialog = agent.asks("Bash", LS)
    call = asked(phone, sid)["tool_call_id"]
    agent.refuse(dialog)
    assert phone.expect("approval_state", session_id=sid)["payload"] == {
        "session_id": sid,
        "tool_call_id": call,
        "answerable": False,
    }
    assert dialog.answer() is None
    assert decide(phone, sid, call, "approved")["payload"]["forwarded"] is False


def test_what_is_said_after_a_no_at_the_desk_is_too_late(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    """The registry says that the turn is over, and nobody waits any more."""
    dialog = agent.asks("Bash", LS)
    call = asked(phone, sid)["tool_call_id"]
    shows(agent)
    agent.refuse(dialog)
    agent.register("idle", time.time())
    phone.expect("approval_state", session_id=sid)
    decide(phone, sid, call, "approved")
    until_outcome(phone, sid, "desk_first")


def refuse(phone: Phone, agent: Terminal, sid: str) -> None:
    """Reject a call whose dialog is up; the hook takes it."""
    dialog = agent.asks("Bash", LS)
    call = asked(phone, sid)["tool_call_id"]
    shows(agent)
    decide(phone, sid, call, "rejected")
    assert dialog.answer() is not None


def test_a_next_dialog_shows_that_an_answer_was_taken(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    """It may be up before anybody has seen that the agent went on."""
    refuse(phone, agent, sid)
    shows(agent)
    until_outcome(phone, sid, "taken")


@pytest.mark.parametrize("decision", ["rejected", "modified"])
def test_the_desk_answered_at_the_same_moment(
    phone: Phone, agent: Terminal, sid: str, decision: str
) -> None:
    """The hook has taken the answer, but what ran shows that the desk was first."""
    dialog = agent.asks("Bash", LS)
    given = {"command": "ls -l"} if decision == "modified" else None
    decide(phone, sid, asked(phone, sid)["tool_call_id"], decision, given)
    assert dialog.answer() is not None
    agent.tool("PostToolUse", "ls")
    until_outcome(phone, sid, "desk_first")
    assert notifications(phone, sid, "error") == []


def test_nothing_shows_who_was_first(phone: Phone, agent: Terminal, sid: str) -> None:
    """Then a call that runs all the same alarms nobody."""
    dialog = agent.asks("Bash", LS)
    decide(phone, sid, asked(phone, sid)["tool_call_id"], "rejected")
    assert dialog.answer() is not None
    until_outcome(phone, sid, "not_confirmed")
    agent.tool("PostToolUse", "ls")
    phone.expect("tool_result", session_id=sid)
    assert notifications(phone, sid, "error") == []


def test_what_the_phone_refused_and_the_agent_took_must_not_run(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    refuse(phone, agent, sid)
    goes_on(agent)
    until_outcome(phone, sid, "taken")
    agent.tool("PostToolUse", "ls")
    phone.collect(lambda: bool(notifications(phone, sid, "error")), "an alarm")


def test_a_refusal_that_was_taken_is_no_call_without_a_result(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    dialog = agent.asks("Bash", LS)
    decide(phone, sid, asked(phone, sid)["tool_call_id"], "rejected")
    assert dialog.answer() is not None
    agent.hook("Stop")
    until(phone, sid, turn="idle", doing=None)
    until_outcome(phone, sid, "taken")
    assert not [one for one in notifications(phone, sid) if "no result" in one["title"]]


def test_two_phones_and_one_answer(bridge: Bridge, phone: Phone, agent: Terminal, sid: str) -> None:
    dialog = agent.asks("Bash", LS)
    call = asked(phone, sid)["tool_call_id"]
    with bridge.phones(1) as (other,):
        assert decide(other, sid, call, "rejected", reason="No")["payload"]["forwarded"] is True
        assert_stands(decide(phone, sid, call, "approved"), "rejected", "")
    assert dialog.answer() == {"behavior": "deny", "message": "No"}


def test_two_equal_calls_have_a_hook_and_an_answer_each(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    first = agent.asks("Bash", LS)
    one = asked(phone, sid)["tool_call_id"]
    phone.forget()
    second = agent.asks("Bash", LS)
    other = asked(phone, sid)["tool_call_id"]
    assert one != other
    decide(phone, sid, other, "rejected", reason="the second")
    assert second.answer() == {"behavior": "deny", "message": "the second"}
    assert not first.over
    decide(phone, sid, one, "approved")
    assert first.answer() == {"behavior": "allow"}


def test_a_question_is_not_answered_by_a_mere_yes(phone: Phone, agent: Terminal, sid: str) -> None:
    """The agent would ignore it; it still waits."""
    dialog = agent.asks("AskUserQuestion", QUESTION)
    call = asked(phone, sid)["tool_call_id"]
    assert_refused(decide(phone, sid, call, "approved"), "PROTO_INVALID_MESSAGE", True)
    decide(phone, sid, call, "modified", ANSWERED)
    assert dialog.answer()["updatedInput"] == ANSWERED


# who waits


def test_a_program_at_which_nobody_sits_waits_for_nothing(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """`claude -p` and an SDK: never, also while the owner is away."""
    bridge.manage("away")
    for entrypoint in ("sdk-cli", "sdk-py"):
        start = time.monotonic()
        assert agent.asks("Bash", LS, entrypoint=entrypoint).answer() is None
        assert time.monotonic() - start < 1.5
        assert "answerable" not in asked(phone, sid)
        agent.tool("PostToolUse", "ls")
        phone.forget()
    bridge.manage("away", "--back")


@pytest.mark.parametrize("whose", [{"agent_id": "a1", "agent_type": "x"}, {"entrypoint": "ide"}])
def test_where_no_dialog_is_known_to_be_up_it_waits_while_the_owner_is_away(
    phone: Phone, agent: Terminal, sid: str, whose: dict[str, str]
) -> None:
    assert agent.asks("Bash", LS, **whose).answer() is None
    assert "answerable" not in asked(phone, sid)
    agent.tool("PostToolUse", "ls", **whose)
    phone.request("presence_set", {"away": True})
    phone.forget()
    dialog = agent.asks("Bash", {"command": "pwd"}, **whose)
    assert asked(phone, sid)["answerable"] is True
    phone.request("presence_set", {"away": False})
    wait_until(lambda: dialog.over, "it leaves when the owner is back", within=1.5)
    assert dialog.answer() is None
    assert phone.expect("approval_state", session_id=sid)["payload"]["answerable"] is False


def test_a_payload_alone_makes_nothing_answerable(phone: Phone, agent: Terminal, sid: str) -> None:
    agent.tool("PermissionRequest", "ls", answerable=True)
    assert "answerable" not in asked(phone, sid)


def test_what_came_by_http_words_no_card_of_a_hook(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """The holder of the hook token asks first about the same call, and calls it harmless."""
    params, words = {"command": "rm -rf build"}, {"description": "List the files"}
    bridge.accept(pre(sid, params, approval=True, tool_call_id="x", **words))
    false = asked(phone, sid)
    dialog = agent.asks("Bash", params)
    true = asked(phone, sid)
    assert true["risk_level"] == "critical" and "rm -rf" in true["description"]
    assert true["answerable"] is True
    decide(phone, sid, false["tool_call_id"], "approved")
    assert not dialog.over
    decide(phone, sid, true["tool_call_id"], "rejected")
    assert dialog.answer()["behavior"] == "deny"


# faults


def test_it_ends_with_its_agent(phone: Phone, agent: Terminal, sid: str) -> None:
    agent.asks("Bash", LS)
    asked(phone, sid)
    agent.kill()
    assert phone.expect("approval_state", session_id=sid)["payload"]["answerable"] is False


def test_a_decision_outlives_a_database_that_refuses(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """The dialog gets it at once; what came of it is told when it can be stored."""
    dialog = agent.asks("Bash", LS)
    call = asked(phone, sid)["tool_call_id"]
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3", isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON sessions_app_command"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
        decide(phone, sid, call, "approved")
        assert dialog.answer() == {"behavior": "allow"}
        database.execute("DROP TRIGGER refuse")
    assert phone.expect("approval_state", session_id=sid)["payload"]["answerable"] is False
    goes_on(agent)
    until_outcome(phone, sid, "taken")


def test_fifty_wait(bridge: Bridge, phone: Phone, agent: Terminal, sid: str) -> None:
    dialogs = [agent.asks("Bash", {"command": f"ls {n}"}) for n in range(50)]
    phone.collect(lambda: len(of(phone, "approval_required", sid)) == 50, "all ask")
    calls = {
        one["payload"]["params"]["command"]: one["payload"]
        for one in of(phone, "approval_required", sid)
    }
    assert all(one["answerable"] for one in calls.values())
    for number in (49, 0):
        decide(phone, sid, calls[f"ls {number}"]["tool_call_id"], "approved")
        assert dialogs[number].answer() == {"behavior": "allow"}
    agent.hook("Stop")
    for dialog in dialogs[1:49]:
        assert dialog.answer() is None


def test_another_process_at_the_fifo_gets_no_answer(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """It swallows the word that the answer is there: then the hook has not taken it."""
    dialog = agent.asks("Bash", LS)
    call = asked(phone, sid)["tool_call_id"]
    (fifo,) = [one for one in (bridge.data / "spool" / "answers").iterdir() if one.is_fifo()]
    assert fifo.parent.stat().st_mode & 0o777 == 0o700
    waiting = int(
        next(
            pid
            for pid in os.listdir("/proc")
            if pid.isdigit() and _reads(Path("/proc") / pid, fifo)
        )
    )
    os.kill(waiting, 19)  # it does not read meanwhile
    stranger = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        recorded = decide(phone, sid, call, "approved")["payload"]
    finally:
        os.close(stranger)
        os.kill(waiting, 18)
    assert recorded["forwarded"] is False
    assert dialog.answer() is None


def _reads(process: Path, fifo: Path) -> bool:
    try:
        return os.path.samefile(process / "fd" / "4", fifo)
    except OSError:
        return False


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_bridge_that_ends_leaves_the_dialog_to_the_desk(
    mortal: Bridge, tmp_path: Path, how: str
) -> None:
    sid = new_session()
    agent = Terminal(mortal.data, sid, str(mortal.root), tmp_path / "home")
    try:
        with mortal.phones(1) as (phone,):
            agent.hook("SessionStart", source="startup")
            phone.expect("session_started", session_id=sid)
            phone.join(sid)
            dialog = agent.asks("Bash", LS)
            call = asked(phone, sid)["tool_call_id"]
            with mortal.asleep():  # it hangs: the dialog is up, and nothing is decided
                time.sleep(0.5)
                assert not dialog.over
        mortal.kill() if how == "kill" else mortal.stop()
        wait_until(lambda: dialog.over, "it ends with the bridge", within=1.5)
        assert dialog.answer() is None
        assert agent.asks("Bash", {"command": "pwd"}).answer() is None, "no bridge: no wait"
        mortal.start()
        with mortal.phones(1) as (phone,):
            greeted(mortal, phone)
            now = [one["payload"] for one in of(phone, "approval_required", sid)]
            assert [one["answerable"] for one in now if one["tool_call_id"] == call] == [False]
            assert decide(phone, sid, call, "approved")["payload"]["forwarded"] is False
    finally:
        agent.kill()


# away


def hello(phone: Phone) -> dict[str, Any]:
    return dict(next(one for one in phone.messages if one["type"] == "connection_ack")["payload"])


def presence(phone: Phone, away: bool, device: str | None) -> dict[str, Any]:
    told = phone.expect("presence_state", away=away)["payload"]
    assert told["device"] == device
    return dict(told)


@pytest.mark.spec("ws.presence_set", "ws.presence_state", "ws.connection_ack")
def test_away_is_told_to_every_device(bridge: Bridge, phone: Phone) -> None:
    with bridge.phones(1) as (other,):
        answer = phone.request("presence_set", {"away": True})
        assert answer["type"] == "presence_state" and answer["payload"]["away"] is True
        mine = hello(phone)["device_name"]
        assert presence(other, True, mine) == answer["payload"]
        again = phone.request("presence_set", {"away": True})
        assert again["payload"] == answer["payload"], "nothing has changed"
        assert hello(other.again())["presence"] == answer["payload"]
        phone.forget()
        assert other.request("presence_set", {"away": False})["payload"]["away"] is False
        presence(phone, False, hello(other)["device_name"])
    said = bridge.manage("away").stdout
    assert "You are away, for 12 hours" in said and "away --back`." in said
    presence(phone, True, None)
    assert "You are away already, since " in bridge.manage("away").stdout
    assert "You are back at the machine." in bridge.manage("away", "--back").stdout
    assert "You are at the machine already." in bridge.manage("away", "--back").stdout


def test_it_is_over_after_a_while(hasty: Bridge) -> None:
    with hasty.phones(1) as (phone,):
        phone.request("presence_set", {"away": True})
        presence(phone, False, None)


def test_it_is_over_by_a_prompt_at_the_desk(phone: Phone, agent: Terminal) -> None:
    """Of a person: neither one that the program makes nor one of a script."""
    phone.request("presence_set", {"away": True})
    agent.register("busy", time.time(), entrypoint="sdk-cli")
    agent.hook("UserPromptSubmit", prompt="of a script")
    agent.register("busy", time.time())
    agent.hook("UserPromptSubmit", prompt="<task-notification>x</task-notification>")
    assert phone.request("presence_set", {"away": True})["payload"]["away"] is True
    phone.forget()
    agent.hook("UserPromptSubmit", prompt="I am here")
    presence(phone, False, None)


SLOW_LOOK = """
import threading, time
from sessions_app import away
looked = away.is_away
def slowly():
    found = looked()
    if not found and threading.current_thread().name.startswith("terminals"):
        time.sleep(2)
    return found
away.is_away = slowly
"""


def test_a_look_from_before_takes_no_mark_away(tmp_path: Path) -> None:
    """The hooks know by a file, which is there as soon as the phone is told."""
    more = short("PROCESS_CHECK_SECONDS", "TERMINAL_CHECK_SECONDS")
    with QuickBridge(tmp_path, first=SLOW_LOOK, **more) as bridge, bridge.phones(1) as (phone,):
        mark = bridge.data / "spool" / "away"
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        for _ in range(2):
            assert phone.request("presence_set", {"away": True})["payload"]["away"] is True
            until = time.monotonic() + 3
            while time.monotonic() < until:
                assert mark.exists()
                phone.stay(0.05)
            phone.request("presence_set", {"away": False})
            wait_until(lambda: not mark.exists())
