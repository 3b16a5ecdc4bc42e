"""A session of an agent, from its start to its end, through `watch` alone: talk, approvals, an
interrupt, a bridge that is killed (D10, D35, D38, D40).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge, nursery
from tests.run.terminal import Program
from tests.servers import wait_until

TAKEN_NOWHERE = "No agent took it"
CHOICES = [{"label": "Red"}, {"label": "Blue", "description": "cold"}]
QUESTION = json.dumps({"questions": [{"question": "Which colour?", "options": CHOICES}]})


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    bridge = QuickBridge(tmp_path_factory.mktemp("watched agents"))
    bridge.start()
    yield bridge
    bridge.stop()
    nursery.forget(bridge.environment)


@pytest.fixture
def piped(bridge: Bridge) -> Iterator[Program]:
    with Program(bridge.environment, "watch", "--commands", terminal=False) as program:
        program.until("connected to")
        yield program


def started(bridge: Bridge, program: Program) -> str:
    """A session of the demo agent; its id."""
    shown = program.ask(f"start demo '{bridge.root}'", "-- started ", f": demo in {bridge.root}\n")
    found = re.search(r"-- started (\S+): demo in ", shown)
    assert found is not None, shown
    return found[1]


def works(program: Program) -> None:
    """Wait until the list of sessions says that an agent works."""
    wait_until(lambda: "(working)" in program.ask("sessions", "* 1  ", "\n"), "it works")


def test_a_session_from_its_start_to_its_end(bridge: Bridge, piped: Program) -> None:
    piped.ask("resume", "-- No session is chosen")
    session_id = started(bridge, piped)
    shown = piped.ask("say marmalade", "answer", "marmalade", "\n")
    assert shown.count("answer") == 1, "a line for a message, and not for each of its pieces"

    piped.ask('say /tool Bash {"command": "make one"}', "asks", "make one", "[medium]")
    piped.ask("approve", "-- Bash: approved", "result", "make one", "answer")
    piped.ask('say /tool Bash {"command": "make two"}', "asks", "make two")
    piped.ask(
        'modify {"command": "make three"}',
        "-- Bash: modified",
        "result",
        "make three",
        "answer",
    )
    piped.ask('say /tool Bash {"command": "make four"}', "asks", "make four")
    piped.ask(
        "reject",
        "-- Bash: rejected",
        "result",
        "Bash was rejected",
        "answer",
    )
    piped.ask(
        f"say /tool AskUserQuestion {QUESTION}", "asks     Which colour?", "2. Blue", "[answer"
    )
    piped.ask("approve", "-- It is a question")
    piped.ask("answer 2", "-- AskUserQuestion: Blue", "ok Which colour? Blue", "answer")
    assert TAKEN_NOWHERE not in piped.shown

    piped.ask("say /fail on purpose", "prompt", "on purpose", "AGENT_ERROR: on purpose")

    piped.say("say /sleep 100")
    works(piped)
    piped.ask("say jam", "jam (queued)")
    piped.ask("interrupt", "answer")
    piped.until("answer", "jam")
    assert piped.shown.count("on purpose") == 2, "the prompt, and one line for the failure"
    piped.ask("end", "ended", "user_request")
    piped.ask("sessions", "No session is open.")
    assert bridge.session(session_id)["status"] == "closed"
    piped.ask(f"resume {session_id}", "-- SESS_CLOSED: ")


def test_a_session_that_was_paused_is_resumed(bridge: Bridge, piped: Program) -> None:
    """D35: the bridge is killed in the middle of a turn and comes back: the session is paused, its
    agent takes nothing until it is resumed.
    """
    session_id = started(bridge, piped)
    piped.say("say /sleep 100")
    works(piped)
    bridge.kill()
    piped.until("trying again in")
    bridge.start()
    piped.until("in the middle of a turn. Resume", "connected to", "(error)")
    assert bridge.session(session_id)["status"] == "paused"
    piped.ask("say Who is there?", "SESS_NOT_ACTIVE")
    piped.ask("resume", f"-- resumed {session_id}: demo in {bridge.root}\n")
    assert bridge.session(session_id)["status"] == "active"
    piped.ask("say marmalade", "marmalade", "answer")
    assert "Who is there?" not in piped.shown, "what was refused is not said later"
    piped.ask("end", "ended", "user_request")
    piped.end_of_input()
    assert piped.ended() == 0, piped.shown
