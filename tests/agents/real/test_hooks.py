"""The hooks of real agents that no bridge has started: what a phone sees, and answers (D66)."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hooks_app.producer.agents import AGENTS
from hooks_app.producer.shell_command import HOOK_MARK
from tests.agents.real.desk import DeskProgram, Screen
from tests.agents.real.joined import CODEX, Escalating, end_desk, person_asked
from tests.agents.real.models import Model
from tests.agents.real.place import SECONDS, Place, place_of
from tests.agents.real.table import REAL
from tests.conformance.approvals import decide, of
from tests.conformance.phone import Phone
from tests.conformance.terminal import until
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(560)]

Json = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How one sits at a program: what it shows when it is ready, and when it asks.

    ``words``: its command. One that shows nothing when it is ready does not start in a terminal
    here: it is spoken with by its protocol. ``first``: what it shows before → the key for that;
    ``once``: likewise, when it first sees our hooks. ``prompt``: at which its model has it make a
    file.
    """

    words: tuple[str, ...] = ()
    ready: str = ""
    asks: str = ""
    first: tuple[tuple[str, str], ...] = ()
    once: tuple[tuple[str, str], ...] = ()
    prompt: str = "do: run touch made"


WAYS = {
    "codex": Way(
        CODEX,
        *("Ask Codex to do anything", "Would you like to run"),
        once=(("Hooks need review", "2"), ("› 2. Trust all", "Enter")),
        prompt="outside: touch made",
    ),
    "qwen": Way(("qwen",), "Type your message", "Allow execution"),
    "copilot": Way(
        *(("copilot",), "? help", "Do you want to run"),
        first=(("Do you trust the files", "Enter"),),
    ),
    "kimi": Way(
        *(("kimi",), "context: 0%", "Run this command?"), first=(("Trust this folder?", "Enter"),)
    ),
    "droid": Way(),
}


class Gate(Escalating):
    """A model that answers while its gate is open."""

    gate = threading.Event()

    def do_POST(self) -> None:  # noqa: N802 - http.server's
        self.gate.wait(SECONDS)
        super().do_POST()


@pytest.fixture(scope="module")
def gate() -> Iterator[Model]:
    Gate.gate.set()
    model = Model(Gate)
    yield model
    model.close()


