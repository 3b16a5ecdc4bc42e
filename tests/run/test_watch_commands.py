"""Commands of `watch` on a real repository: from a pipe, and at the prompt (D10, D38, D43)."""

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from bridge_project.terminal.commands import COMMANDS
from tests.conformance.approvals import decide, pre
from tests.conformance.bridge import Bridge
from tests.conformance.repositories import Repository
from tests.conformance.samples import hook, new_id, new_session
from tests.faults.quick import bridge_of_module
from tests.run import afternoon
from tests.run.terminal import Program
from tests.servers import wait_until

pytestmark = pytest.mark.slow

CHANGED = "modified  +1     -1     kept.txt"

bridge = bridge_of_module()


@pytest.fixture
def repository(bridge: Bridge) -> Repository:
    made = Repository(bridge.root / f"repository {new_id()[:8]}")
    made.commit_files({"kept.txt": "one\ntwo\nthree\n", "src/other.txt": "other\n"})
    made.write("kept.txt", "one\n2\nthree\n")
    return made


@pytest.fixture
def sid(bridge: Bridge, repository: Repository) -> Iterator[str]:
    """A session that works in the repository; over when the test is."""
    session_id = new_session()
    bridge.accept(hook("SessionStart", session_id, {"working_directory": str(repository.path)}))
    yield session_id
    bridge.accept(hook("SessionEnd", session_id, {}))


def ask(bridge: Bridge, session_id: str, command: str) -> str:
    """An agent asks whether it may run a command; the id of its call."""
    call_id = new_id()
    params = {"command": command}
    bridge.accept(pre(session_id, params, approval=True, risk="high", tool_call_id=call_id))
    return call_id


@pytest.fixture
def piped(bridge: Bridge, sid: str) -> Iterator[Program]:
    with Program(bridge.environment, "watch", terminal=False) as program:
        program.until("connected to")
        yield program


@pytest.fixture
def typed(bridge: Bridge, sid: str) -> Iterator[Program]:
    with Program(bridge.environment, "watch", terminal=True) as program:
        program.until("connected to")
        yield program


def test_the_repository(piped: Program, repository: Repository) -> None:
    repository.write("new file.txt", "fresh\n")
    piped.ask("status", "main", CHANGED, "untracked +1     -0     new file.txt")
    repository.git("add", "new file.txt")
    piped.ask('commit "Add a file."', "Add a file.", "1 files, +1 -0", CHANGED)
    piped.ask('commit "Change a line." kept.txt', "Change a line.", "main, clean")
    piped.ask('commit "Nothing."', "-- GIT_ERROR: ")
    log = repository.git("log", "--format=%s").splitlines()
    assert log[:2] == ["Change a line.", "Add a file."]


def test_programs_of_a_repository(piped: Program, repository: Repository) -> None:
    """D63: they are named, and run when one says so."""
    repository.hook("pre-commit", "exit 0")
    named = "hook pre-commit  "
    piped.ask('commit "Change it." kept.txt', named, "-- The repository brings these.")
    piped.ask('commit --trust "Change it." kept.txt', "Change it.", "main, clean")


def test_approvals(bridge: Bridge, sid: str, repository: Repository) -> None:
    """By their numbers, also one that waited before (D28); decided is decided at the bridge."""
    targets, changed = ("one", "two", "three"), {"command": "make four"}
    calls = [ask(bridge, sid, "make one")]
    with Program(bridge.environment, "watch", terminal=False) as watch:
        watch.until("make one")
        calls += [ask(bridge, sid, f"make {target}") for target in targets[1:]]
        watch.until("make three")
        shown = [f"make {target}  ({repository.path.name})" for target in targets]
        watch.ask("sessions", "#1  [high]", "#2  [high]", "#3  [high]", *shown)
        watch.ask("approve", "-- 3 wait: `sessions` lists them; say which number.")
        noted = "Recorded. The agent still waits for an answer at the machine."
        watch.ask("approve 2 nothing", "-- nothing is not offered for this call, but ")
        watch.ask("reject 2", f"-- Bash: rejected. {noted}")
        watch.ask(f"modify 2 {json.dumps(changed)}", "-- Bash: modified")
        watch.ask("approve", "-- Bash: approved")
        watch.ask("approve", "-- Nothing waits for a decision.")
    with Program(bridge.environment, "watch", terminal=False) as watch:
        watch.until("connected to")
        watch.ask("approve", "-- Nothing waits for a decision.")
    with bridge.phones(1) as (phone,):
        for call_id, decision in zip(calls, ("approved", "rejected", "modified"), strict=True):
            again = decide(phone, sid, call_id, decision, changed)
            assert again["type"] == "approval_recorded", again


def test_rules(bridge: Bridge) -> None:
    """D68: one is chosen with a call, seen, used, and taken back."""
    with Program(bridge.environment, "watch", terminal=False) as watch:
        watch.until("connected to")
        watch.ask("start demo .", "-- started ")
        watch.ask("rules", "No rule: none is approved by itself.")
        watch.ask('say /tool Bash {"command": "pytest -q"}', "builds: for this session, ")
        watch.ask("approve builds", "-- Bash: approved", "Bash is over.")
        watch.ask('say /tool Bash {"command": "npm test"}', "[by your rule: builds and tests]")
        rule = re.compile(r"^1  builds and tests  \(.*, used once\)$", re.MULTILINE)

        def is_listed() -> bool:  # it is told of changes within some seconds
            watch.say("rules")
            return rule.search(watch.shown) is not None

        wait_until(is_listed)
        watch.ask("forget 2", "-- There is no such rule: `rules` lists them.")
        watch.ask("forget 1", "-- taken back: builds and tests")
        watch.ask('say /tool Bash {"command": "ls"}', "approve exact: for this session")
        watch.ask("approve Exact", "-- Exact is not offered for this call, but `approve exact`")
        watch.ask("reject it isn't time", "-- Bash: rejected", "Bash: FAILED it isn't time")
        watch.ask("end", "ended")


