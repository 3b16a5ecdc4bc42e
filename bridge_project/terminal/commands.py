"""Define what a person can type in `watch`, one function a command."""

import inspect
import json
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from bridge_project.terminal import render
from bridge_project.terminal.client import Lost, Message, Refused
from bridge_project.terminal.console import Console, Wrong
from bridge_project.terminal.render import clean, plain
from sessions_app.approvals.tool_call import Question
from sessions_app.notifications import NOTED

Run = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """Hold a command; ``whole``: all that follows its name is one argument."""

    usage: str
    help: str
    run: Run
    whole: bool


COMMANDS: Final[dict[str, Command]] = {}


def command(usage: str, help: str, *, whole: bool = False) -> Callable[[Run], Run]:
    """Register a command under the first word of its usage."""

    def register(run: Run) -> Run:
        COMMANDS[usage.split(maxsplit=1)[0]] = Command(usage, help, run, whole)
        return run

    return register


async def carry_out(console: Console, line: str) -> None:
    """Run one typed line and show the result; a mistake ends nothing."""
    name, _, rest = line.strip().partition(" ")
    try:
        if name:
            found = COMMANDS.get(name)
            if found is None:
                raise Wrong(f"{name}: no such command; `help` lists them.")
            typed = [rest.strip()] if found.whole and rest.strip() else shlex.split(rest)
            try:
                inspect.signature(found.run).bind(None, *typed)
            except TypeError:
                raise Wrong(f"Say: {found.usage}") from None
            await found.run(console, *typed)
    except ValueError as error:
        console.show(f"-- {error}.")
    except (Wrong, Lost, Refused) as wrong:
        console.show(f"-- {wrong}")


@command("help", "this list")
async def show_help(console: Console) -> None:
    width = max(len(one.usage) for one in COMMANDS.values())
    console.show(*(f"{one.usage.ljust(width)}  {one.help}" for one in COMMANDS.values()))


@command("sessions", "the open sessions")
async def list_sessions(console: Console) -> None:
    for number, session_id in enumerate(console.sessions, 1):
        chosen = "*" if session_id == console.current else " "
        console.show(f"{chosen} {number}  {console.called(session_id)}")
    if not console.sessions:
        console.show("No session is open.")


@command("use N|ID", "join a session; the commands below are about it")
async def use(console: Console, name: str) -> None:
    chosen = console.named(name)
    await _join(console, "", session_id=chosen, resume=chosen not in console.sessions)


@command("start [AGENT] [DIRECTORY]", "a new session of an agent that the bridge runs", whole=True)
async def start(console: Console, text: str = "") -> None:
    agent, _, directory = text.partition(" ")
    # a person quotes a path with a space, which needs no quotes here
    directory = directory.strip().strip("\"'") or "."
    await _join(console, "started ", agent=agent, working_directory=directory)


@command("resume [N|ID]", "have a paused or failed session go on; without a name the chosen one")
async def resume(console: Console, name: str = "") -> None:
    chosen = console.named(name) if name else console.session
    await _join(console, "resumed ", session_id=chosen, resume=True)


async def _join(console: Console, done: str, **how: Any) -> None:
    asked = {"agent": "", "session_id": None, "working_directory": "", "resume": False} | how
    ready = await console.ask("session_start", **asked)
    console.current = str(ready["session_id"])
    where = clean(ready.get("working_directory")) or "no directory"
    console.show(f"-- {done}{console.current}: {clean(ready.get('agent'))} in {where}")


@command("history", "what the bridge still has of the session")
async def show_history(console: Console) -> None:
    found = await console.ask("replay_request")
    past = Console(print)  # nothing in it is news
    past.titles = dict(console.titles)
    if not found["complete"]:
        console.show("(older messages are gone)")
    for message in found["messages"]:
        console.show(*filter(None, [past.line(message)]))


@command("say TEXT", "a message to that agent", whole=True)
async def say(console: Console, text: str) -> None:
    await console.send("message", content=text, role="user")


@command("interrupt", "stop what it is doing")
async def interrupt(console: Console) -> None:
    await console.send("session_interrupt")


@command("end", "end the session; one that is only observed is left")
async def end(console: Console) -> None:
    await console.send("session_end", reason="user_request")
    console.current = None


