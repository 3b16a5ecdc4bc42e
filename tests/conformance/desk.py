"""A scripted Claude Code: at the desk with its hooks, and under the bridge as its agent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hooks_app.producer.shell_command import hook_command
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Message, Phone
from tests.conformance.terminal import SOONER, Terminal
from tests.faults.quick import QuickBridge

# What it says goes into its transcript. `wait` is a turn that only an interrupt ends, `ask` a call
# that waits for a person. The second line is for the shell: a path may have a blank.
UNDER_THE_BRIDGE = """#!/bin/sh
"exec" "{python}" "-IS" "$0" "$@"
import json, os, pathlib, re, sys, uuid

def say(type_, **fields):
    print(json.dumps({{"type": type_, "session_id": own, **fields}}), flush=True)

def keep(role, text):
    place = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"], "projects")
    place /= re.sub("[^a-zA-Z0-9]", "-", os.getcwd())
    place.mkdir(parents=True, exist_ok=True)
    line = {{"type": role, "sessionId": own, "cwd": os.getcwd(), "uuid": str(uuid.uuid4())}}
    path = place / (own + ".jsonl")
    before = path.read_text().splitlines() if path.exists() else []
    line["parentUuid"] = json.loads(before[-1])["uuid"] if before else None
    with open(path, "a") as file:
        file.write(json.dumps(line | {{"message": {{"role": role, "content": text}}}}) + "\\n")

def result(text=""):
    counts = {{"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "is_error": False}}
    say("result", subtype="success", result=text, **counts)

resumed = [word[9:] for word in sys.argv if word.startswith("--resume=")]
own = resumed[0] if resumed else str(uuid.uuid4())
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "control_request":
        response = {{"subtype": "success", "request_id": message["request_id"], "response": {{}}}}
        print(json.dumps({{"type": "control_response", "response": response}}), flush=True)
        if message["request"]["subtype"] == "interrupt":
            keep("assistant", "interrupted")
            result()
    elif message["type"] == "user":
        text = message["message"]["content"]
        say("system", subtype="init", cwd=os.getcwd(), tools=[], model="m")
        keep("user", text)
        if text == "wait":
            continue
        if text == "ask":
            asked = {{"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t9"}}
            asked |= {{"input": {{"command": "make deploy"}}}}
            print(json.dumps({{"type": "control_request", "request_id": "r", "request": asked}}))
            sys.stdout.flush()
            continue
        content = [{{"type": "text", "text": "bridge: " + text}}]
        delta = {{"type": "text_delta", "text": "bridge: " + text}}
        event = {{"type": "content_block_delta", "index": 0, "delta": delta}}
        say("stream_event", uuid=str(uuid.uuid4()), event=event, parent_tool_use_id=None)
        say("assistant", message={{"role": "assistant", "model": "m", "content": content}})
        keep("assistant", "bridge: " + text)
        result("bridge: " + text)
"""
# runs a hook for each line, and at SIGTERM one that says that the session has ended; before that it
# waits for the file that it is told, and says so by another
AT_THE_DESK = """
import json, os, signal, subprocess, sys, time
def run(line):
    event = json.dumps(json.loads(line)["event"]).encode()
    done = subprocess.run(["/bin/sh", "-c", sys.argv[1]], input=event, capture_output=True)
    print(done.returncode, len(done.stdout + done.stderr), flush=True)
def leave(*_):
    if sys.argv[3]:
        open(sys.argv[3] + ".asked", "w").close()
    while sys.argv[3] and not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
    ended = {"hook_event_name": "SessionEnd", "session_id": sys.argv[2], "reason": "other"}
    run(json.dumps({"event": ended}))
    sys.exit(143)
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[3] == "stubborn" else leave)
for line in sys.stdin:
    run(line)
"""


class Place:
    """Where the scripted program keeps its sessions: ``home`` is its CLAUDE_CONFIG_DIR."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "claude home"
        self.home.mkdir()
        self.agent = directory / "agent program" / "claude"
        self.agent.parent.mkdir()
        self.agent.write_text(UNDER_THE_BRIDGE.format(python=sys.executable))
        self.agent.chmod(0o755)
        self.program = directory / "claude"  # a copy, for its name is what it is known by
        shutil.copy(os.path.realpath(sys.executable), self.program)

    @contextmanager
    def bridge(self, directory: Path, **settings: str) -> Iterator[QuickBridge]:
        more = SOONER | {"CLAUDE_CONFIG_DIR": str(self.home), "BRIDGE_MAX_WEBSOCKETS": "100"}
        more["BRIDGE_AGENTS"] = "claude-code"
        more["PATH"] = f"{self.agent.parent}:{os.environ['PATH']}"  # the first that is found
        with QuickBridge(directory, **more | settings) as bridge:
            bridge.pin = bridge.pairing().pin
            yield bridge

    def transcript(self, own_id: str, directory: Path | str) -> Path:
        name = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(directory))
        return self.home / "projects" / name / f"{own_id}.jsonl"

    def write(self, own_id: str, directory: Path | str, *said: str) -> Path:
        """Append prompts and answers in turn, as the program does."""
        path = self.transcript(own_id, directory)
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"sessionId": own_id, "cwd": str(directory)}
        parent = None
        with path.open("a") as file:
            for number, text in enumerate(said):
                role = ("user", "assistant")[number % 2]
                content = text if role == "user" else [{"type": "text", "text": text}]
                message = {"role": role, "content": content}
                line = {"type": role, "uuid": str(uuid.uuid4()), "parentUuid": parent}
                parent = line["uuid"]
                file.write(json.dumps(line | about | {"message": message}) + "\n")
        return path

    def said(self, own_id: str, directory: Path | str) -> list[str]:
        lines = map(json.loads, self.transcript(own_id, directory).read_text().splitlines())
        texts = [line["message"]["content"] for line in lines]
        return [one if isinstance(one, str) else one[0]["text"] for one in texts]


