"""The real program in a terminal: taken over, given back, and left when it goes on (D67)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.agents.claude.test_terminal import Desk, Open, begin, bridge, desk, sit_down
from tests.agents.claude_model import Model, Text, Tool
from tests.conformance.agents import ask, say, words
from tests.conformance.desk import give_back, refused, take
from tests.conformance.phone import Message, Phone
from tests.conformance.terminal import heard, until
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

__all__ = ["bridge", "desk", "sit_down"]
pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]


def conversation(session_id: str) -> list[str]:
    """What was said in the one branch that the program shows, oldest first."""
    place = Path(os.environ["CLAUDE_CONFIG_DIR"], "projects")
    files = place.glob(f"*/{session_id}.jsonl")
    # whole lines: it may be writing one
    written = [file.read_text().rpartition("\n")[0] for file in files]
    lines = [json.loads(line) for text in written for line in text.splitlines()]
    entries = {one["uuid"]: one for one in lines if one.get("type") in ("user", "assistant")}
    last, found = next(reversed(entries), None), list[str]()
    links = {one["uuid"]: one.get("parentUuid") for one in lines if "uuid" in one}
    while last:
        if last in entries:
            found += texts(entries[last]["message"]["content"])
        last = links.get(last)
    return found[::-1]


def texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part.get("type") == "text"]


def ready(answer: Message) -> None:
    assert answer["type"] == "session_ready", answer


def idle(phone: Phone, model: Model, desk: Desk) -> str:
    sid = begin(phone, desk, model.play("desk", [Text("Said at the desk.")]))
    until(phone, sid, turn="idle")
    # which it writes some time later, as it does that it is idle
    wait_until(lambda: conversation(sid) and desk.status() == "idle", desk.tail)
    return sid


def test_an_idle_one_is_ended_and_goes_on_here_and_back(
    model: Model, bridge: QuickBridge, phone: Phone, desk: Desk, sit_down: Open
) -> None:
    """Whole history in one branch; the terminal shows the phone's turns, and takes it back."""
    sid = idle(phone, model, desk)
    error = refused(take(phone, sid), "SESS_AT_THE_DESK")
    assert error["details"] == {"status": "idle"} and desk.process.poll() is None
    ready(take(phone, sid, "end_terminal"))
    assert desk.process.wait(60) in (0, 143)
    prompt = model.play("phone", [Text("Said on the phone.")])
    assert words(ask(phone, sid, prompt)) == "Said on the phone."
    said = conversation(sid)
    assert "Said at the desk." in said and said[-2:] == [prompt, "Said on the phone."]
    assert "session_end" not in {one["type"] for one in phone.messages}
    give_back(phone, sid)
    until(phone, sid, kind="observed", session_status="paused")
    again = sit_down("--resume", sid)
    wait_until(lambda: "Saidonthephone." in again.text(), again.tail)
    until(phone, sid, kind="observed", session_status="active")
    again.say(model.play("more", [Text("And at the desk again.")]))
    until(phone, sid, turn="idle")
    wait_until(lambda: conversation(sid)[-1] == "And at the desk again.", again.tail)
    assert "Said on the phone." in conversation(sid)


def test_one_that_is_gone(model: Model, phone: Phone, desk: Desk) -> None:
    sid = idle(phone, model, desk)
    desk.say("/exit")
    desk.process.wait(60)
    until(phone, sid, session_status="closed")
    ready(take(phone, sid))
    prompt = model.play("phone", [Text("Said on the phone.")])
    assert words(ask(phone, sid, prompt)) == "Said on the phone."


def test_one_that_asks(model: Model, phone: Phone, desk: Desk) -> None:
    """The dialog goes with the program; the call did not run."""
    prompt = model.play("touch", [Tool("Bash", {"command": "touch taken"})], [Text("Done.")])
    sid = begin(phone, desk, prompt)
    phone.expect("approval_required", session_id=sid)
    wait_until(lambda: "Doyouwant" in desk.text(), desk.tail)
    ready(take(phone, sid, "end_terminal"))
    data = phone.expect("notification", notification_type="approval_decided")["payload"]["data"]
    assert (data["decision"], data["reason"]) == ("rejected", "taken_over")
    assert desk.process.wait(60) in (0, 143)
    prompt = model.play("phone", [Text("Said on the phone.")])
    assert words(ask(phone, sid, prompt)) == "Said on the phone."


def test_a_busy_one_is_left_alone(model: Model, phone: Phone, desk: Desk) -> None:
    command = "python3 -c 'import time; time.sleep(600)'"
    prompt = model.play("long", [Tool("Bash", {"command": command})], [Text("Over.")])
    sid = begin(phone, desk, prompt)
    phone.expect("approval_required", session_id=sid)
    desk.allow()
    wait_until(lambda: "esctointerrupt" in desk.text(), desk.tail)
    error = refused(take(phone, sid, "end_terminal"), "SESS_AT_THE_DESK")
    assert error["details"] == {"status": "busy"} and desk.process.poll() is None


def test_the_desk_goes_on_while_the_bridge_answers(
    model: Model, bridge: QuickBridge, phone: Phone, desk: Desk, sit_down: Open
) -> None:
    """The bridge leaves its turn at once; what the desk says then is in the one branch."""
    sid = idle(phone, model, desk)
    ready(take(phone, sid, "end_terminal"))
    prompt = model.play("asks", [Tool("Bash", {"command": "touch never"})], [Text("Done.")])
    say(phone, sid, prompt)
    phone.expect("approval_required", session_id=sid)
    again = sit_down("--resume", sid)
    until(phone, sid, kind="observed", session_status="active", pending_approvals=0)
    phone.collect(lambda: "Continued at the machine" in heard(phone, sid), "it is said")
    again.say(model.play("back", [Text("The desk has it.")]))
    wait_until(lambda: conversation(sid)[-1] == "The desk has it.", again.tail)
    assert not (bridge.root / "never").exists()


def test_past_sessions(model: Model, bridge: QuickBridge, phone: Phone, desk: Desk) -> None:
    """Those of the program's own store, one that runs among them."""
    sid = idle(phone, model, desk)
    asked = {"agent": "claude-code", "directory": str(bridge.root), "limit": 100}
    found = phone.request("history_list", asked)["payload"]["sessions"]
    (one,) = [one for one in found if one["session_id"] == sid]
    assert one["live"] and "desk" in one["title"]
    assert one["working_directory"] == str(bridge.root.resolve())
