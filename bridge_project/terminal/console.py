"""What a person can tell the bridge from the terminal: sessions, approvals, git, files, messages;
one line a command.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge_project.terminal import listing
from bridge_project.terminal.client import Client, Lost, Message, Refused

Show = Callable[[str], None]

READ_LINES: Final = 200


class Wrong(Exception):
    """A command that cannot be carried out; the text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    usage: str
    help: str
    run: Callable[[Console, list[str]], Awaitable[None]]


class Console:
    """Carries out commands over whatever connection there is, and knows from what arrives which
    sessions there are and what waits for a decision.
    """

    def __init__(self, show: Show) -> None:
        self._show = show
        self.client: Client | None = None
        self.sessions: dict[str, str] = {}
        self.current: str | None = None
        self.pending: dict[tuple[str, str], Message] = {}

    # -- what arrives ------------------------------------------------------------------------------

    def learn(self, message: Message) -> None:
        """Take notice of sessions and approvals."""
        payload = message.get("payload") or {}
        session_id, call_id = str(payload.get("session_id")), str(payload.get("tool_call_id"))
        match message.get("type"):
            case "connection_ack":
                self.sessions = {
                    one["session_id"]: one.get("title") or "" for one in payload["active_sessions"]
                }
                self.pending.clear()  # what still waits comes again
            case "session_started":
                self.sessions.setdefault(session_id, "")
            case "session_ready":
                self.sessions.setdefault(session_id, payload.get("working_directory") or "")
                self.current = self.current or session_id
            case "session_end":
                self._forget(session_id)
            case "approval_required":
                self.pending[session_id, call_id] = payload
            case "approval_recorded":
                self.pending.pop((session_id, call_id), None)
            case "notification" if payload.get("notification_type") == "approval_decided":
                self.pending.pop(
                    (session_id, str((payload.get("data") or {}).get("tool_call_id"))), None
                )

    def _forget(self, session_id: str) -> None:
        self.sessions.pop(session_id, None)
        self.pending = {key: asked for key, asked in self.pending.items() if key[0] != session_id}
        if self.current == session_id:
            self.current = None

    # -- what a person says ------------------------------------------------------------------------

    async def do(self, line: str) -> None:
        """Carry out one line and show what came of it; nothing that is typed wrong ends
        anything.
        """
        try:
            name, arguments = _split(line)
            if name:
                await _find(name).run(self, arguments)
        except Wrong as wrong:
            self._show(f"-- {wrong}")
        except (Lost, Refused) as lost:
            self._show(f"-- {lost}")

    async def ask(self, type_: str, **payload: Any) -> Message:
        """The payload of the answer to a request. Raises Wrong with the error's words."""
        if self.client is None:
            raise Wrong("There is no connection at the moment.")
        answer = await self.client.request(type_, payload)
        self.learn(answer)
        body: Message = answer.get("payload") or {}
        if answer["type"] == "error":
            raise Wrong(f"{body.get('code')}: {listing.clean(body.get('message'))}")
        return body

    async def tell(self, type_: str, **payload: Any) -> None:
        """Send what nothing answers directly."""
        if self.client is None:
            raise Wrong("There is no connection at the moment.")
        await self.client.send(type_, payload)

    def show(self, lines: list[str]) -> None:
        for line in lines:
            self._show(line)

    @property
    def session(self) -> str:
        """The session that commands are about."""
        if self.current is None:
            raise Wrong("No session is chosen: `sessions` lists them, `use N` chooses one.")
        return self.current

    def named(self, word: str) -> str:
        """The session that a number of `sessions` means, else the one with that id."""
        known = list(self.sessions)
        return known[int(word) - 1] if word.isdigit() and 1 <= int(word) <= len(known) else word

    def waiting(self, arguments: list[str]) -> Message:
        """The approval that the first argument numbers; without one, the oldest."""
        number = int(arguments[0]) if arguments and arguments[0].isdigit() else 1
        asked = list(self.pending.values())
        if not 1 <= number <= len(asked):
            raise Wrong(
                "Nothing waits for a decision."
                if not asked
                else f"There are {len(asked)} that wait: `approvals` lists them."
            )
        return asked[number - 1]


def _split(line: str) -> tuple[str, list[str]]:
    name, _, rest = line.strip().partition(" ")
    if name in ("say", "modify", "start"):
        return name, [rest.strip()] if rest.strip() else []
    try:
        return name, shlex.split(rest)
    except ValueError as error:
        raise Wrong(f"{error}.") from None


