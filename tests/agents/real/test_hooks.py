"""The hooks of real agents that no bridge has started: what a phone sees, and answers (D66)."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hooks_app.producer.agents import AGENTS
from hooks_app.producer.shell_command import HOOK_MARK
from tests.agents.real.desk import DeskProgram, Screen
from tests.agents.real.models import Handler, Model
from tests.agents.real.place import SECONDS, Place, place_of
from tests.agents.real.table import REAL
from tests.conformance.approvals import decide, of
from tests.conformance.phone import Phone
from tests.conformance.terminal import until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(560)]

Json = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How one sits at a program: what it shows when it is ready, and when it asks.

    ``words``: its command. One that shows nothing when it is ready does not start in a terminal
    here: it is spoken with by its protocol. ``first``: what it shows before → the keys for that.
    """

    words: tuple[str, ...] = ()
    ready: str = ""
    asks: str = ""
    first: tuple[tuple[str, str], ...] = ()


WAYS = {
    "qwen": Way(("qwen",), "Typeyourmessage", "Allowexecution"),
    "copilot": Way(
        *(("copilot",), "?help", "Doyouwanttorun"), first=(("Doyoutrustthefiles", "\r"),)
    ),
    "kimi": Way(*(("kimi",), "context:0%", "Runthiscommand?"), first=(("Trustthisfolder?", "\r"),)),
    "droid": Way(),
}


class Gate(Handler):
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
    with place_of(REAL[name], gate, tmp_path_factory.mktemp(name)) as place:
        row = AGENTS[name]
        settings = Path(row.home.replace("~", str(place.home))) / row.file
        place.bridge.manage("install_hooks", name, "--answer", "--yes")
        yield place
        place.bridge.manage("install_hooks", name, "--remove", "--yes")
        assert not settings.exists() or HOOK_MARK not in settings.read_text()


@pytest.fixture
def phone(hooked: Place) -> Iterator[Phone]:
    with hooked.bridge.phones() as (phone,):
        yield phone.ready()
        Gate.gate.set()
        phone.request("presence_set", {"away": False})


class Desk:
    """A person at the program of an agent, whose session the phone has joined."""

    def __init__(self, place: Place, phone: Phone, name: str) -> None:
        self.way, self.place, self.phone = WAYS[place.agent.name], place, phone
        self.directory = (place.bridge.root / name).resolve()
        self.directory.mkdir()
        self.environment = {**os.environ, **place.environment}
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
            self.screen = Screen(self.way.words, self.directory, self.environment)
            for shown, keys in self.way.first:
                self.screen.until(shown)
                self.screen.press(keys)
            self.screen.until(self.way.ready)
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
    desk.say("do: run touch made")
    assert desk.question().get("answerable") is None
    assert desk.screen is not None
    desk.screen.until(desk.way.asks)
    desk.screen.press("\r")
    desk.phone.expect("tool_result", SECONDS, session_id=desk.session)
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
    desk.say("do: run touch made")
    desk.phone.request("presence_set", {"away": True})
    question = desk.question()
    assert question["answerable"] is True
    call = question["tool_call_id"]
    changed = decide(desk.phone, desk.session, call, "modified", {"command": "true"})
    assert changed["type"] == "error", "it runs the call as it is, or not at all"
    assert decide(desk.phone, desk.session, call, decision)["payload"]["forwarded"] is True
    desk.phone.expect("agent_event", SECONDS, session_id=desk.session, event="Stop")
    assert (desk.directory / "made").exists() is (decision == "approved")
    assert desk.screen is None or desk.way.asks not in desk.screen.text()