ASKS = "AskUserQuestion"
COLOURS = {"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]}
SIZES = {"question": "Sizes?", "options": [{"label": "S"}, {"label": "M"}], "multiSelect": True}
QUESTIONS: list[tuple[list[dict[str, Any]], str, dict[str, str]]] = [
    ([COLOURS], "1", {"Which?": "Red"}),
    ([COLOURS], "none of these", {"Which?": "none of these"}),
    ([SIZES], "1, 2", {"Sizes?": "S, M"}),
    ([COLOURS, SIZES], '"my own" 2,1', {"Which?": "my own", "Sizes?": "M, S"}),
]
WRONG = {
    "answer 1": "2 wait: ",
    "answer #2 3": "the choices 1 to 2",
    "answer #2 1,2": "takes one choice",
    "answer #1 2": "It is no question",
    "answer #7 2": "say which number",
    "approve 2": "It is a question",
}


def test_questions(bridge: Bridge, sid: str, piped: Program) -> None:
    """Answered by a modification that has the answers; a wrong one decides nothing."""
    ask(bridge, sid, "make one")
    piped.until("make one")
    with bridge.phones(1) as (phone,):
        for questions, line, answers in QUESTIONS:
            call_id, params = new_id(), {"questions": questions}
            asked = pre(sid, params, tool=ASKS, approval=True, tool_call_id=call_id)
            bridge.accept(asked)
            piped.until(f"asks     {questions[0]['question']}")
            if questions == [COLOURS]:
                for wrong, words in WRONG.items():
                    piped.ask(wrong, words)
            piped.ask(f"answer #2 {line}", f"-- {ASKS}: {', '.join(answers.values())}")
            again = decide(phone, sid, call_id, "modified", params | {"answers": answers})
            assert again["type"] == "approval_recorded", again
    piped.ask("approve", "-- Bash: approved")


def test_sessions(bridge: Bridge, sid: str, piped: Program) -> None:
    """Another one can be chosen by its number or its id; one of a terminal ends there."""
    other = new_session()
    bridge.accept(hook("SessionStart", other, {"working_directory": str(bridge.root)}))
    try:
        piped.until(f"started  an agent in {bridge.root}\n")
        listed = piped.ask("sessions", sid, other)
        for number, session_id in (("\\* 1", sid), ("  2", other)):
            assert re.search(rf"^{number}  {session_id}", listed, re.MULTILINE), listed
        piped.ask("resume 2", f"-- {other}: ", str(bridge.root))
        piped.ask("status", "-- GIT_ERROR: ")
        piped.ask("resume nobody-knows-this", "-- SESS_NOT_FOUND: ")
        piped.ask("start no-such-agent", "-- AGENT_UNAVAILABLE: ")
        piped.ask("end", "-- It runs in a terminal, and ends there.")
        piped.ask("sessions", sid, other)
    finally:
        bridge.accept(hook("SessionEnd", other, {}))
    piped.until("ended")
    piped.ask("status", "-- No session is chosen: `sessions` lists them, `resume N` chooses one.")
    piped.ask(f"resume {sid}", f"-- {sid}: ")
    piped.ask("status", "kept.txt")


def test_what_goes_wrong_ends_nothing_but_a_signal_does(piped: Program) -> None:
    piped.ask("say Hello?", "-- AGENT_UNAVAILABLE: ")  # D39: hooks cannot control an agent
    piped.ask("interrupt", "error")
    piped.ask("help", *COMMANDS)
    piped.ask("nonsense", "-- nonsense: no such command")
    piped.ask("commit 'open", "-- No closing quotation")
    piped.ask("status", "kept.txt")
    # whoever holds the other end of the pipe need not close it first
    piped.process.send_signal(signal.SIGTERM)
    assert piped.process.wait(180) == 0, piped.shown


def test_commands_are_typed_in_a_terminal_too(bridge: Bridge, sid: str, typed: Program) -> None:
    """What is half typed when something arrives is not lost."""
    typed.say("sta", end="")
    typed.until("sta")
    ask(bridge, sid, "make one")
    typed.until("make one")
    typed.say("tus")
    typed.until(CHANGED)
    typed.ask("approve", "-- Bash: approved")


@pytest.mark.parametrize("leave", ["ctrl-d", "ctrl-c"])
def test_leaving_gives_the_terminal_back_as_it_was(typed: Program, leave: str) -> None:
    if leave == "ctrl-d":
        typed.end_of_input()
    else:
        typed.process.send_signal(signal.SIGINT)  # as the terminal that controls it would
    assert typed.ended() == 0, typed.shown
    assert typed.modes_now() == typed.modes
    assert "Traceback" not in typed.shown


def test_a_pipe_ends_it_and_no_input_does_not(bridge: Bridge, sid: str) -> None:
    """A script ends with its last line; started with nothing to read it follows until a signal."""
    with Program(bridge.environment, "watch", terminal=False) as program:
        program.ask("status", CHANGED)
        program.say("start demo .")
        program.say("say Good night.")
        program.end_of_input()
        assert program.ended() == 0
        assert "Good night." in program.shown, "its end waits for what became of the last line"
    with Program(bridge.environment, "watch", terminal=False) as program:
        program.end_of_input()
        program.until("connected to")
        ask(bridge, sid, "make one")
        program.until("make one")


@pytest.mark.slow
def test_the_afternoon_in_the_documents_is_as_it_is_told() -> None:
    """When this fails because the words have changed: python -m tests.run.afternoon --write."""
    assert afternoon.play().splitlines() == afternoon.written().splitlines()