def _find(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    alike = [one for one in COMMANDS if one.startswith(name)]
    if len(alike) == 1:
        return COMMANDS[alike[0]]
    raise Wrong(
        f"{name}: no such command"
        + (f"; {' or '.join(alike)}?" if alike else "; `help` lists them.")
    )


# -- the commands ----------------------------------------------------------------------------------


async def _help(console: Console, _arguments: list[str]) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    console.show([f"{command.usage.ljust(width)}  {command.help}" for command in COMMANDS.values()])


async def _sessions(console: Console, _arguments: list[str]) -> None:
    console.show(listing.sessions(console.sessions, console.current) or ["No session is open."])


async def _use(console: Console, arguments: list[str]) -> None:
    if not arguments:
        raise Wrong("Which one? `sessions` lists them.")
    chosen = console.named(arguments[0])
    await _join(console, chosen, resume=chosen not in console.sessions)


async def _resume(console: Console, arguments: list[str]) -> None:
    await _join(console, console.named(arguments[0]) if arguments else console.session, resume=True)


async def _join(console: Console, session_id: str, *, resume: bool) -> None:
    ready = await console.ask(
        "session_start", agent="", session_id=session_id, working_directory="", resume=resume
    )
    console.current = session_id
    console.show(
        [
            f"-- {session_id}: {listing.clean(ready.get('agent'))} in {listing.clean(ready.get('working_directory')) or 'no directory'}"
        ]
    )


async def _start(console: Console, arguments: list[str]) -> None:
    agent, _, directory = (arguments[0] if arguments else "").partition(" ")
    # a person quotes a path with a space, which needs no quotes here
    directory = directory.strip().strip("\"'") or "."
    ready = await console.ask(
        "session_start", agent=agent, session_id=None, working_directory=directory, resume=False
    )
    console.current = str(ready["session_id"])
    console.show(
        [
            f"-- started {listing.clean(ready.get('agent'))} as {console.current} in {listing.clean(ready.get('working_directory'))}"
        ]
    )


async def _end(console: Console, _arguments: list[str]) -> None:
    await console.tell("session_end", session_id=console.session, reason="user_request")
    console.current = None


async def _say(console: Console, arguments: list[str]) -> None:
    if not arguments:
        raise Wrong("Say what?")
    await console.tell("message", session_id=console.session, content=arguments[0], role="user")


async def _interrupt(console: Console, _arguments: list[str]) -> None:
    await console.tell("session_interrupt", session_id=console.session)


async def _approvals(console: Console, _arguments: list[str]) -> None:
    console.show(
        listing.approvals(list(console.pending.values())) or ["Nothing waits for a decision."]
    )


async def _approve(console: Console, arguments: list[str]) -> None:
    await _decide(console, console.waiting(arguments), "approved")


async def _reject(console: Console, arguments: list[str]) -> None:
    await _decide(console, console.waiting(arguments), "rejected")


async def _modify(console: Console, arguments: list[str]) -> None:
    first, _, rest = (arguments[0] if arguments else "").partition(" ")
    number, text = ([first], rest) if first.isdigit() else ([], arguments[0] if arguments else "")
    try:
        params = json.loads(text)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise Wrong('The new parameters are a JSON object: modify 1 {"command": "ls"}')
    await _decide(console, console.waiting(number), "modified", params)


async def _decide(
    console: Console, asked: Message, decision: str, modifications: Message | None = None
) -> None:
    ids = {"session_id": asked["session_id"], "tool_call_id": asked["tool_call_id"]}
    recorded = await console.ask(
        "approval_response", **ids, decision=decision, modifications=modifications
    )
    taken = (
        "" if recorded["forwarded"] else "; no agent session takes it: decide at the machine too"
    )
    console.show([f"-- {listing.clean(asked['tool'])}: {recorded['decision']}{taken}"])


async def _status(console: Console, _arguments: list[str]) -> None:
    console.show(
        listing.status(await console.ask("git_status_request", session_id=console.session))
    )


async def _diff(console: Console, arguments: list[str]) -> None:
    cached = "--cached" in arguments
    files = [argument for argument in arguments if argument != "--cached"]
    answer = await console.ask(
        "git_diff", session_id=console.session, files=files or None, cached=cached
    )
    console.show(listing.diff(answer) or ["No change."])


async def _commit(console: Console, arguments: list[str]) -> None:
    if not arguments:
        raise Wrong('A commit needs a message: commit "What it does." [FILE …]')
    answer = await console.ask(
        "git_commit", session_id=console.session, message=arguments[0], files=arguments[1:] or None
    )
    console.show(listing.commit(answer))


async def _list(console: Console, arguments: list[str]) -> None:
    answer = await console.ask(
        "file_list", session_id=console.session, path=arguments[0] if arguments else "."
    )
    console.show(listing.entries(answer))


async def _read(console: Console, arguments: list[str]) -> None:
    if not arguments:
        raise Wrong("Which file?")
    try:
        offset = int(arguments[1]) if len(arguments) > 1 else 0
        limit = int(arguments[2]) if len(arguments) > 2 else READ_LINES
    except ValueError:
        raise Wrong(f"Say: {COMMANDS['read'].usage}") from None
    answer = await console.ask(
        "file_read", session_id=console.session, path=arguments[0], offset=offset, limit=limit
    )
    console.show(listing.content(answer, offset))


COMMANDS: Final[Mapping[str, Command]] = {
    "help": Command("help", "this list", _help),
    "sessions": Command("sessions", "the open sessions", _sessions),
    "use": Command("use N|ID", "join a session; the commands below are about it", _use),
    "start": Command(
        "start [AGENT] [DIRECTORY]", "a new session of an agent that the bridge runs", _start
    ),
    "resume": Command(
        "resume [N|ID]",
        "have the agent of a session that is paused or failed go on; without a name the chosen one",
        _resume,
    ),
    "say": Command("say TEXT", "a message to that agent", _say),
    "interrupt": Command("interrupt", "stop what it is doing", _interrupt),
    "end": Command("end", "end the session; one that is only observed is left", _end),
    "approvals": Command("approvals", "what waits for a decision, in all sessions", _approvals),
    "approve": Command("approve [N]", "approve it; without a number the oldest", _approve),
    "reject": Command("reject [N]", "reject it", _reject),
    "modify": Command("modify [N] {JSON}", "approve it with other parameters", _modify),
    "status": Command("status", "the state of the repository", _status),
    "diff": Command("diff [--cached] [FILE …]", "the changes, line by line", _diff),
    "commit": Command('commit "MESSAGE" [FILE …]', "commit files, or all that is staged", _commit),
    "ls": Command("ls [PATH]", "a directory", _list),
    "read": Command("read FILE [FIRST] [LINES]", "lines of a file", _read),
}
