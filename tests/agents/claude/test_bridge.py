"""claude-code in a running bridge, from a phone (D35, D37, D38, D60)."""

import threading
from collections.abc import Iterator

import psutil
import pytest

from sessions_app.agents.claude import agent
from tests.agents.claude_model import Model, Refused, Text, Tool
from tests.agents.conftest import surrounded
from tests.conformance import agents
from tests.conformance.approvals import decide, notifications
from tests.conformance.bridge import eventually
from tests.faults.quick import QuickBridge, nursery


@pytest.fixture(scope="module")
def bridge(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
    place = tmp_path_factory.mktemp("bridge")
    with surrounded(place, model) as surroundings:
        settings = surroundings | {"CLAUDE_CODE_MAX_RETRIES": "10"}
        with QuickBridge(place / "bridge", **settings) as bridge:
            bridge.pin = bridge.pairing().pin
            yield bridge


def programs(bridge: QuickBridge) -> list[psutil.Process]:
    """The agent's processes that this bridge has started: they share its session's directory."""
    found, program = [], agent.program()
    assert program is not None
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(bridge.root.resolve()) and program.samefile(process.exe()):
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or not ours
            continue
    return found


def test_a_conversation(model: Model, bridge: QuickBridge) -> None:
    """A person approves an edit; the diff and the usage reach the phone, no secret the agent."""
    file = bridge.root / "new.txt"
    prompt = model.play(
        "write",
        [Text("I write. "), Tool("Write", {"file_path": str(file), "content": "one\n"})],
        [Text("Written.")],
    )
    with bridge.phones() as [phone]:
        session_id = agents.begin(bridge, phone, agent=agent.NAME)
        [program] = programs(bridge)
        environ = program.environ()
        agents.say(phone, session_id, prompt)
        asked = phone.expect("approval_required", session_id=session_id)["payload"]
        assert (asked["tool"], asked["source"]) == ("Write", "agent_sdk")
        assert str(file) in asked["description"]
        recorded = decide(phone, session_id, asked["tool_call_id"], "approved")
        assert recorded["payload"]["forwarded"] is True
        result = phone.expect("tool_result", session_id=session_id)["payload"]
        assert result["tool_call_id"] == asked["tool_call_id"] and result["result"]["success"]
        assert result["result"]["diff"].endswith("+one\n")
        end = phone.expect("stream_end", session_id=session_id, finish_reason="stop")["payload"]
        assert end["usage"]["output_tokens"] == 40
        assert agents.words(phone.messages).count("Written.") == 1
        assert agents.end(phone, session_id)["type"] == "session_end"
        assert eventually(lambda: not programs(bridge))
    assert file.read_text() == "one\n"
    secrets = {bridge.hook_token, bridge.admin_token}
    assert not [name for name, value in environ.items() if value in secrets]
    assert not {"BRIDGE_HOOK_TOKEN", "BRIDGE_ADMIN_TOKEN", "BRIDGE_DATA_DIR"} & environ.keys()


def test_a_model_that_is_overloaded(model: Model, bridge: QuickBridge) -> None:
    """Told while it lasts, with low priority, to every device; the answer comes all the same."""
    over = threading.Event()
    busy = Refused(529, "Overloaded", "overloaded_error", over)
    prompt = model.play("busy", busy, [Text("At last.")])
    with bridge.phones(2) as (phone, other):
        session_id = agents.begin(bridge, phone, agent=agent.NAME)
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
    file = bridge.root / "history.txt"
    prompt = model.play(
        "remember",
        [Text("I write. "), Tool("Write", {"file_path": str(file), "content": "one\n"})],
        [Text("Written.")],
    )
    with bridge.phones() as [phone]:
        session_id = agents.begin(bridge, phone, agent=agent.NAME)
        agents.say(phone, session_id, prompt)
        asked = phone.expect("approval_required", session_id=session_id)["payload"]
        decide(phone, session_id, asked["tool_call_id"], "approved")
        phone.expect("stream_end", session_id=session_id, finish_reason="stop")
        agents.ask(phone, session_id, "play:hello")
    bridge.stop()
    bridge.start()
    with bridge.phones() as [late], monkeypatch.context() as short:
        late.join(session_id)
        short.setitem(bridge.settings, "BRIDGE_QUEUE_TTL_SECONDS", "1")

        def forgotten() -> bool:
            bridge.manage("prune")
            return not agents.log_of(late, session_id)

        assert eventually(forgotten)
        nursery.forget(bridge.environment)
    with bridge.phones() as [late]:
        late.join(session_id)
        paused = late.expect("replay_buffer", session_id=session_id)["payload"]
        rest = late.expect("replay_buffer", session_id=session_id)["payload"]
        ready = agents.start(late, bridge.root, session_id, resume=True, agent=agent.NAME)
        assert ready["type"] == "session_ready", ready
        resumed = late.expect("replay_buffer", session_id=session_id)["payload"]
        agents.end(late, session_id)
    assert (paused["source"], paused["complete"], rest["messages"]) == ("agent", False, [])
    assert resumed == paused
    events = [one["payload"] for one in paused["messages"] if one["type"] == "agent_event"]
    assert [event["payload"]["prompt"] for event in events] == [prompt, "play:hello"]
    assert agents.words(paused["messages"]) == "I write.Written.Hello from the scripted model."
