"""A bridge with one real agent, and a conversation with it from a phone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.agents.install import REQUIRED, missing_agents
from tests.agents.real.models import Model
from tests.agents.real.table import Real, lacks, of_agents, settle
from tests.conformance.agent_tools import status
from tests.conformance.agents import end, say, start, words
from tests.conformance.approvals import decide
from tests.conformance.phone import Message, Phone
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

# On a busy machine opencode takes half a minute to start.
SECONDS = 120.0
Decision = str | dict[str, Any]  # approved or rejected, or parameters in place of the agent's


class Place:
    """The bridge, its agent, and the model that the agent talks to."""

    def __init__(self, agent: Real, model: Model, directory: Path) -> None:
        self.agent, self.model, self.home = agent, model, directory / "home"
        self.environment = settle(agent, model.url, self.home)
        self.bridge = QuickBridge(directory / "bridge", **self.environment)

    def talk(self, name: str) -> Talk:
        """A session in a fresh directory of that name, which may be there already."""
        directory = self.bridge.root / name
        directory.mkdir(exist_ok=True)
        return Talk(self, directory)

    def processes(self, directory: Path | None = None) -> list[int]:
        """Processes that work in the root or below it: agents, and what they have started."""
        root, found = directory or self.bridge.root, []
        for entry in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):  # it has just ended
                if entry.readlink().is_relative_to(root):
                    found.append(int(entry.parent.name))
        return found


@contextlib.contextmanager
def place_of(agent: Real, model: Model, directory: Path) -> Iterator[Place]:
    """A bridge with this agent; skipped where it cannot be run, and nothing is left of it."""
    if os.environ.get(REQUIRED) and "npm" in agent.needs and (why_not := missing_agents()):
        pytest.fail(why_not)
    if why_not := lacks(agent):
        pytest.skip(why_not)
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(of_agents(os.environ)):
            patch.delenv(name)
        place = Place(agent, model, directory)
        with place.bridge as bridge:
            bridge.pin = bridge.pairing().pin
            yield place
            bridge.stop()
            wait_until(lambda: not place.processes())


class Talk:
    """A session and the phone that has it."""

    def __init__(self, place: Place, directory: Path, past: str | None = None) -> None:
        """``past``: a session of the agent's own store, which goes on."""
        self.place, self.directory = place, directory
        self.phone: Phone = place.bridge.phone().ready()
        about: dict[str, Any] = {"session_id": past, "resume": True} if past else {}
        name = place.agent.name
        self.ready = start(self.phone, directory, agent=name, timeout=SECONDS, **about)
        assert self.ready["type"] == "session_ready", self.ready
        self.session = str(self.ready["payload"]["session_id"])

    def say(self, content: str) -> str:
        """A prompt, without waiting for anything; its id. What came before it counts no more."""
        self.phone.untaken.clear()
        return say(self.phone, self.session, content)

    def begin(self, content: str) -> Message | None:
        """A prompt whose answer has begun; its first words, if the agent says them before all."""
        heard = len(self.place.model.heard)
        self.say(content)
        if self.place.agent.streams:
            return self.phone.expect("stream_chunk", SECONDS, session_id=self.session)
        wait_until(lambda: any(content in one for one in self.place.model.heard[heard:]))
        return None

    def turn(self, content: str, *decisions: Decision) -> list[Message]:
        """A prompt, with decisions in that order, the last again and again; what came of it."""
        before = len(self.phone.messages)
        self.say(content)
        self.answer(*decisions)
        return [
            message
            for message in self.phone.messages[before:]
            if message["type"] != "replay_buffer"
            and message["payload"].get("session_id") == self.session
        ]

    def answer(self, *decisions: Decision) -> Message:
        """Decide whatever is asked until the turn ends; its stream_end."""
        left = list(decisions)
        while (message := self.next_stop())["type"] == "approval_required":
            assert left, f"nobody expected to be asked: {message}"
            self.decide(message["payload"], left.pop(0) if len(left) > 1 else left[0])
        return message

    def next_stop(self) -> Message:
        """The next message at which something is to be done: a question, or the turn's end."""
        return self.phone.until(
            lambda message: (
                message["type"] in ("approval_required", "stream_end")
                and message["payload"]["session_id"] == self.session
                and message["payload"].get("finish_reason") != "tool_call"
            ),
            "a question or the end of the turn",
            SECONDS,
        )

    def choose(self, option: str, value: str) -> None:
        about = {"session_id": self.session, "option_id": option, "value": value}
        answer = self.phone.answer_to(self.phone.send("session_set", about))
        assert answer["type"] == "session_options", answer

    def decide(self, asked: dict[str, Any], decision: Decision, **more: str) -> None:
        word, changed = (decision, None) if isinstance(decision, str) else ("modified", decision)
        answer = decide(self.phone, self.session, asked["tool_call_id"], word, changed, **more)
        assert answer["payload"].get("forwarded") is True, answer

    def interrupt(self) -> Message:
        """Stop the turn; its stream_end. What a busy machine had ended for it (D40) is resumed."""
        self.phone.send("session_interrupt", {"session_id": self.session})
        ended = self.next_stop()
        if status(self.place.bridge, self.session) == "paused":
            self.resume()
        return ended

    def resume(self) -> Message:
        """Have a paused session go on; its session_ready.

        gemini-cli 0.61 names what it keeps of a session by the minute, and one that it continues in
        the same minute it overwrites before it reads it: it is made older.
        """
        for path in self.place.home.glob(".gemini/tmp/*/chats/session-*"):
            path.rename(path.with_name("session-2026-01-01T00-00-" + path.name.rpartition("-")[2]))
        ready = start(self.phone, "", self.session, agent="", resume=True, timeout=SECONDS)
        assert ready["type"] == "session_ready", ready
        return ready

    def order_write(self, name: str, text: str) -> str:
        """What has the model write a file in the directory."""
        return f"do: write {quote(str(self.directory / name))} {text}"

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def close(self) -> None:
        assert end(self.phone, self.session)["type"] == "session_end"
        self.phone.close()


def payloads(messages: Sequence[Message], type_: str) -> list[dict[str, Any]]:
    return [message["payload"] for message in messages if message["type"] == type_]


def go_on(place: Place, directory: Path, own: str, resume: str) -> None:
    """Go on with a session that no program has open; `resume`: how its program would."""
    talk = Talk(place, directory, past=own)
    try:
        assert talk.ready["payload"]["asks"] is place.agent.asks
        assert talk.ready["payload"]["resume_command"] == resume.format(id=own)
        told = talk.phone.expect("replay_buffer", session_id=own, source="agent")
        assert "marmalade" in str(told["payload"]["messages"])
        heard = len(place.model.heard)
        assert words(talk.turn("do: say and on we go")) == "and on we go"
        assert any("marmalade" in request for request in place.model.heard[heard:])
        said = talk.turn("do: run touch refused", "rejected")
        assert len(payloads(said, "approval_required")) == 1 and talk.files() == []
    finally:
        talk.close()
