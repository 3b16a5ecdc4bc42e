"""Codex in a terminal, whose sessions the bridge joins (D80)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from tests.agents.real.models import Handler, Json, Model, Reply
from tests.agents.real.place import SECONDS, Place, Talk, payloads, place_of
from tests.agents.real.table import REAL
from tests.conformance.agents import words
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400), pytest.mark.xdist_group("codex")]
if not shutil.which("tmux"):
    pytest.skip("needs tmux", allow_module_level=True)

OUTSIDE = re.compile(r"outside: (.*)")


class Escalating(Handler):
    """Also obeys `outside: COMMAND`, which is to run outside the sandbox, and so asks."""

    def _responses(self, body: Json) -> None:
        content = body["input"][-1].get("content") or [{}]
        found = OUTSIDE.fullmatch(str(content[-1].get("text", "")))
        if not found:
            super()._responses(body)
            return
        given = {"cmd": found[1], "sandbox_permissions": "require_escalated", "justification": "x"}
        self.stream(self._response_events(Reply(["I ", "will. "], "exec_command", given)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    agent = REAL["codex"]
    # a model whose tools are plain, and the person as the reviewer
    written = agent.written.replace("gpt-5.5", "gpt-5.3-codex").replace("auto_review", "user")
    environment = agent.environment | {"BRIDGE_JOIN": "codex"}
    model = Model(Escalating)
    made = tmp_path_factory.mktemp("joined")
    with place_of(replace(agent, written=written, environment=environment), model, made) as place:
        yield place
    model.close()


class Terminal:
    """Codex's own program in a terminal, in a directory that it may work in."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.directory = place, (place.bridge.root / name).resolve()
        self.directory.mkdir()
        self.socket = f"bridge-{uuid.uuid4()}"
        self.environment = {**os.environ, **place.environment}

    def run(self, *words: str) -> None:
        line = f"codex {' '.join(words)} -a on-request -s read-only"
        self._tmux("new-session", "-d", "-s", "t", "-x", "120", "-y", "40", line)
        wait_until(lambda: "/dev/shm" in self.shown() or "›" in self.shown(), self.shown)

    def _tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self.socket, *words],
            capture_output=True,
            check=False,
            text=True,
            cwd=self.directory,
            env=self.environment,
        ).stdout

    def shown(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "t")

    def say(self, text: str) -> None:
        self._tmux("send-keys", "-t", "t", "-l", text)
        wait_until(lambda: f"› {text}" in self.shown(), self.shown)
        self.press("Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", "-t", "t", key)

    def shows(self, text: str) -> None:
        wait_until(lambda: text in self.shown(), self.shown)

    def close(self) -> None:
        self._tmux("kill-server")

    def begin(self, text: str) -> Talk:
        """Say something, and join the session from a phone."""
        before = self.threads()
        self.run()
        self.say(f"do: say {text}")
        self.shows(f"• {text}")
        [own] = wait_until(lambda: self.threads() - before)
        return Talk(self.place, self.directory, past=own)

    def threads(self) -> set[str]:
        kept = self.place.home.glob(".codex/sessions/*/*/*/*.jsonl")
        return {path.stem[-36:] for path in kept}


def of_the_desk(place: Place) -> list[psutil.Process]:
    """The desk's server of codex, and what updates it."""
    home = str(place.home.resolve())
    found = []
    for one in psutil.process_iter(["cmdline"]):
        line = " ".join(one.info["cmdline"] or ())
        if "app-server" in line and (home in line or str(place.home) in line):
            found.append(one)
    return found


@pytest.fixture
def terminal(place: Place, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    terminal = Terminal(place, re.sub(r"\W", "-", request.node.name))
    yield terminal
    terminal.close()
    for process in of_the_desk(place):
        process.kill()
    psutil.wait_procs(of_the_desk(place), timeout=SECONDS)


@pytest.mark.parametrize("first", ["phone", "desk"])
def test_both_are_asked_and_the_first_counts(terminal: Terminal, first: str) -> None:
    """Each question is in both, and so is what each says."""
    talk = terminal.begin("hello")
    assert talk.ready["payload"]["asks"] is True
    assert terminal.place.bridge.session(talk.session)["shared"] is True
    talk.phone.untaken.clear()
    terminal.say("outside: touch one")
    asked = talk.phone.expect("approval_required", SECONDS, session_id=talk.session)["payload"]
    assert asked["params"]["command"] == "touch one"
    terminal.shows("Would you like to run")
    if first == "phone":
        talk.decide(asked, "approved")
    else:
        terminal.press("y")
    done = {"session_id": talk.session, "tool_call_id": asked["tool_call_id"]}
    result = talk.phone.expect("tool_result", SECONDS, **done)["payload"]["result"]
    assert result["success"] is True and talk.files() == ["one"]
    wait_until(lambda: "Would you like to run" not in terminal.shown(), terminal.shown)
    talk.phone.expect("stream_end", SECONDS, session_id=talk.session, finish_reason="stop")
    said = talk.turn("outside: touch two", "rejected")
    assert payloads(said, "tool_result")[-1]["result"]["success"] is False
    terminal.shows("› outside: touch two")
    assert talk.files() == ["one"]
    talk.close()


def test_interrupted_from_the_phone(terminal: Terminal) -> None:
    talk = terminal.begin("hello")
    talk.phone.untaken.clear()
    terminal.say("do: count 2000")
    talk.phone.expect("stream_chunk", SECONDS, session_id=talk.session)
    assert talk.interrupt()["payload"]["interrupted"] is True
    terminal.shows("Conversation interrupted")
    talk.close()


def test_the_terminal_is_closed_and_opened_again(terminal: Terminal) -> None:
    """The session goes on from the phone meanwhile, and then in both."""
    talk = terminal.begin("hello")
    terminal.close()
    assert words(talk.turn("do: say meanwhile")).endswith("meanwhile")
    terminal.run("resume", talk.session)
    terminal.shows("meanwhile")
    assert words(talk.turn("do: say again")).endswith("again")
    terminal.shows("again")
    talk.close()
    terminal.say("do: say on and on")
    terminal.shows("• on and on")


def test_the_server_is_killed(terminal: Terminal) -> None:
    """Every device is told; then the bridge can go on by itself."""
    talk = terminal.begin("hello")
    terminal.close()
    for process in of_the_desk(terminal.place):
        process.send_signal(signal.SIGKILL)
    talk.phone.expect("error", SECONDS, code="AGENT_ERROR")
    talk.resume()
    assert terminal.place.bridge.session(talk.session)["shared"] is False
    assert words(talk.turn("do: say alone")).endswith("alone")
    talk.close()
