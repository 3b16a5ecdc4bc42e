"""The real program in a terminal, watched from a phone by its hooks (D65)."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.claude import program as claude
from tests.agents.claude_model import Model, Text, Tool
from tests.agents.conftest import surrounded
from tests.conformance.approvals import notifications, of
from tests.conformance.phone import Phone
from tests.conformance.terminal import until
from tests.faults.quick import QuickBridge
from tests.run.terminal import CONTROLS
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]

# a Stop hook that sends the agent on, as many times as its file has lines
GO_ON = """
read -r left < left || exit 0
[ "$left" = 0 ] && exit 0
echo $((left - 1)) > left
echo '{"decision": "block", "reason": "Go on"}'
"""
LONG = "python3 -c 'import time; time.sleep(600)'"


class Desk:
    """A claude-code in a terminal of its own, with the hooks that `make hooks` installs."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        key = {"approved": [os.environ["ANTHROPIC_API_KEY"][-20:]], "rejected": []}
        known = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": key}
        known["projects"] = {str(directory): {"hasTrustDialogAccepted": True}}
        # anew each time: at a later start it proposes things
        Path(os.environ["CLAUDE_CONFIG_DIR"], ".claude.json").write_text(json.dumps(known))
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.shown = b""
        self._pressed = 0.0  # when a dialog was last answered
        self.answered = 0  # what was shown of the dialogs that have been answered
        environment = os.environ | {"TERM": "xterm-256color", "DISABLE_AUTOUPDATER": "1"}
        self.process = subprocess.Popen(
            [str(claude.program()), *arguments],
            cwd=directory,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        threading.Thread(target=self._read, daemon=True).start()
        wait_until(lambda: re.search("(manual|plan)modeon", self.text()), self.tail)

    def _read(self) -> None:
        try:
            while data := os.read(self._ours, 65536):
                self.shown += data
        except OSError:  # the program has ended
            return

    def text(self, since: int = 0) -> str:
        """What was shown, without blanks, which may be moves of the cursor."""
        return "".join(CONTROLS.sub(b"", self.shown[since:]).decode(errors="replace").split())

    def tail(self) -> str:
        return self.shown[-4000:].decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def say(self, text: str) -> None:
        """Type a line; Enter comes once it is there, or it would be taken for a part of it."""
        seen = len(self.shown)
        self.press(text)
        wait_until(lambda: "".join(text.split()) in self.text(seen), self.tail)
        self.press("\r")

    def allow(self) -> None:
        self.answer("\r")

    def answer(self, key: str) -> None:
        """Press a key in the dialog, which may come after the hook has asked."""
        wait_until(lambda: "Doyouwant" in self.text(self.answered), self.tail)
        wait_until(lambda: self.status() == "waiting", self.tail)
        wait_until(lambda: self._answered(key), self.tail)
        self.answered = len(self.shown)

    def _answered(self, key: str) -> bool:
        """Press it now and then while the program says that its dialog waits: it may miss one."""
        waits = self.status() == "waiting"
        if waits and time.monotonic() - self._pressed > 2:
            self._pressed = time.monotonic()
            self.press(key)
        return not waits

    def status(self) -> str:
        """What the program's registry says that it does."""
        place = Path(os.environ["CLAUDE_CONFIG_DIR"], "sessions", f"{self.process.pid}.json")
        return str(json.loads(place.read_text())["status"])

    def end(self) -> None:
        self.process.kill()
        self.process.wait(180)


Open = Callable[..., Desk]


@pytest.fixture(scope="module")
def bridge(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
    place = tmp_path_factory.mktemp("bridge")
    with (
        surrounded(place, model) as surroundings,
        QuickBridge(place / "bridge", BRIDGE_AGENTS="claude-code") as bridge,
    ):
        bridge.pin = bridge.pairing().pin
        config = Path(surroundings["CLAUDE_CONFIG_DIR"])
        config.mkdir(exist_ok=True)
        settings = config / "settings.json"
        stop = {"type": "command", "command": GO_ON}
        mine = {"permissions": {"defaultMode": "default"}, "hooks": {"Stop": [{"hooks": [stop]}]}}
        settings.write_text(json.dumps(mine))
        bridge.manage("install_hooks", "--settings", str(settings), "--yes")
        for command in (["init", "-qb", "main"], ["commit", "-q", "--allow-empty", "-m", "one"]):
            named = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
            subprocess.run(["git", *named, *command], cwd=bridge.root, check=True)
        yield bridge


@pytest.fixture
def sit_down(bridge: QuickBridge) -> Iterator[Open]:
    """Open the program in a terminal; it ends with the test."""
    with ExitStack() as ending:

        def open_(*arguments: str) -> Desk:
            desk = Desk(bridge.root.resolve(), *arguments)
            ending.callback(desk.end)
            return desk

        yield open_


@pytest.fixture
def desk(sit_down: Open) -> Desk:
    return sit_down()


def begin(phone: Phone, desk: Desk, prompt: str) -> str:
    """Give the program its first prompt; its session, which the phone has joined."""
    desk.say(prompt)
    started = phone.expect("session_started")["payload"]
    session_id = str(started["session_id"])
    phone.join(session_id)
    return session_id


def asked(phone: Phone, session_id: str) -> dict[str, Any]:
    found: dict[str, Any] = phone.expect("approval_required", session_id=session_id)["payload"]
    return found


def test_esc_while_a_command_runs(model: Model, phone: Phone, desk: Desk) -> None:
    """No hook says so; the program's registry does."""
    prompt = model.play("long", [Tool("Bash", {"command": LONG})], [Text("Over.")])
    sid = begin(phone, desk, prompt)
    asked(phone, sid)
    desk.allow()
    wait_until(lambda: "Running" in desk.text() or "esctointerrupt" in desk.text(), desk.tail)
    desk.press("\x1b")
    view = until(phone, sid, turn="idle", doing=None, pending_approvals=0)
    assert view["session_status"] == "active"
    assert notifications(phone, sid, "task_complete") == []


def test_kill(model: Model, phone: Phone, desk: Desk) -> None:
    prompt = model.play("long", [Tool("Bash", {"command": LONG})], [Text("Over.")])
    sid = begin(phone, desk, prompt)
    asked(phone, sid)
    desk.process.kill()
    assert phone.expect("session_end", session_id=sid)["payload"]["reason"] == "error"
    until(phone, sid, session_status="closed", pending_approvals=0)


def test_exit(model: Model, phone: Phone, desk: Desk) -> None:
    sid = begin(phone, desk, model.play("word", [Text("A word.")]))
    until(phone, sid, turn="idle")
    desk.say("/exit")
    assert phone.expect("session_end", session_id=sid)["payload"]["reason"] == "user_request"


def test_a_work_tree(model: Model, bridge: QuickBridge, phone: Phone, desk: Desk) -> None:
    """The directory, the branch and the files are the work tree's as soon as it is there."""
    prompt = model.play("tree", [Tool("EnterWorktree", {"name": "fix"})], [Text("There.")])
    sid = begin(phone, desk, prompt)
    top = bridge.root.resolve()
    phone.collect(
        lambda: any(one["working_directory"] != str(top) for one in phone.updates), desk.tail()
    )
    view = until(phone, sid, turn="idle")
    assert view["working_directory"].startswith(f"{top}/.claude/worktrees/fix")
    status = phone.request("git_status_request", {"session_id": sid})["payload"]
    assert status["repository"] == view["working_directory"] and status["branch"] != "main"


def test_a_stop_hook_that_continues(
    model: Model, bridge: QuickBridge, phone: Phone, desk: Desk
) -> None:
    """Three more rounds: it is done when it is, which is told once more than at the first Stop."""
    left = bridge.root / "left"
    left.write_text("3\n")
    sid = begin(phone, desk, model.play("rounds", [Text("A round.")]))
    wait_until(lambda: left.read_text() == "0\n", desk.tail)
    phone.collect(lambda: len(notifications(phone, sid, "task_complete")) == 2, "the last Stop")
    until(phone, sid, turn="idle")
    stops = [one for one in of(phone, "agent_event", sid) if one["payload"]["event"] == "Stop"]
    active = [one["payload"]["payload"]["context"]["stop_hook_active"] for one in stops]
    assert active == [False, True, True, True]


def test_two_terminals(model: Model, phone: Phone, desk: Desk, sit_down: Open) -> None:
    """One ends; what the other asks is asked for, and nobody is alarmed when it runs."""
    sid = begin(phone, desk, model.play("word", [Text("A word.")]))
    until(phone, sid, turn="idle")
    # the program writes in its own time what another one goes on with
    kept = Path(os.environ["CLAUDE_CONFIG_DIR"]).glob
    wait_until(lambda: any("A word." in one.read_text() for one in kept(f"projects/*/{sid}.jsonl")))
    second = sit_down("--resume", sid)
    prompt = model.play("touch", [Tool("Bash", {"command": "touch made"})], [Text("Done.")])
    second.say(prompt)
    asked(phone, sid)
    desk.say("/exit")
    desk.process.wait(180)
    until(phone, sid, turn="waiting", session_status="active", pending_approvals=1)
    second.allow()
    phone.expect("tool_result", session_id=sid)
    until(phone, sid, turn="idle")
    told = [one["data"] for one in notifications(phone, sid, "approval_decided")]
    assert [(one["decision"], one["decided_by"]) for one in told] == [("approved", "agent")]
    assert not [one for one in notifications(phone, sid) if one["priority"] == "high"][1:]


def test_a_subagent_that_asks(model: Model, phone: Phone, desk: Desk) -> None:
    """It is named, and the session waits although its own agent has stopped."""
    job = model.play("touch", [Tool("Bash", {"command": "touch made"})], [Text("Done.")])
    given = {"description": "Sub job", "prompt": job, "subagent_type": "general-purpose"}
    sid = begin(phone, desk, model.play("sent", [Tool("Agent", given)], [Text("Sent.")]))
    question = asked(phone, sid)
    assert question["agent"]["type"] == "general-purpose" and question["agent"]["id"]
    until(phone, sid, turn="waiting", pending_approvals=1)
    desk.allow()
    result = phone.expect("tool_result", session_id=sid, tool_call_id=question["tool_call_id"])
    assert result["payload"]["agent"] == question["agent"]
    until(phone, sid, turn="idle", pending_approvals=0)
