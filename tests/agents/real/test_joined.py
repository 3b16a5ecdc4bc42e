"""Codex in a terminal, whose sessions the bridge joins (D80)."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.agents.real.desk import Screen
from tests.agents.real.joined import CODEX, Escalating, end_desk, of_the_desk, person_asked
from tests.agents.real.models import Model
from tests.agents.real.place import SECONDS, Place, Talk, payloads, place_of
from tests.conformance.agents import log_of, words
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400), pytest.mark.xdist_group("codex")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    agent = person_asked(BRIDGE_JOIN="codex")
    model = Model(Escalating)
    with place_of(agent, model, tmp_path_factory.mktemp("joined")) as place:
        yield place
    model.close()


class Terminal(Screen):
    """Codex's own program in a terminal, in a directory that it may work in."""

    def __init__(self, place: Place, name: str) -> None:
        directory = (place.bridge.root / name).resolve()
        directory.mkdir()
        super().__init__(place, directory)
        self.place = place

    def begin(self, text: str) -> Talk:
        """Say something, and join the session from a phone."""
        before = self.threads()
        self.run(*CODEX)
        self.until("›")
        self.say(f"do: say {text}")
        self.until(f"• {text}")
        [own] = wait_until(lambda: self.threads() - before)
        return Talk(self.place, self.directory, past=own)

    def threads(self) -> set[str]:
        kept = self.place.home.glob(".codex/sessions/*/*/*/*.jsonl")
        return {path.stem[-36:] for path in kept}


@pytest.fixture
def terminal(place: Place, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    terminal = Terminal(place, re.sub(r"\W", "-", request.node.name))
    yield terminal
    terminal.end()
    end_desk(place)


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
    terminal.until("Would you like to run")
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
    terminal.until("› outside: touch two")
    assert talk.files() == ["one"]
    talk.close()


def test_interrupted_from_the_phone(terminal: Terminal) -> None:
    talk = terminal.begin("hello")
    talk.phone.untaken.clear()
    terminal.say("do: count 2000")
    talk.phone.expect("stream_chunk", SECONDS, session_id=talk.session)
    assert talk.interrupt()["payload"]["interrupted"] is True
    terminal.until("Conversation interrupted")
    talk.close()


def test_the_terminal_is_closed_and_opened_again(terminal: Terminal) -> None:
    """The session goes on from the phone meanwhile, and then in both."""
    talk = terminal.begin("hello")
    terminal.end()
    assert words(talk.turn("do: say meanwhile")).endswith("meanwhile")
    terminal.run("codex", "resume", talk.session, *CODEX[1:])
    terminal.until("meanwhile")
    assert words(talk.turn("do: say again")).endswith("again")
    terminal.until("again")
    talk.close()
    terminal.say("do: say on and on")
    terminal.until("• on and on")
    again = Talk(terminal.place, terminal.directory, past=talk.session)
    said = [
        one["payload"]["payload"]["prompt"] if one["type"] == "agent_event" else words([one])
        for one in log_of(again.phone, talk.session)
        if one["type"] == "stream_chunk" or "UserPromptSubmit" in str(one)
    ]
    assert said[-4:] == ["do: say again", "again", "do: say on and on", "on and on"]
    again.close()


def test_the_server_is_killed(terminal: Terminal) -> None:
    """Every device is told; then the bridge can go on by itself."""
    talk = terminal.begin("hello")
    terminal.end()
    for process in of_the_desk(terminal.place):
        process.send_signal(signal.SIGKILL)
    talk.phone.expect("error", SECONDS, code="AGENT_ERROR")
    talk.resume()
    assert terminal.place.bridge.session(talk.session)["shared"] is False
    assert words(talk.turn("do: say alone")).endswith("alone")
    talk.close()
