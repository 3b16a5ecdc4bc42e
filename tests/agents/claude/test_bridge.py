"""claude-code as phones see it: run by a bridge, or by its user with hooks (D37, D38, D47, D60)."""

import base64
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sessions_app.agents.claude import program as claude
from tests.agents.claude_model import Model, Refused, Text, Tool
from tests.agents.conftest import surrounded
from tests.conformance import agents
from tests.conformance.approvals import decide, notifications, of
from tests.conformance.phone import Phone
from tests.conformance.terminal import take_back
from tests.conformance.test_attachments import PNG, fetch, sent
from tests.faults.quick import QuickBridge
from tests.servers import PATIENCE, wait_until


@pytest.fixture(scope="module")
def bridge(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
    place = tmp_path_factory.mktemp("bridge")
    with surrounded(place, model) as surroundings:
        settings = surroundings | {"CLAUDE_CODE_MAX_RETRIES": "10", "BRIDGE_AGENTS": claude.NAME}
        with QuickBridge(place / "bridge", **settings) as bridge:
            bridge.pin = bridge.pairing().pin
            yield bridge


def programs(bridge: QuickBridge) -> list[psutil.Process]:
    """The agent's processes that this bridge has started: they share its session's directory."""
    found, program = [], claude.program()
    assert program is not None
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(bridge.root.resolve()) and program.samefile(process.exe()):
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or not ours
            continue
    return found


def payloads(phone: Phone, session_id: str, type_: str) -> list[dict[str, Any]]:
    return [message["payload"] for message in of(phone, type_, session_id)]


def read_by_the_model(model: Model) -> str:
    """The last tool result that the model was given."""
    blocks = [
        block
        for message in model.requests[-1]["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return str([block for block in blocks if block["type"] == "tool_result"][-1]["content"])


def value_of(option: str, offered: dict[str, Any]) -> str:
    return str({one["id"]: one["value"] for one in offered["options"]}[option])


def choose(phone: Phone, session_id: str, option: str, value: str) -> str:
    """Choose a value of an option; the one that it has then."""
    chosen = {"session_id": session_id, "option_id": option, "value": value}
    return value_of(option, phone.request("session_set", chosen)["payload"])


def test_a_message_that_steers_the_turn(model: Model, bridge: QuickBridge) -> None:
    """Every phone learns that the agent has it before the turn ends, and one answer has both."""
    prompt = model.play("door", [Tool("Bash", {"command": "echo seen"})], [Text("Both seen.")])
    with bridge.phones(1) as (phone,):
        session = agents.begin(bridge, phone, agent=claude.NAME)
        agents.say(phone, session, prompt)
        asked = agents.question(phone, session)
        body = {"session_id": session, "content": "And the hinges?", "role": "user"}
        sent = phone.send("message", body | {"when": "now"})
        phone.expect("message_state", message_id=sent, state="given")
        decide(phone, session, asked["tool_call_id"], "approved")
        phone.expect("stream_end", session_id=session, finish_reason="stop")
        assert "And the hinges?" in str(model.requests[-1]["messages"])
        agents.end(phone, session)


def write(model: Model, bridge: QuickBridge, phone: Phone) -> tuple[str, str]:
    """Begin a session and have it write a file, which is approved; its id and the prompt."""
    file = bridge.root / f"{uuid.uuid4()}.txt"
    prompt = model.play(
        "write",
        [Text("I write. "), Tool("Write", {"file_path": str(file), "content": "one\n"})],
        [Text("Written.")],
    )
    session_id = agents.begin(bridge, phone, agent=claude.NAME)
    agents.say(phone, session_id, prompt)
    asked = agents.question(phone, session_id)
    assert (asked["tool"], asked["source"]) == ("Write", "agent_sdk")
    assert str(file) in asked["description"]
    recorded = decide(phone, session_id, asked["tool_call_id"], "approved")
    assert recorded["payload"]["forwarded"] is True
    phone.expect("stream_end", session_id=session_id, finish_reason="stop")
    assert file.read_text() == "one\n"
    return session_id, prompt


def test_a_conversation(model: Model, bridge: QuickBridge, phone: Phone) -> None:
    """A person approves an edit; the diff and the usage reach the phone, no secret the agent."""
    session_id, _ = write(model, bridge, phone)
    [program] = programs(bridge)
    environ = program.environ()
    [asked] = payloads(phone, session_id, "approval_required")
    [result] = payloads(phone, session_id, "tool_result")
    assert result["tool_call_id"] == asked["tool_call_id"] and result["result"]["success"]
    assert result["result"]["diff"].endswith("+one\n")
    usage = payloads(phone, session_id, "stream_end")[-1]["usage"]
    assert (usage["output_tokens"], usage["num_turns"]) == (40, 2)
    assert usage["total_cost_usd"] > 0
    assert agents.words(phone.messages).count("Written.") == 1
    assert agents.end(phone, session_id)["type"] == "session_end"
    wait_until(lambda: not programs(bridge))
    secrets = {bridge.hook_token, bridge.admin_token}
    assert not [name for name, value in environ.items() if value in secrets]
    assert not {"BRIDGE_HOOK_TOKEN", "BRIDGE_ADMIN_TOKEN", "BRIDGE_DATA_DIR"} & environ.keys()


def test_a_model_that_is_overloaded(model: Model, bridge: QuickBridge) -> None:
    """Told while it lasts, with low priority, to every device; the answer comes all the same."""
    over = threading.Event()
    busy = Refused(529, "Overloaded", "overloaded_error", over)
    prompt = model.play("busy", busy, [Text("At last.")])
    with bridge.phones(2) as (phone, other):
        session_id = agents.begin(bridge, phone, agent=claude.NAME)
        agents.say(phone, session_id, prompt)
        told = other.expect("notification", session_id=session_id)["payload"]
        over.set()
        assert (told["notification_type"], told["priority"]) == ("agent_notification", "low")
        assert told["body"] == "The model is overloaded (529); try 1 of 10 in 1 s"
        phone.expect("stream_end", session_id=session_id, finish_reason="stop")
        assert agents.words(phone.messages) == "At last."
        assert not notifications(other, session_id, "error")
        agents.end(phone, session_id)


def test_a_conversation_of_which_the_log_has_nothing(
    model: Model, bridge: QuickBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D60: who is new to it sees the last of it from the agent's transcript, text only."""
    with bridge.phones() as [phone]:
        session_id, prompt = write(model, bridge, phone)
        agents.ask(phone, session_id, "play:hello")
    bridge.stop()
    bridge.start()
    with bridge.phones() as [late], monkeypatch.context() as short:
        late.join(session_id)
        short.setitem(bridge.settings, "BRIDGE_QUEUE_TTL_SECONDS", "1")

        def forgotten() -> bool:
            bridge.manage("prune")
            return not agents.log_of(late, session_id)

        wait_until(forgotten)
    with bridge.phones() as [late]:
        late.join(session_id)
        paused = late.expect("replay_buffer", session_id=session_id)["payload"]
        rest = late.expect("replay_buffer", session_id=session_id)["payload"]
        ready = agents.start(late, bridge.root, session_id, resume=True, agent=claude.NAME)
        assert ready["type"] == "session_ready", ready
        resumed = late.expect("replay_buffer", session_id=session_id)["payload"]
        agents.end(late, session_id)
    assert (paused["source"], paused["complete"], rest["messages"]) == ("agent", False, [])
    assert resumed == paused
    events = [one["payload"] for one in paused["messages"] if one["type"] == "agent_event"]
    assert [event["payload"]["prompt"] for event in events] == [prompt, "play:hello"]
    assert agents.words(paused["messages"]) == "I write.Written.Hello from the scripted model."


# command → whether it went well, None when it was not let run
CALLS = {"echo seen": True, "ls nowhere": False, "touch made": None}
# the last one asks for permission
USES = ["PreToolUse", "PostToolUse", "PreToolUse", "PostToolUse", "PreToolUse", "PreToolUse"]
STORY = ["SessionStart", "UserPromptSubmit", *USES, "Stop", "SessionEnd"]


@pytest.mark.usefixtures("surroundings")
def test_a_run_of_the_program_reaches_a_phone(model: Model, tmp_path: Path) -> None:
    """A command that works, one that fails, and one that it asks about, which nobody allows."""
    settings, directory, sid = tmp_path / "settings.json", tmp_path / "work", str(uuid.uuid4())
    directory.mkdir()
    look, *calls = [[Tool("Bash", {"command": command})] for command in CALLS]
    prompt = model.play("echo", [Text("I will look. "), *look], *calls, [Text("That was it.")])
    options = ["-p", prompt, "--settings", str(settings), "--session-id", sid]
    with QuickBridge(tmp_path / "bridge") as bridge, bridge.phones() as [phone]:
        bridge.manage("install_hooks", "--settings", str(settings), "--yes")
        done = subprocess.run(
            [str(claude.program()), *options, "--allowedTools", "Bash(echo:*)"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "That was it."), done
        phone.expect("session_end", session_id=sid)
        phone.join(sid)
        phone.collect(lambda: len(phone.events(sid)) >= len(STORY), "all events")
        session = bridge.session(sid)
    assert (session["status"], session["hook_count"]) == ("closed", len(STORY))
    told = [event["payload"] for event in phone.events(sid)]
    assert [event["event"] for event in told] == STORY
    start, said, *uses, stop, _ = (event["payload"] for event in told)
    assert (start["working_directory"], said["prompt"]) == (str(directory), prompt)
    for (command, success), before, after in zip(CALLS.items(), uses[::2], uses[1::2], strict=True):
        assert (before["tool"], before["params"]["command"]) == ("Bash", command)
        assert (after["params"]["command"], after.get("success")) == (command, success)
    asks = [use["requires_approval"] for use in uses if "requires_approval" in use]
    assert asks == [False, False, False, True]
    assert stop["reason"] == "task_completed" and not (directory / "made").exists()

    worked, failed, asked = [one["tool_call_id"] for one in payloads(phone, sid, "tool_call")]
    results = payloads(phone, sid, "tool_result")
    ended = [(one["tool_call_id"], one["result"]["success"]) for one in results]
    assert ended == [(worked, True), (failed, False)]
    [question] = payloads(phone, sid, "approval_required")
    assert (question["tool_call_id"], question["source"]) == (asked, "hooks")
    assert question["params"]["command"] == "touch made"
    [decided] = (one["data"] for one in notifications(phone, sid, "approval_decided"))
    assert (decided["decision"], decided["decided_by"]) == ("rejected", "agent")


def test_a_plan_that_lets_it_edit(model: Model, bridge: QuickBridge, phone: Phone) -> None:
    """D69: plan first, then its edits are approved by the rule that came with the plan."""
    file = bridge.root / f"{uuid.uuid4()}.txt"
    prompt = model.play(
        "planned",
        [Tool("ExitPlanMode", {"plan": "# The plan"})],
        [Tool("Write", {"file_path": str(file), "content": "one\n"})],
        [Tool("Bash", {"command": "touch made"})],
        [Text("Done.")],
    )
    session_id = agents.begin(bridge, phone, agent=claude.NAME)
    assert choose(phone, session_id, "plan", "on") == "on"
    agents.say(phone, session_id, prompt)
    asked = agents.question(phone, session_id)
    assert asked["tool"] == "ExitPlanMode"
    assert [one["id"] for one in asked["remember"]] == ["edits"]
    decide(phone, session_id, asked["tool_call_id"], "approved", remember="edits")
    asked = phone.expect("approval_required", session_id=session_id, tool="Bash")["payload"]
    [by_rule] = [one for one in payloads(phone, session_id, "tool_call") if "rule" in one]
    assert (by_rule["tool"], by_rule["decided_by"]) == ("Write", "rule")
    assert file.read_text() == "one\n"
    decide(phone, session_id, asked["tool_call_id"], "rejected")
    phone.expect("stream_end", session_id=session_id, finish_reason="stop")
    assert not (bridge.root / "made").exists()
    agents.end(phone, session_id)


def test_a_rule_until_it_is_taken_back(model: Model, bridge: QuickBridge, phone: Phone) -> None:
    """D68: the next equal call runs unasked; then it asks, and the model reads why it may not."""
    made, reason = bridge.root / f"made-{uuid.uuid4()}", "Not on a Friday."
    prompt = model.play(
        "rule", [Tool("Bash", {"command": f"touch {made.name}"})], [Text("So it is.")]
    )
    session_id = agents.begin(bridge, phone, agent=claude.NAME)
    agents.say(phone, session_id, prompt)
    asked = agents.question(phone, session_id)
    decide(phone, session_id, asked["tool_call_id"], "approved", remember="exact")
    phone.expect("stream_end", session_id=session_id, finish_reason="stop")
    made.unlink()

    agents.ask(phone, session_id, prompt)
    [call] = [one for one in payloads(phone, session_id, "tool_call") if "rule" in one]
    assert call["decided_by"] == "rule" and call["params"] == asked["params"]
    result = payloads(phone, session_id, "tool_result")[-1]
    assert result["tool_call_id"] == call["tool_call_id"] and result["result"]["success"]
    assert len(payloads(phone, session_id, "approval_required")) == 1
    made.unlink()

    take_back(phone, session_id, call["rule"]["id"])
    agents.say(phone, session_id, prompt)
    asked = agents.question(phone, session_id)
    decide(phone, session_id, asked["tool_call_id"], "rejected", reason=reason)
    phone.expect("stream_end", session_id=session_id, finish_reason="stop")
    assert reason in read_by_the_model(model) and not made.exists()
    agents.end(phone, session_id)


def test_a_plan_that_is_refused_and_then_approved(
    model: Model, bridge: QuickBridge, phone: Phone
) -> None:
    """D69: why it is refused the model reads; approved without a rule, its edits still ask."""
    file, reason = bridge.root / f"{uuid.uuid4()}.txt", "Say how you test it."
    prompt = model.play(
        "refused_plan",
        [Tool("ExitPlanMode", {"plan": "# The plan"})],
        [Tool("ExitPlanMode", {"plan": "# The plan, tested"})],
        [Tool("Write", {"file_path": str(file), "content": "one\n"})],
        [Text("Done.")],
    )
    session_id = agents.begin(bridge, phone, agent=claude.NAME)
    assert choose(phone, session_id, "plan", "on") == "on"
    agents.say(phone, session_id, prompt)
    plan = agents.question(phone, session_id)
    decide(phone, session_id, plan["tool_call_id"], "rejected", reason=reason)
    plan = agents.question(phone, session_id)
    assert plan["tool"] == "ExitPlanMode" and reason in read_by_the_model(model)
    decide(phone, session_id, plan["tool_call_id"], "approved")
    asked = agents.question(phone, session_id)
    assert asked["tool"] == "Write" and not file.exists()
    decide(phone, session_id, asked["tool_call_id"], "approved")
    phone.expect("stream_end", session_id=session_id, finish_reason="stop")
    assert file.read_text() == "one\n"

    def plans_no_more() -> bool:
        return value_of("plan", payloads(phone, session_id, "session_options")[-1]) == "off"

    phone.collect(plans_no_more, "the plan is over")
    agents.end(phone, session_id)


def test_another_model(model: Model, bridge: QuickBridge, phone: Phone) -> None:
    """D69: from the next message on it is the model that a phone has chosen."""
    session_id = agents.begin(bridge, phone, agent=claude.NAME)
    agents.ask(phone, session_id, "play:hello")
    assert "haiku" not in model.requests[-1]["model"]
    assert choose(phone, session_id, "model", "haiku") == "haiku"
    agents.ask(phone, session_id, "play:hello")
    assert "haiku" in model.requests[-1]["model"]


def test_pictures_and_files_reach_the_model(
    model: Model, bridge: QuickBridge, phone: Phone
) -> None:
    """D70: a picture as one; of a file a copy, which the agent reads without asking. One that it
    reads itself reaches the phone.
    """
    session_id = agents.begin(bridge, phone, agent=claude.NAME)
    picture = sent(bridge, session_id, name="a.png")["attachment_id"]
    note = sent(bridge, session_id, b"The word is heron.", name="note.txt")["attachment_id"]

    def read(body: dict[str, Any]) -> Tool:
        [path] = re.findall(r"/\S+/note\.txt", str(body["messages"]))
        return Tool("Read", {"file_path": path})

    (shown := bridge.root / "shown.png").write_bytes(PNG)
    again = Tool("Read", {"file_path": str(shown)})
    content = model.play("look", [read], [again], [Text("Seen.")])
    body = {"session_id": session_id, "content": content, "role": "user"}
    phone.send("message", body | {"attachments": [picture, note]})
    phone.expect("stream_end", session_id=session_id, finish_reason="stop")
    assert agents.words(phone.messages).endswith("Seen.")
    blocks = [
        block
        for message in model.requests[-1]["messages"]
        for block in message["content"]
        if isinstance(block, dict)
    ]
    source = next(block["source"] for block in blocks if block["type"] == "image")
    assert (source["media_type"], base64.b64decode(source["data"])) == ("image/png", PNG)
    result = next(block for block in blocks if block["type"] == "tool_result")
    assert "The word is heron." in str(result)
    [kept] = payloads(phone, session_id, "tool_result")[1]["result"]["pictures"]
    assert fetch(bridge, session_id, kept["attachment_id"]).body.startswith(PNG[:8])
    assert not payloads(phone, session_id, "approval_required")
    agents.end(phone, session_id)
