"""Carry out what a person types in `watch`, one method a command."""

import inspect
import json
import shlex
from collections.abc import Callable, Iterable
from typing import Any, Final

from bridge_project.terminal import render
from bridge_project.terminal.client import Client, Lost, Message, Refused
from bridge_project.terminal.console import Console
from bridge_project.terminal.render import clean, plain
from sessions_app.approvals.tool_call import Question
from sessions_app.notifications import NOTED


class Wrong(Exception):
    """Report why a command cannot be carried out."""


class Commands:
    """Hold a command for each public method; its docstring is `usage: what it does`.

    A parameter ``text`` takes all that follows the command's name, others take a word each.
    """

    def __init__(self, console: Console, show: Callable[[str], None]) -> None:
        self.console, self.show = console, show
        self._digest = ""  # of a repository's programs, as they were shown last (D63)

    async def help(self) -> None:
        """help: this list"""
        texts = [(one.__doc__ or "").partition(": ") for one in COMMANDS.values()]
        width = max(len(usage) for usage, _, _ in texts)
        self._show_all(f"{usage.ljust(width)}  {what}" for usage, _, what in texts)

    async def sessions(self) -> None:
        """sessions: the open sessions, and what waits for a decision in them"""
        if self.console.client is None:
            self.show("There is no connection at the moment: this is how it was.")
        for number, session_id in enumerate(self.console.sessions, 1):
            chosen = "*" if session_id == self.console.current else " "
            self.show(f"{chosen} {number}  {self.console.called(session_id)}")
        if not self.console.sessions:
            self.show("No session is open.")
        for number, one in enumerate(self.console.pending.values(), 1):
            risk, where = clean(one["risk_level"]), self.console.titles.get(one["session_id"], "")
            asked = f"#{number}  [{risk}] {plain(one['description'], 300)}"
            self.show(f"{asked}  ({plain(where, 40)})")
            if not render.questions(one):
                self.show(f"    {plain(json.dumps(one['params']), 300)}")

    async def start(self, agent: str = "", *directory: str) -> None:
        """start [AGENT] [DIRECTORY]: a new session of an agent that the bridge runs"""
        where = " ".join(directory) or "."
        await self._join("started ", agent=agent, working_directory=where)

    async def resume(self, name: str = "") -> None:
        """resume [N|ID]: choose a session, and go on with it where it is paused or failed"""
        chosen = self._named(name)
        known = self.console.sessions.get(chosen, {})
        runs = known.get("kind") == "observed" or known.get("session_status") == "active"
        if runs and not name and (rests := self._at_rest()):
            raise Wrong(f"Nothing rests in the chosen one. `resume N` takes {' or '.join(rests)}.")
        await self._join("" if runs else "resumed ", session_id=chosen, resume=not runs)

    async def say(self, text: str) -> None:
        """say TEXT: send the session's agent a message"""
        await self._ask("message", content=text, role="user")

    async def interrupt(self) -> None:
        """interrupt: stop what the agent is doing"""
        await self._send("session_interrupt")

    async def end(self) -> None:
        """end: end the session, unless it is a terminal's"""
        if self.console.sessions.get(self._named(""), {}).get("kind") == "observed":
            raise Wrong("It runs in a terminal, and ends there.")
        await self._send("session_end", reason="user_request")
        self.console.current = None

    async def approve(self, number: str = "", option: str = "") -> None:
        """approve [N] [ID]: approve the waiting call, or number N; ID: an option or rule"""
        if number and not number.isdecimal():
            number, option = "", number
        if render.questions(asked := self._waiting(number)):
            raise Wrong("It is a question: `answer` it, or `reject` it.")
        await self._decide(asked, "approved", option=option)

    async def reject(self, text: str = "") -> None:
        """reject [N] [WHY]: reject the waiting call, or number N, and tell the agent why"""
        number, _, why = text.partition(" ")
        if not number.isdecimal():
            number, why = "", text
        await self._decide(self._waiting(number), "rejected", reason=why)

    async def rules(self) -> None:
        """rules: the rules of the chosen session, which approve calls without asking"""
        known = self._rules()
        for number, one in enumerate(known, 1):
            self.show(f"{number}  {render.rule(one)}")
        if not known:
            self.show("No rule: none is approved by itself.")

    async def forget(self, number: str) -> None:
        """forget N: take back number N of `rules`"""
        known = self._rules()
        if not number.isdecimal() or not 1 <= int(number) <= len(known):
            raise Wrong("There is no such rule: `rules` lists them.")
        gone = known[int(number) - 1]
        await self._ask("rule_remove", rule_id=gone["id"])
        self.show(f"-- taken back: {clean(gone['label'])}")

    async def modify(self, text: str) -> None:
        """modify [N] {JSON}: approve it with other parameters"""
        given = text.lstrip("0123456789")
        asked = self._waiting(text.removesuffix(given))
        params = json.loads(given)
        await self._decide(asked, "modified", params)

    async def answer(self, text: str) -> None:
        """answer [#N] CHOICE: answer a question: 2, or 1,3, or your own words"""
        number, _, reply = text[1:].partition(" ") if text.startswith("#") else ("", "", text)
        if not (questions := render.questions(asked := self._waiting(number))):
            raise Wrong("It is no question: `approve` or `reject` it.")
        given = [reply] if len(questions) == 1 else shlex.split(reply)
        if len(given) != len(questions) or not all(map(str.strip, given)):
            raise Wrong(f"{len(questions)} to answer, in order; quote an answer that has a space.")
        pairs = zip(questions, given, strict=True)
        answers = {question.text: _chosen(question, typed) for question, typed in pairs}
        reply = ", ".join(answers.values())
        await self._decide(asked, "modified", asked["params"] | {"answers": answers}, reply)

    async def status(self) -> None:
        """status: the state of the repository"""
        self._show_all(render.status(await self._ask("git_status_request")))

    async def commit(self, *words: str) -> None:
        """commit [--trust] "MESSAGE" [FILE …]: commit files, or all that is staged"""
        trusted, words = words[:1] == ("--trust",), words[words[:1] == ("--trust",) :]
        if not words:
            raise Wrong("Say what the commit is about.")
        seen = await self._ask("git_status_request")
        asked = {"message": words[0], "files": list(words[1:]) or None}
        asked |= {"repository": seen["repository"], "head": seen["head"] or ""}
        asked |= {"trust": self._digest} if trusted and self._digest else {}
        self._show_all(render.status(await self._ask("git_commit", **asked)))

    def _show_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.show(line)

    async def _ask(self, type_: str, **payload: Any) -> Message:
        """Send a request about the chosen session; return its answer. Raises Wrong."""
        client, about = self._about(payload)
        answer = await client.request(type_, about)
        body: Message = answer.get("payload") or {}
        if body.get("code") == "GIT_TRUST_REQUIRED":
            self._digest = body["details"]["digest"]  # of the programs that are shown now
            self._show_all(render.programs(body["details"]))
            raise Wrong("The repository brings these. `commit --trust …` runs them.")
        if answer["type"] == "error":
            raise Wrong(f"{body.get('code')}: {clean(body.get('message'))}")
        self.console.learn(answer)
        return body

    async def _send(self, type_: str, **payload: Any) -> None:
        """Send a message without an answer, about the chosen session."""
        client, about = self._about(payload)
        await client.send(type_, about)

    async def _join(self, done: str, **how: Any) -> None:
        asked = {"agent": "", "session_id": None, "working_directory": "", "resume": False} | how
        ready = await self._ask("session_start", **asked)
        self.console.current = str(ready["session_id"])
        where = clean(ready.get("working_directory")) or "no directory"
        self.show(f"-- {done}{ready['session_id']}: {render.agent(ready)} in {where}")

    async def _decide(
        self,
        asked: Message,
        decision: str,
        params: Any = None,
        summary: str = "",
        option: str = "",
        reason: str = "",
    ) -> None:
        ids = {"session_id": asked["session_id"], "tool_call_id": asked["tool_call_id"]}
        how = ids | {"decision": decision, "modifications": params}
        how |= {"reason": reason} if reason else {}
        offered = [one["id"] for one in asked.get("remember") or []]
        known = [*offered, *(one["id"] for one in asked.get("options") or [])]
        if option and option not in known:
            ways = ", ".join(f"`approve {one}`" for one in known)
            raise Wrong(f"{option} is not offered for this call, but {ways or '`approve` alone'}.")
        how |= {"remember" if option in offered else "option_id": option} if option else {}
        recorded = await self._ask("approval_response", **how)
        nobody = NOTED if asked.get("source") == "hooks" else "No agent took it."
        taken = "" if recorded["forwarded"] else f". {nobody}"
        self.show(f"-- {clean(asked['tool'])}: {clean(summary) or recorded['decision']}{taken}")

    def _about(self, payload: Message) -> tuple[Client, Message]:
        """Return the connection, and the payload with a session. Raises Wrong."""
        if self.console.client is None:
            raise Wrong("There is no connection at the moment.")
        if "session_id" not in payload:
            payload = payload | {"session_id": self._named("")}
        return self.console.client, payload

    def _rules(self) -> list[Message]:
        """Return the rules of the chosen session. Raises Wrong."""
        return list(self.console.sessions.get(self._named(""), {}).get("rules") or [])

    def _named(self, word: str) -> str:
        """Return the session of a number in `sessions`, of an id, or the chosen one."""
        known = list(self.console.sessions)
        if word.isdecimal() and 1 <= int(word) <= len(known):
            return known[int(word) - 1]
        if not word and self.console.current is None:
            raise Wrong("No session is chosen: `sessions` lists them, `resume N` chooses one.")
        return word or str(self.console.current)

    def _at_rest(self) -> list[str]:
        """Return the numbers of the sessions that are paused or failed."""
        known = enumerate(self.console.sessions.values(), 1)
        return [str(at) for at, one in known if one.get("session_status") in ("paused", "error")]

    def _waiting(self, number: str) -> Message:
        """Return the approval of that number, or the only one that waits. Raises Wrong."""
        asked = list(self.console.pending.values())
        if not asked:
            raise Wrong("Nothing waits for a decision.")
        if not number and len(asked) == 1:
            return asked[0]
        if not number.isdecimal() or not 1 <= int(number) <= len(asked):
            raise Wrong(f"{len(asked)} wait: `sessions` lists them; say which number.")
        return asked[int(number) - 1]


COMMANDS: Final = {name: one for name, one in vars(Commands).items() if name.isalpha()}


async def run_line(commands: Commands, line: str) -> None:
    """Run one typed line; report a mistake and go on."""
    name, _, rest = line.strip().partition(" ")
    try:
        if (found := COMMANDS.get(name)) is not None:
            signature = inspect.signature(found)
            whole = "text" in signature.parameters and rest.strip()
            typed = [rest.strip()] if whole else shlex.split(rest)
            try:
                signature.bind(commands, *typed)
            except TypeError:
                raise Wrong(f"Say: {found.__doc__.partition(': ')[0]}") from None
            await found(commands, *typed)
        elif name:
            commands.show(f"-- {name}: no such command; `help` lists them.")
    except (ValueError, Wrong, Lost, Refused) as wrong:  # such as a quotation that is not closed
        commands.show(f"-- {wrong}")


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
