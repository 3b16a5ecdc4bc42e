"""What happens in a terminal is told as it is (D65), through the installed hook command."""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.approvals import notifications, of, post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, now, prompt
from tests.conformance.terminal import SOONER, Terminal, heard, shown, until
from tests.faults.quick import bridge_of_module
from tests.short import SHORT

pytestmark = pytest.mark.spec("ws.session_update")

bridge = bridge_of_module(BRIDGE_MAX_WEBSOCKETS="100", **SOONER)

Open = Callable[..., Terminal]
IDLE_PROMPT = {"notification_type": "idle_prompt", "message": "Claude is waiting for your input"}


# directory


def test_the_directory_follows_the_agent_and_no_subagent(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str, tmp_path: Path
) -> None:
    """Whatever it is: a work tree, a file, a place outside the roots or that is not there."""
    places = [bridge.root / "tree", tmp_path, tmp_path / "not there", bridge.root / "file"]
    places[0].mkdir(exist_ok=True)
    places[3].touch()
    for place in places:
        agent.tool("PostToolUse", "ls", "t", cwd=str(place))
        agent.tool("PreToolUse", "pwd", "s", cwd="/", agent_id="a1", agent_type="reviewer")
        until(phone, sid, working_directory=str(place))
        agent.hook("SubagentStop", cwd="/", agent_id="a1")
    bridge.accept(*[pre(sid, cwd=f"/somewhere/{number}") for number in range(100)])
    agent.hook("Stop", cwd=str(places[0]))
    until(phone, sid, working_directory=str(places[0]), turn="idle")
    assert phone.request("file_list", {"session_id": sid, "path": "."})["payload"]["path"] == str(
        places[0]
    )


# prompts


def test_a_name_that_was_given_at_the_machine(phone: Phone, agent: Terminal, sid: str) -> None:
    """By `/rename`, or at the start; a subagent's is none of the session's."""
    until(phone, sid, title="Deploy it")
    agent.hook("UserPromptSubmit", prompt="And the bell", session_title="Harbour lights")
    until(phone, sid, title="Harbour lights")
    agent.tool("PreToolUse", "ls", "t", session_title="Another", agent_id="a1")
    agent.hook("UserPromptSubmit", prompt="Put them out")
    agent.hook("Stop")
    until(phone, sid, title="Harbour lights", turn="idle")


MADE = (
    "<task-notification>\n<summary>done</summary>\n</task-notification>",
    '<agent-message from="reviewer">\nLook at it.\n</agent-message>',
    '<cross-session-message from="s2">hello</cross-session-message>',
    '<teammate-message teammate_id="a">hello</teammate-message>\n',
    '  <channel source="mail">hello</channel>',
    'Another agent writes:\n\n<agent-message from="reviewer">Look</agent-message>',
)
OWN = (
    "<agent-message>Why does it print that?",
    "<div>a</div>",
    "<channels>a</channels>",
    "What is this:\nand that:\n<agent-message>a</agent-message>",
    "Look at <agent-message>a</agent-message>",
    "<agent-message\n",
    "</agent-message><agent-message>",
)


@pytest.mark.parametrize("text", [*MADE, *OWN])
def test_a_prompt_that_no_person_wrote_is_no_title(
    open_terminal: Open, phone: Phone, text: str
) -> None:
    sid = new_session()
    agent = open_terminal(sid)
    agent.hook("SessionStart", source="startup")
    phone.expect("session_started", session_id=sid)
    phone.join(sid)
    agent.hook("UserPromptSubmit", prompt=text)
    agent.hook("Stop")
    event = phone.expect("agent_event", session_id=sid, event="UserPromptSubmit")["payload"]
    made = text in MADE
    assert (event["payload"].get("context") == {"synthetic": True}) is made
    assert ("<" in event["payload"]["prompt"]) is not made, "without its tags"
    title = until(phone, sid, turn="idle")["title"]
    directory = agent.directory.rsplit("/", 1)[-1]
    assert title == directory if made else title.startswith(text.strip().splitlines()[0])


# calls