@command("approvals", "what waits for a decision, in all sessions")
async def list_approvals(console: Console) -> None:
    for number, one in enumerate(console.pending.values(), 1):
        risk = clean(one.get("risk_level"))
        console.show(f"{number}  [{risk}] {plain(one.get('description'), 300)}")
        if not render.questions(one):
            console.show(f"   {plain(json.dumps(one.get('params')), 300)}")
    if not console.pending:
        console.show("Nothing waits for a decision.")


@command("approve [N]", "approve the one that waits, or number N of `approvals`")
async def approve(console: Console, number: str = "") -> None:
    asked = console.waiting(number)
    if render.questions(asked):
        raise Wrong("It is a question: `answer` it, or `reject` it.")
    await _decide(console, asked, "approved")


@command("reject [N]", "reject it")
async def reject(console: Console, number: str = "") -> None:
    await _decide(console, console.waiting(number), "rejected")


@command("modify [N] {JSON}", "approve it with other parameters", whole=True)
async def modify(console: Console, typed: str) -> None:
    text = typed.lstrip("0123456789")
    try:
        params = json.loads(text)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise Wrong('The new parameters are a JSON object: modify 1 {"command": "ls"}')
    await _decide(console, console.waiting(typed.removesuffix(text)), "modified", params)


@command("answer [#N] CHOICE", "answer a question: a number, 1,3, or your own words", whole=True)
async def answer(console: Console, typed: str) -> None:
    number, _, said = typed[1:].partition(" ") if typed.startswith("#") else ("", "", typed)
    asked = console.waiting(number, question=True)
    questions = render.questions(asked)
    given = [said] if len(questions) == 1 else shlex.split(said)
    if len(given) != len(questions) or not all(map(str.strip, given)):
        raise Wrong(f"{len(questions)} to answer, in order; quote an answer that has a space.")
    answers = {one.text: _chosen(one, words) for one, words in zip(questions, given, strict=True)}
    await _decide(console, asked, "modified", asked["params"] | {"answers": answers})


def _chosen(question: Question, typed: str) -> str:
    """Return the labels of the typed numbers; anything else is an answer of one's own."""
    labels, words = list(question.choices), typed.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        return typed.strip()
    if not all(1 <= int(word) <= len(labels) for word in words):
        raise Wrong(f"{plain(question.text)} has the choices 1 to {len(labels)}.")
    if len(words) > 1 and not question.several:
        raise Wrong(f"{plain(question.text)} takes one choice.")
    return ", ".join(labels[int(word) - 1] for word in words)


async def _decide(console: Console, asked: Message, decision: str, params: Any = None) -> None:
    ids = {"session_id": asked["session_id"], "tool_call_id": asked["tool_call_id"]}
    recorded = await console.ask(
        "approval_response", **ids, decision=decision, modifications=params
    )
    nobody = NOTED if asked.get("source") == "hooks" else "No agent took it."
    taken = "" if recorded["forwarded"] else f". {nobody}"
    what = ", ".join(map(clean, params["answers"].values())) if "answers" in (params or {}) else ""
    console.show(f"-- {clean(asked['tool'])}: {what or recorded['decision']}{taken}")


@command("status", "the state of the repository")
async def show_status(console: Console) -> None:
    console.show(*render.status(await console.ask("git_status_request")))


@command("diff [--cached] [FILE …]", "the changes, line by line")
async def show_diff(console: Console, *arguments: str) -> None:
    files = [one for one in arguments if one != "--cached"] or None
    answer = await console.ask("git_diff", files=files, cached="--cached" in arguments)
    console.show(*(render.diff(answer) or ["No change."]))


@command('commit "MESSAGE" [FILE …]', "commit files, or all that is staged")
async def commit(console: Console, message: str, *files: str) -> None:
    answer = await console.ask("git_commit", message=message, files=list(files) or None)
    console.show(*render.commit(answer))


@command("ls [PATH]", "a directory")
async def list_directory(console: Console, path: str = ".") -> None:
    console.show(*render.entries(await console.ask("file_list", path=path)))


@command("read FILE [FIRST] [LINES]", "lines of a file")
async def read(console: Console, path: str, first: str = "0", lines: str = "200") -> None:
    if not (first + lines).isdecimal():
        raise Wrong(f"Say: {COMMANDS['read'].usage}")
    answer = await console.ask("file_read", path=path, offset=int(first), limit=int(lines))
    console.show(*render.content(answer, int(first)))