@pytest.fixture(scope="module", params=WAYS)
def hooked(
    request: pytest.FixtureRequest, gate: Model, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A bridge whose hooks the agent has, as `make hooks` puts them there."""
    name: str = request.param
    agent = person_asked() if name == "codex" else REAL[name]
    with place_of(agent, gate, tmp_path_factory.mktemp(name)) as place:
        row = AGENTS[name]
        settings = Path(row.home.replace("~", str(place.home))) / row.file
        place.bridge.manage("install_hooks", name, "--answer", "--yes")
        if once := WAYS[name].once:
            screen = Screen(place, place.bridge.root)
            screen.run(*WAYS[name].words)
            _answer(screen, once, WAYS[name].ready)
            screen.end()
        yield place
        end_desk(place)
        place.bridge.manage("install_hooks", name, "--remove", "--yes")
        assert not settings.exists() or HOOK_MARK not in settings.read_text()


@pytest.fixture
def phone(hooked: Place) -> Iterator[Phone]:
    with hooked.bridge.phones() as (phone,):
        yield phone.ready()
        Gate.gate.set()
        phone.request("presence_set", {"away": False})


def _answer(screen: Screen, shown: tuple[tuple[str, str], ...], ready: str) -> None:
    """Press each key until what follows is shown: a program that begins may lose the first."""
    following = [*(words for words, _ in shown), ready][1:]
    for (words, key), then in zip(shown, following, strict=True):
        screen.until(words)
        screen.press(key, then)
    screen.until(ready)


class Desk:
    """A person at the program of an agent, whose session the phone has joined."""

    def __init__(self, place: Place, phone: Phone, name: str) -> None:
        self.way, self.place, self.phone = WAYS[place.agent.name], place, phone
        self.directory = (place.bridge.root / name).resolve()
        self.directory.mkdir()
        self.screen: Screen | None = None
        self.program: DeskProgram | None = None
        self.session = ""

    def say(self, prompt: str) -> None:
        """Give the program a prompt; the phone has been told."""
        Gate.gate.clear()
        if not self.way.ready:
            self.program = DeskProgram(self.place, self.directory)
            threading.Thread(target=self.program.say, args=(prompt,), daemon=True).start()
        elif self.screen is None:
            self.screen = Screen(self.place, self.directory)
            self.screen.run(*self.way.words)
            _answer(self.screen, self.way.first, self.way.ready)
        if self.screen is not None:
            self.screen.say(prompt)
        if not self.session or self.screen is None:
            started = self.phone.expect("session_started", SECONDS)["payload"]
            assert started["session"]["agent"] == self.place.agent.name
            self.session = str(started["session_id"])
            self.phone.join(self.session)
        if self.screen is not None:
            about = {"session_id": self.session, "event": "UserPromptSubmit"}
            self.phone.expect("agent_event", SECONDS, **about)

    def question(self) -> Json:
        """What the phone is asked when the model goes on."""
        Gate.gate.set()
        asked = self.phone.expect("approval_required", SECONDS, session_id=self.session)
        return dict(asked["payload"])

    def shows_dialog(self) -> bool:
        return self.screen is not None and self.way.asks in self.screen.shown()

    def until_idle(self) -> None:
        until(self.phone, self.session, turn="idle", pending_approvals=0)

    def end(self) -> None:
        if self.screen is not None:
            self.screen.end()
        if self.program is not None:
            os.killpg(self.program.process.pid, signal.SIGTERM)
            self.program.process.wait()


@pytest.fixture
def desk(hooked: Place, phone: Phone, request: pytest.FixtureRequest) -> Iterator[Desk]:
    desk = Desk(hooked, phone, re.sub(r"\W", "-", request.node.name))
    yield desk
    desk.end()


def test_each_event_comes_once(desk: Desk) -> None:
    """The dialog is answered at the desk."""
    if not desk.way.ready:
        pytest.skip("its terminal program does not start here")
    desk.say(desk.way.prompt)
    assert desk.question().get("answerable") is None
    assert desk.screen is not None
    desk.screen.until(desk.way.asks)
    desk.screen.press("Enter")
    desk.phone.expect("tool_result", SECONDS, session_id=desk.session)
    desk.phone.expect("agent_event", SECONDS, session_id=desk.session, event="Stop")
    desk.until_idle()
    assert (desk.directory / "made").exists()
    events = [one["payload"]["event"] for one in of(desk.phone, "agent_event", desk.session)]
    assert [events.count(one) for one in ("UserPromptSubmit", "PostToolUse", "Stop")] == [1, 1, 1]
    calls = of(desk.phone, "tool_call", desk.session)
    assert len(calls) <= 1, "asked about before it began, or after"


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_who_is_away_answers(desk: Desk, decision: str) -> None:
    """No dialog is shown meanwhile, nor afterwards."""
    if not AGENTS[desk.place.agent.name].answers:
        pytest.skip("it takes no answer from a hook")
    desk.say(desk.way.prompt)
    desk.phone.request("presence_set", {"away": True})
    question = desk.question()
    assert question["answerable"] is True
    assert not desk.shows_dialog()
    call = question["tool_call_id"]
    changed = decide(desk.phone, desk.session, call, "modified", {"command": "true"})
    assert changed["type"] == "error", "it runs the call as it is, or not at all"
    assert decide(desk.phone, desk.session, call, decision)["payload"]["forwarded"] is True
    desk.phone.expect("agent_event", SECONDS, session_id=desk.session, event="Stop")
    assert (desk.directory / "made").exists() is (decision == "approved")
    assert not desk.shows_dialog()


def test_nobody_answers(desk: Desk) -> None:
    """Then it asks at the desk, in time for its own limit; the phone's answer is too late."""
    row = AGENTS[desk.place.agent.name]
    if not row.answers or desk.way.ready == "":
        pytest.skip("it takes no answer from a hook, or shows no dialog here")
    desk.say(desk.way.prompt)
    desk.phone.request("presence_set", {"away": True})
    asked_at = time.monotonic()
    question = desk.question()
    assert question["answerable"] is True

    def asks() -> bool:
        desk.phone.ping()
        return desk.shows_dialog()

    wait_until(asks)
    assert time.monotonic() - asked_at > row.waits - 1
    answer = decide(desk.phone, desk.session, question["tool_call_id"], "approved")["payload"]
    assert answer.get("forwarded") is not True
    assert desk.screen is not None
    desk.screen.press("Enter")
    desk.phone.expect("agent_event", SECONDS, session_id=desk.session, event="Stop")
    assert (desk.directory / "made").exists()