def place_of_module() -> object:
    """A fixture of a module, `place`: where its scripted program keeps its sessions."""

    @pytest.fixture(scope="module")
    def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
        pytest.importorskip("claude_agent_sdk")
        return Place(tmp_path_factory.mktemp("place"))

    return place


def bridge_beside(**settings: str) -> object:
    """A fixture of a module, `bridge`: one that runs the program of fixture `place`, too."""

    @pytest.fixture(scope="module")
    def bridge(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
        with place.bridge(tmp_path_factory.mktemp("bridge"), **settings) as bridge:
            yield bridge

    return bridge


class Desk(Terminal):
    """The program in a terminal. It has said one thing, and got an answer."""

    def __init__(
        self,
        place: Place,
        bridge: Bridge,
        session_id: str = "",
        how: str = "",
        directory: str = "",
        spool: Path | None = None,
    ) -> None:
        self.session_id = session_id or str(uuid.uuid4())
        self.directory, self.home = directory or str(bridge.root.resolve()), place.home
        kept = {name: value for name, value in os.environ.items() if name != "CLAUDE_PID"}
        kept |= {"CLAUDE_CONFIG_DIR": str(place.home), "PYTHONHOME": sys.base_prefix}
        command = hook_command(str(spool or bridge.data / "spool"))
        self.process = subprocess.Popen(
            [str(place.program), "-S", "-c", AT_THE_DESK, command, self.session_id, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept,
            text=True,
        )
        place.write(self.session_id, self.directory, "from the desk", "desk: done")
        self.hook("SessionStart", source="startup")
        self.hook("UserPromptSubmit", prompt="from the desk")

    def stop(self) -> None:
        self.hook("Stop", last_assistant_message="desk: done")

    def register(self, status: str, since: float = 0.0, **fields: Any) -> None:
        start = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()[19]
        super().register(status, since or time.time(), procStart=start, **fields)

    def leave(self) -> None:
        self.process.terminate()
        self.process.wait(180)


def take(
    phone: Phone, session_id: str, word: Any = True, agent: str = "claude-code", **more: Any
) -> Message:
    """The answer to `session_start` with `take_over`."""
    about = {"agent": agent, "session_id": session_id, "working_directory": "/", "resume": True}
    taken = {"take_over": word} if word else {}
    return phone.answer_to(phone.send("session_start", about | taken | more))


def give_back(phone: Phone, session_id: str) -> None:
    body = {"session_id": session_id, "reason": "user_request", "give_back": True}
    phone.send("session_end", body)


def refused(message: Message, code: str) -> dict[str, Any]:
    assert message["type"] == "error" and message["payload"]["code"] == code, message
    payload: dict[str, Any] = message["payload"]
    return payload