def test_a_call_that_a_hook_has_changed_is_one_call(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    """It is asked about, shown and ended as it runs."""
    agent.tool("PreToolUse", "make test", "t1")
    agent.tool("PermissionRequest", "compact -- make test")
    asked = phone.expect("approval_required", session_id=sid)["payload"]
    assert (asked["tool_call_id"], asked["changed"]) == ("t1", True)
    assert asked["params"] == {"command": "compact -- make test"}
    agent.tool("PostToolUse", "compact -- make test", "t1")
    done = phone.expect("tool_result", session_id=sid)["payload"]
    assert done["tool_call_id"] == "t1" and "changed" not in done, "that was said"
    agent.tool("PreToolUse", "make", "t2")
    agent.tool("PostToolUse", "compact -- make", "t2")
    done = phone.expect("tool_result", session_id=sid, tool_call_id="t2")["payload"]
    assert (done["changed"], done["params"]) == (True, {"command": "compact -- make"})
    until(phone, sid, turn="working", doing=None, pending_approvals=0)


def test_answers_to_a_question_are_no_change(phone: Phone, agent: Terminal, sid: str) -> None:
    asked = {"questions": [{"question": "Which?", "options": [{"label": "A"}]}]}
    question = {"tool_name": "AskUserQuestion", "tool_use_id": "q"}
    agent.hook("PreToolUse", **question, tool_input=asked)
    answers = asked | {"answers": {"Which?": "A"}}
    agent.hook("PostToolUse", **question, tool_input=answers, tool_response=answers)
    assert "changed" not in phone.expect("tool_result", session_id=sid)["payload"]


def test_it_is_said_whose_call_it_is(phone: Phone, agent: Terminal, sid: str) -> None:
    """Of five subagents of a type that run the same command, the one that asks is named."""
    ids = [f"{number}f6220138905b33" for number in range(5)]
    for id_ in ids:
        agent.tool("PreToolUse", "make", f"t{id_}", agent_id=id_, agent_type="general")
    agent.tool("PermissionRequest", "make", agent_id=ids[3], agent_type="general")
    asked = phone.expect("approval_required", session_id=sid)["payload"]
    assert asked["tool_call_id"] == f"t{ids[3]}"
    whose = [one["payload"]["agent"] for one in of(phone, "tool_call", sid)]
    assert whose == [{"id": id_, "type": "general"} for id_ in ids]
    assert asked["agent"] == whose[3]
    notice = phone.expect("notification", session_id=sid)["payload"]
    assert notice["title"].endswith("(subagent general 3f6220)")
    agent.tool("PostToolUse", "make", f"t{ids[3]}", agent_id=ids[3], agent_type="general")
    assert phone.expect("tool_result", session_id=sid)["payload"]["agent"] == whose[3]
    agent.tool("PermissionRequest", "make", agent_id=ids[0], agent_type="general")
    until(phone, sid, turn="waiting")
    agent.hook("SubagentStop", agent_id=ids[0], agent_type="general")
    until(phone, sid, turn="working", pending_approvals=0)


def test_a_call_of_an_earlier_turn_is_not_asked_about(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    """Esc sends no event; what was interrupted is not what asks in the next turn."""
    agent.tool("PreToolUse", "sleep 100", "t1")
    agent.hook("UserPromptSubmit", prompt="Do something else")
    agent.tool("PreToolUse", "make", "t2")
    agent.tool("PermissionRequest", "compact -- make")
    assert phone.expect("approval_required", session_id=sid)["payload"]["tool_call_id"] == "t2"


# after its end


@pytest.mark.spec("ws.session_started ws.session_end")
def test_what_goes_on_after_its_end_opens_the_session(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """The same session in two terminals that cannot be told apart: one ends, one goes on."""
    agent.hook("SessionEnd", reason="prompt_input_exit")
    until(phone, sid, session_status="closed")
    phone.forget()
    bridge.accept(post(sid, tool_call_id="late"), pre(sid) | {"timestamp": now(-60)})
    bridge.accept(prompt(sid, "old", timestamp=now(-60)))
    bridge.fence(phone)
    assert bridge.session(sid)["session_status"] == "closed", "what is late opens nothing"
    agent.tool("PreToolUse", "make deploy", "t1")
    phone.expect("session_started", session_id=sid)
    agent.tool("PermissionRequest", "make deploy")
    until(phone, sid, turn="waiting", session_status="active", pending_approvals=1)
    agent.tool("PostToolUse", "make deploy", "t1")
    until(phone, sid, turn="working", pending_approvals=0)
    assert "A rejected tool call ran" not in heard(phone, sid)


def test_what_happened_before_its_end_and_comes_an_hour_later_opens_nothing(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """By the time of the hook, of which its file tells, twice too."""
    agent.hook("SessionEnd", reason="other")
    until(phone, sid, session_status="closed")
    with bridge.asleep():
        before = {one.name for one in spooled(bridge)}
        agent.hook("UserPromptSubmit", prompt="old")
        agent.tool("PreToolUse", "make", "t1")
        agent.hook("SessionEnd", reason="other")
        for one in spooled(bridge):
            if one.name not in before:
                os.utime(one, (time.time() - 3600,) * 2)
    phone.collect(lambda: len(phone.events(sid)) >= 6, "they are stored")
    assert bridge.session(sid)["session_status"] == "closed"
    assert len(of(phone, "session_end", sid)) == 1


def spooled(bridge: Bridge) -> list[Path]:
    return [one for one in (bridge.data / "spool").iterdir() if one.name[0].isdigit()]


def test_two_terminals(bridge: Bridge, phone: Phone, agent: Terminal, open_terminal: Open) -> None:
    """What one asks is asked for as long as it lives, whatever the other one does."""
    sid, second = agent.session_id, open_terminal()
    second.hook("SessionStart", source="resume")
    second.hook("UserPromptSubmit", prompt="Go on")
    agent.tool("PreToolUse", "make deploy", "t1")
    agent.tool("PermissionRequest", "make deploy")
    until(phone, sid, turn="waiting")
    third = open_terminal()
    third.hook("SessionStart", source="resume")
    third.hook("Notification", notification_type="auth_success", message="ok")
    for ended in (second, third):
        ended.hook("SessionEnd", reason="prompt_input_exit")
        ended.kill()
    bridge.fence(phone)
    assert bridge.session(sid)["turn"] == "waiting"
    agent.tool("PostToolUse", "make deploy", "t1")
    until(phone, sid, turn="working", pending_approvals=0)
    told = [one["data"] for one in notifications(phone, sid, "approval_decided")]
    assert [(one["decision"], one["decided_by"]) for one in told] == [("approved", "agent")]
    assert of(phone, "session_end", sid) == []
    agent.hook("SessionEnd", reason="other")
    phone.expect("session_end", session_id=sid)


# states


def test_it_does_not_wait_for_a_person_while_something_runs(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """Neither idle nor told so: a call that is open, one that asks, a subagent that works."""
    task = {"id": "a1", "type": "subagent", "status": "running", "description": "Sub job"}
    agent.hook("Stop", last_assistant_message="It works.", background_tasks=[task])
    subagent = {"agent_id": "a1", "agent_type": "general"}
    agent.hook("Notification", **IDLE_PROMPT)
    agent.tool("PreToolUse", "make deploy", "t1", **subagent)
    agent.tool("PermissionRequest", "make deploy", **subagent)
    until(phone, sid, turn="waiting", pending_approvals=1)
    agent.hook("Notification", **IDLE_PROMPT)
    bridge.fence(phone)
    assert shown(phone, sid)["turn"] == "waiting"
    agent.tool("PostToolUse", "make deploy", "t1", **subagent)
    until(phone, sid, turn="working", pending_approvals=0)
    agent.hook("Notification", **IDLE_PROMPT)
    bridge.fence(phone)
    assert shown(phone, sid)["turn"] == "working"
    assert notifications(phone, sid, "agent_idle") == []
    agent.hook("SubagentStop", **subagent, background_tasks=[task])
    agent.hook("Notification", **IDLE_PROMPT)
    until(phone, sid, turn="idle")
    assert len(notifications(phone, sid, "agent_idle")) == 1


def bodies(phone: Phone, session_id: str) -> list[str]:
    return [one["body"] for one in notifications(phone, session_id, "task_complete")]


def test_a_stop_hook_that_sends_the_agent_on(
    bridge: Bridge, phone: Phone, agent: Terminal, sid: str
) -> None:
    """Twenty times: it is done once it is silent, and that is said once."""
    agent.hook("Stop", last_assistant_message="first", stop_hook_active=False)
    until(phone, sid, turn="idle")
    with bridge.asleep():  # however busy the machine is, there is no silence between them
        for number in range(20):
            agent.tool("PreToolUse", "make", f"t{number}")
            agent.tool("PostToolUse", "make", f"t{number}")
            agent.hook("Stop", last_assistant_message=f"round {number}", stop_hook_active=True)
    phone.collect(lambda: "round 19" in bodies(phone, sid), "the last Stop counts")
    assert bodies(phone, sid) == ["first", "round 19"]
    until(phone, sid, turn="idle")


def test_a_stop_that_nothing_can_follow_counts_at_once(
    phone: Phone, agent: Terminal, sid: str
) -> None:
    agent.hook("Stop", last_assistant_message="It is done", stop_hook_active=True)
    agent.hook("SessionEnd", reason="other")
    phone.collect(lambda: "The session ended" in heard(phone, sid), "its end")
    assert heard(phone, sid) == ["The agent is done", "The session ended"]


def test_an_mcp_server_asks(phone: Phone, agent: Terminal, sid: str) -> None:
    """It is told once, urgently, and the session waits until its next event."""
    agent.tool("PreToolUse", "ask", "t1")
    agent.tool("PermissionRequest", "ask")  # it was allowed: nothing says so yet
    until(phone, sid, turn="waiting", pending_approvals=1)
    asked = {"mcp_server_name": "tickets", "message": "Which project?", "mode": "form"}
    agent.hook("Elicitation", **asked)
    phone.collect(
        lambda: (shown(phone, sid)["doing"] or {}).get("summary") == "tickets: Which project?",
        "it says what is asked",
    )
    said = {"notification_type": "elicitation_dialog", "message": "Claude needs your input"}
    agent.hook("Notification", **said)
    until(phone, sid, turn="waiting")
    _, notice = notifications(phone, sid, "approval_required")
    assert (notice["data"], notice["priority"]) == ({"kind": "elicitation"}, "high")
    assert notice["body"] == "tickets: Which project?"
    agent.hook("ElicitationResult", mcp_server_name="tickets", action="accept", content={"p": "x"})
    said = {"notification_type": "elicitation_response", "message": "Elicitation response: accept"}
    agent.hook("Notification", **said)
    agent.tool("PostToolUse", "ask", "t1")
    until(phone, sid, turn="working", doing=None)
    kinds = [one["notification_type"] for one in notifications(phone, sid)]
    assert kinds == ["approval_required"] * 2 + ["approval_decided"], "an answer is no news"


# order


def test_what_waits_comes_first_and_old_idle_ones_are_folded(bridge: Bridge) -> None:
    """D65: then what works, then the newest; HTTP lists and counts all."""
    idle = [new_session() for _ in range(30)]
    for one in idle:
        bridge.accept(hook("SessionStart", one))
    with bridge.phones(1) as (phone,):
        phone.stay(SHORT["IDLE_SESSION_FOLD_SECONDS"] + 1)
    works, waits, newest = new_session(), new_session(), new_session()
    bridge.accept(prompt(works, 1), pre(waits, approval=True), prompt(new_session(), 2))
    bridge.accept(hook("SessionStart", newest))
    with bridge.phones(1) as (phone,):
        (ack,) = [one["payload"] for one in phone.messages if one["type"] == "connection_ack"]
    turns = [one["turn"] for one in ack["active_sessions"]]
    assert [turn for turn, _ in itertools.groupby(turns)] == ["waiting", "working", "idle"]
    ids = [one["session_id"] for one in ack["active_sessions"]]
    assert ids[0] == waits or turns.count("waiting") > 1
    listed = [one for one in ids if one in idle]
    assert listed == idle[:9:-1], "the newest twenty, newest first"
    assert ids.index(newest) < ids.index(idle[-1]) and ack["idle_sessions"] >= 10
    everything = bridge.get("/api/v1/sessions", bridge.admin_token).json()
    open_ones = [one for one in everything["sessions"] if one["session_status"] == "active"]
    assert len(open_ones) == len(ids) + ack["idle_sessions"]
    assert everything["total"] == len(everything["sessions"])
