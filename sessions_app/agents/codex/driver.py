"""Run one session of codex, by its own app-server (D35, D40, D41, D75).

The server has one thread of the session's, and one for each of its subagents. Each thread asks
about all that it runs or changes: that is set when it begins, again with each turn, and looked up
in codex's answers.
"""

import asyncio
import base64
import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.picture_files import Picture
from bridge_project.kernel.text import clean, printable
from bridge_project.protocol.resources import Usage
from sessions_app.agents import events, started
from sessions_app.agents.codex import calls, changes, usage
from sessions_app.agents.codex.calls import Calls
from sessions_app.agents.codex.choices import Choices
from sessions_app.agents.codex.connection import Connection, NotKnown, Params, Refused
from sessions_app.agents.codex.program import NAME, command, log_in
from sessions_app.agents.codex.reading import count, part, parts, text
from sessions_app.agents.codex.transport import Lines
from sessions_app.agents.driver import (
    CannotResume,
    CannotStart,
    Driver,
    HistoryMessage,
    OpenElsewhere,
    Verdict,
    WillNotAsk,
)
from sessions_app.agents.process import groups
from sessions_app.approvals.tool_call import MAIN_AGENT, Agent, describe, usable_id

log = structlog.get_logger("bridge.agent")

# what each thread is begun with; a web search, which its maker's servers run, would not ask
ASKING: Final[Params] = {
    "approvalPolicy": "untrusted",
    "approvalsReviewer": "user",
    "sandbox": "read-only",
    "config": {"web_search": "disabled"},
}
_SANDBOX: Final[Params] = {"type": "readOnly", "networkAccess": False}
ASKING_TURN: Final[Params] = {
    "approvalPolicy": "untrusted",
    "approvalsReviewer": "user",
    "sandboxPolicy": _SANDBOX,
}
_DOES_NOT_ASK: Final = "codex would not ask about everything here: {why}."
_OPEN_ELSEWHERE: Final = (
    "Another program of codex has this session open. End it there; what a terminal has left "
    "running, `codex app-server daemon stop` ends."
)
NOT_ITS_SERVER: Final = (
    "This codex does not answer as its app-server does. Install a newer one (docs/agents.md)."
)
_NO_FORMS: Final = (
    "An MCP server asks for something that the bridge cannot show, so it was declined."
)
_NO_ITEM: Final = "The agent did not say what it would change, so it was rejected."
_REFUSED: Final = "I did not approve the call of {tool} ({call}): {reason}"
_CHANGED: Final = (
    "I did not approve the call of {tool} as you asked for it ({call}), but I do "
    "want it with other parameters. Please make the same call once more, with exactly these "
    "parameters:\n\n{wanted}"
)
_PAGE: Final = 100  # items of a thread's history that are asked for at once


class CodexDriver(Driver):
    """Run one app-server, and one session's threads in it."""

    picture_bytes = limits.PICTURE_BYTES
    SHOWN: Final = frozenset(
        {
            "item/commandExecution/requestApproval",
            "item/fileChange/requestApproval",
            "item/permissions/requestApproval",
            "item/tool/requestUserInput",
            "mcpServer/elicitation/request",
        }
    )  # what codex asks that a person is shown

    def __init__(self) -> None:
        super().__init__()
        self._calls = Calls(self.events, self.approvals, self._agent_of)
        self._choices = Choices((), {})
        self._history: Sequence[HistoryMessage] = ()
        self._group: groups.Group | None = None  # with it come the connection and what carries it
        self._reading: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()  # codex more about a decision
        self._thread = ""
        self._turns: dict[str, str] = {}  # thread → the turn that runs in it
        self._giving: asyncio.Task[None] | None = None  # a prompt, until codex has answered
        self._prompted = False  # a prompt was given whose turn has not ended
        self._interrupted = False
        self._held: events.TurnEnded | None = None  # while subagents go on
        self._follow_ups: list[str] = []  # prompts that follow in the same turn of ours
        self._used: Counter[str] = Counter()
        self._retry_told = -math.inf
        self._message = ""  # id of the answer that comes in pieces, and how much of it has come
        self._streamed = 0
        self._said = False  # an answer, after which nothing else was done

    @property
    def error_output(self) -> str:
        return self._lines.error_output if self._group is not None else ""

    @property
    def history(self) -> Sequence[HistoryMessage]:
        return self._history

    # -- starting ----------------------------------------------------------------------------------

    async def start(self, directory: Path, resume_id: str | None = None) -> None:
        self._calls.directory = directory
        group = await groups.start([*command(), "app-server"], directory, stdin=True)
        self._lines = Lines(group)
        self._connection = Connection(
            self._lines, self._noted, self._asked, self.events.wait_for_room
        )
        self._group = group
        self._reading = asyncio.create_task(self._connection.run())
        start = started.Start()
        try:
            await self._introduce(start, directory, resume_id)
            start.asks = True
        except WillNotAsk as error:
            start.asks, start.trouble = False, str(error)
            raise
        except Refused as error:
            raise CannotStart(f"codex could not begin a session: {error}") from error
        except ConnectionError as error:
            why = await self._lines.describe_end()
            raise CannotStart(f"codex could not be started: {why}") from error
        finally:
            started.last[NAME] = start
        self._watch = asyncio.create_task(self._report_death(group, self._reading))

    async def _introduce(
        self, start: started.Start, directory: Path, resume_id: str | None
    ) -> None:
        start.version = (await self._connection.greet())[: limits.AGENT_OPTION_NAME_CHARS]
        if not start.version:
            raise CannotStart(NOT_ITS_SERVER)
        account = await self._connection.ask("account/read")
        if account.get("requiresOpenaiAuth") is True and account.get("account") is None:
            raise CannotStart(log_in("it has no account"))
        models = await self._connection.ask("model/list", limit=limits.AGENT_OPTIONS)
        about = {"cwd": str(directory), **ASKING}
        if resume_id:
            answer = await self._resume(resume_id, about)
        else:
            answer = await self._connection.ask("thread/start", **about)
        if why := self._why_not(answer, "sandbox"):
            raise WillNotAsk(_DOES_NOT_ASK.format(why=why))
        await self._begin(parts(models, "data"), answer)

    async def _begin(self, models: Sequence[Params], answer: Params) -> None:
        """Take a thread by codex's answer; what a person may choose is in it."""
        thread = part(answer, "thread")
        self._thread = text(thread, "id")
        if usable_id(self._thread) is None:
            raise CannotStart(NOT_ITS_SERVER)
        self._choices = Choices(models, answer)
        self._offer_choices()
        self.events.put(events.SessionIdentified(self._thread))
        if title := text(thread, "name"):
            self.events.put(events.TitleChanged(title))

    async def _resume(self, resume_id: str, about: Params) -> Params:
        try:
            answer = await self._connection.ask(
                "thread/resume", threadId=resume_id, excludeTurns=True, **about
            )
        except Refused as error:
            if "active writer" in str(error):
                raise OpenElsewhere(_OPEN_ELSEWHERE) from error
            raise CannotResume(f"codex does not know this session any more: {error}") from error
        try:
            self._history = await self._read_history(resume_id)
        except Refused as error:  # of a thread in an older form
            log.warning("history_not_read", agent=NAME, why=str(error))
        return answer

    async def _read_history(self, thread: str) -> Sequence[HistoryMessage]:
        """Return what was said last in a thread, AGENT_HISTORY_CHARS at most."""
        found: list[HistoryMessage] = []
        chars, more = 0, dict[str, str]()
        while chars <= limits.AGENT_HISTORY_CHARS:
            about = {"threadId": thread, "limit": _PAGE, "sortDirection": "desc", **more}
            page = await self._connection.ask("thread/items/list", **about)
            entries = parts(page, "data")
            for item in (part(entry, "item") for entry in entries):
                message = message_of(item) if self._is_past(item) else None
                chars += len(message.text) if message is not None else 0
                if message is not None and chars <= limits.AGENT_HISTORY_CHARS:
                    found.append(message)
            cursor = text(page, "nextCursor")
            if not entries or not cursor or more == (more := {"cursor": cursor}):
                break
        return found[::-1]

    def _is_past(self, item: Params) -> bool:
        """Return whether an item of the history has not been told as it came."""
        return True

    # -- a turn ------------------------------------------------------------------------------------

    async def prompt(self, content: str, pictures: Sequence[Picture] = ()) -> None:
        self._interrupted = self._calls.interrupted = False
        self._prompted, self._said, self._held = True, False, None
        self._used.clear()
        self._follow_ups.clear()
        self._retry_told = -math.inf
        self._giving = asyncio.create_task(self._give(_input(content, pictures)))
        await asyncio.sleep(0)  # so that no interrupt overtakes it

    async def _give(self, given: list[Params], *, is_first: bool = True) -> None:
        try:
            answer = await self._connection.ask(
                "turn/start", threadId=self._thread, input=given, **self._about_turn()
            )
        except Refused as error:
            self._end_prompt(events.TurnEnded("error", error=f"codex: {error}"))
        except ConnectionError:
            return  # which is reported elsewhere
        else:
            if self._prompted:
                self._turns.setdefault(self._thread, text(part(answer, "turn"), "id"))
            if is_first:
                self.events.put(events.PromptMoved("given"))

    def _about_turn(self) -> Params:
        return {**ASKING_TURN, **self._choices.take_chosen()}

    async def steer(self, content: str, message_id: str, pictures: Sequence[Picture] = ()) -> None:
        await self._wait_given()
        try:
            await self._steer(self._thread, _input(content, pictures))
        except Refused as error:  # its turn has just ended
            log.info("steered_too_late", agent=NAME, why=str(error))
            if not self._prompted:
                self.events.put(events.PromptMoved("refused", message_id))
                return
            self._follow_ups.append(content)
            self._settle()
        except ConnectionError:
            return  # which is reported elsewhere
        self.events.put(events.PromptMoved("given", message_id))

    async def _steer(self, thread: str, given: list[Params], **more: Any) -> None:
        """Steer a thread's turn. Raises Refused, ConnectionError."""
        about = {"expectedTurnId": self._turns.get(thread, ""), "input": given, **more}
        await self._connection.ask("turn/steer", threadId=thread, **about)

    async def _wait_given(self) -> None:
        if self._giving is not None:
            await asyncio.wait({self._giving})

    async def interrupt(self) -> None:
        self._interrupted = self._calls.interrupted = True
        self.approvals.withdraw()
        await self._wait_given()
        await self._stop_turns()
        self._settle()
        if not self._prompted and not self._turns:
            self._calls.close_all()
            self._calls.interrupted = False

    async def _stop_turns(self) -> None:
        for thread, turn in tuple(self._turns.items()):
            with contextlib.suppress(Refused, ConnectionError):  # it has just ended
                await self._connection.ask("turn/interrupt", threadId=thread, turnId=turn)

    def _end_prompt(self, ended: events.TurnEnded) -> None:
        self._prompted, self._held = False, None
        self.approvals.withdraw()
        if self._turns:
            self._tell(self._stop_turns())
        self.events.put(ended)

    def _turn_completed(self, thread: str, turn: Params) -> None:
        is_prompt = self._prompted and self._is_main(thread)
        if self._turns.get(thread) != text(turn, "id") and (thread in self._turns or not is_prompt):
            return  # of another turn than the one that runs
        self._turns.pop(thread, None)
        self._calls.end_turn(thread)
        if self._is_main(thread):
            self._message, self._said = "", False
            ended = replace(_ended(turn), usage=dict(self._used) or None)
            if is_prompt:
                self._held = ended
            else:
                self.events.put(replace(ended, own=True))
        self._settle()

    def _settle(self) -> None:
        """End the prompt's turn once all is over: what follows in it, and its subagents."""
        if (ended := self._held) is None or self._thread in self._turns:
            return
        goes_on = ended == replace(ended, finish_reason="stop", interrupted=False)
        goes_on = goes_on and not self._interrupted
        if goes_on and self._follow_ups:
            self._held = None
            self.events.put(events.AnswerEnded())
            given = _input(self._follow_ups.pop(0))
            self._giving = asyncio.create_task(self._give(given, is_first=False))
        elif not goes_on or not self._turns:
            self._end_prompt(ended)

    # -- what codex reports ------------------------------------------------------------------------

    def _is_main(self, thread: str) -> bool:
        return thread == self._thread

    def _agent_of(self, thread: str) -> Agent:
        id_ = usable_id(thread)
        return MAIN_AGENT if id_ is None or self._is_main(thread) else Agent(id_)

    def _noted(self, method: str, params: Params) -> None:
        """Report what codex reports, of whichever thread."""
        self.events.note_activity()
        thread, item_id = text(params, "threadId"), text(params, "itemId")
        item = part(params, "item")
        match method:
            case "turn/started":
                self._turns[thread] = text(part(params, "turn"), "id")
            case "turn/completed":
                self._turn_completed(thread, part(params, "turn"))
            case "item/started":
                self._item_started(thread, item)
            case "item/completed":
                self._item_completed(thread, item)
            case "item/fileChange/patchUpdated":
                self._calls.update(thread, item_id, {"changes": params.get("changes")})
            case "item/commandExecution/terminalInteraction":
                self._calls.type(thread, item_id, text(params, "stdin"))
            case "thread/settings/updated":
                self._take_settings(thread, part(params, "threadSettings"))
            case "item/autoApprovalReview/started" | "turn/strictReview/required":
                self._stopped_asking("it has its own model decide")
            case "account/rateLimits/updated":
                self._note_usage(Usage(limits=usage.limits_of(part(params, "rateLimits"))))
            case _ if self._is_main(thread):
                self._noted_of_session(method, params)

    def _noted_of_session(self, method: str, params: Params) -> None:
        """Report what codex reports of the session's own thread."""
        match method:
            case "item/agentMessage/delta":
                self._say(text(params, "itemId"), text(params, "delta"))
            case "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta":
                self._calls.think(text(params, "delta"))
            case "turn/plan/updated":
                self._calls.plan(parts(params, "plan"))
            case "thread/tokenUsage/updated":
                used = part(params, "tokenUsage")
                self._used.update(usage.tokens_of(used))
                self._note_usage(usage.context_of(used))
            case "thread/name/updated" if name := text(params, "threadName"):
                self.events.put(events.TitleChanged(name))
            case "error" if params.get("willRetry") is True:
                self._tell_retry(text(part(params, "error"), "message"))

    def _note_usage(self, used: Usage) -> None:
        if any(value for _, value in used):
            self.events.put(events.UsageChanged(used))

    def _item_started(self, thread: str, item: Params) -> None:
        if item.get("type") == "agentMessage":
            if self._is_main(thread):
                self._begin_message(text(item, "id"))
            return
        self._calls.begin(thread, item)
        self._said = self._said and changes.shown(item) is None

    def _item_completed(self, thread: str, item: Params) -> None:
        if item.get("type") != "agentMessage":
            self._calls.end(thread, item)
        elif self._is_main(thread):
            id_, whole = text(item, "id"), text(item, "text")
            if id_ != self._message:
                self._begin_message(id_)
            self._say(id_, whole[self._streamed :])  # what did not come in pieces
            self._message = ""

    def _begin_message(self, id_: str) -> None:
        self._message, self._streamed = id_, 0

    def _say(self, id_: str, words: str) -> None:
        if not words:
            return
        if id_ != self._message:
            self._begin_message(id_)
        if not self._streamed and self._said:  # two answers, with nothing between them
            self.events.put(events.Chunk("\n\n"))
        self._streamed += len(words)
        self._said = True
        self.events.put(events.Chunk(words))

    def _take_settings(self, thread: str, settings: Params) -> None:
        if why := self._why_not(settings, "sandboxPolicy"):
            self._stopped_asking(why)
        elif self._is_main(thread):
            self._choices.note(text(settings, "model"), text(settings, "effort"))
            self._offer_choices()

    def _why_not(self, answer: Params, sandbox: str) -> str:
        return why_not(answer, sandbox, (ASKING["approvalPolicy"],))

    def _stopped_asking(self, why: str) -> None:
        """Report that codex does not ask any more, and stop it."""
        self.events.put(events.StoppedAsking(_DOES_NOT_ASK.format(why=why), bool(self._turns)))
        if self._turns:
            self._tell(self.interrupt())

    def _tell_retry(self, why: str) -> None:
        """Report the first retry of a turn at once, and then one in MODEL_RETRY_SECONDS."""
        now = time.monotonic()
        if now - self._retry_told >= limits.MODEL_RETRY_SECONDS:
            self._retry_told = now
            self.events.put(events.ModelRetried(clean(why)[: limits.AGENT_REASON_MAX_CHARS]))

    # -- what codex asks ---------------------------------------------------------------------------

    async def _asked(self, method: str, params: Params) -> Params:
        """Return the answer to a question of codex's; only this one call is ever allowed."""
        thread, item_id = text(params, "threadId"), text(params, "itemId")
        reason = text(params, "reason")
        match method:
            case "item/commandExecution/requestApproval":
                seen = calls.command_shown(params)
                own_id = "" if text(params, "approvalId") else item_id
                decision = await self._decide(thread, own_id, seen, reason)
                if decision == "accept" and seen.tool == calls.INPUT:
                    self._calls.allow_typing(thread, item_id)
                return {"decision": decision}
            case "item/fileChange/requestApproval":
                return {"decision": await self._decide_change(thread, item_id, params)}
            case "item/permissions/requestApproval":
                seen, wanted = calls.permissions_shown(params)
                decision = await self._decide(thread, "", seen, reason)
                return {"permissions": wanted if decision == "accept" else {}, "scope": "turn"}
            case "item/tool/requestUserInput":
                return {"answers": await self._answers(thread, params)}
            case "mcpServer/elicitation/request":
                action = await self._elicit(thread, params)
                given: Params | None = {} if action == "accept" else None
                return {"action": action, "content": given, "_meta": None}
        raise NotKnown

    async def _refuse(self, thread: str, tool: str, about: Params, said: str, why: str) -> None:
        """Show what the bridge refuses by itself."""
        self._calls.refuse(thread, tool, about, said, why)

    async def _decide(self, thread: str, item_id: str, seen: changes.Shown, reason: str) -> str:
        """Return a person's decision, as codex calls it."""
        self._said = False
        verdict = await self._calls.ask(thread, item_id, seen, reason)
        if verdict is None:
            return "cancel"
        if verdict.decision == "approved":
            return "accept"
        if calls.wants_told(verdict):
            await self._explain(thread, seen, verdict)
        return "decline"

    async def _explain(self, thread: str, seen: changes.Shown, verdict: Verdict) -> None:
        """Tell codex why, or how else, before it is told that its call is refused."""
        about = {"tool": seen.tool, "call": describe(seen.tool, seen.params)}
        words = _REFUSED.format(**about, reason=verdict.reason)
        if verdict.decision == "modified":
            given = dict(verdict.modifications or {})
            words = _CHANGED.format(**about, wanted=json.dumps(given, ensure_ascii=False, indent=2))
        try:
            await self._steer(thread, _input(words))
        except Refused as error:
            log.info("steered_too_late", agent=NAME, why=str(error))
            self._follow_ups.append(words)

    async def _decide_change(self, thread: str, item_id: str, params: Params) -> str:
        seen = changes.shown(self._calls.item(thread, item_id))
        if seen is None:
            await self._refuse(thread, "Edit", {}, text(params, "reason"), _NO_ITEM)
            return "decline"
        return await self._decide(thread, item_id, seen, text(params, "reason"))

    async def _answers(self, thread: str, params: Params) -> Params:
        """Return a person's answers to codex's questions, by their ids."""
        questions = calls.questions_in(params)
        verdict = await self._calls.ask_questions(
            thread, {"questions": questions}, text(params, "itemId")
        )
        given = (verdict.modifications or {}).get("answers") if verdict is not None else None
        given = given if isinstance(given, Mapping) else {}
        found = {}
        for one, asked in zip(questions, parts(params, "questions"), strict=True):
            answer = given.get(one["question"])
            said = answer if isinstance(answer, list) else [answer]
            if answer not in (None, "", []):
                found[text(asked, "id")] = {"answers": [*map(str, said)]}
        return found

    async def _elicit(self, thread: str, params: Params) -> str:
        """Decide about the call of a server's tool; decline all else that one asks."""
        meta = part(params, "_meta")
        server, tool = text(params, "serverName"), text(meta, "tool_name")
        if meta.get("codex_approval_kind") != "mcp_tool_call" or not tool:
            url = {"url": text(params, "url")} if text(params, "url") else {}
            about = {"server": server, **url}
            said = text(params, "message")
            await self._refuse(thread, "AskUserQuestion", about, said, _NO_FORMS)
            return "decline"
        seen = changes.shown_tool(server, tool, part(meta, "tool_params"))
        item_id = self._calls.find(thread, seen)
        return await self._decide(thread, item_id, seen, text(meta, "tool_description"))

    # -- what a person may choose ------------------------------------------------------------------

    def _offer_choices(self) -> None:
        self._offer(self.offers.with_options(self._choices.options()))

    async def _choose(self, option_id: str, value: str) -> None:
        self._choices.choose(option_id, value)  # codex is given it with the next turn
        self._offer_choices()

    # -- ending ------------------------------------------------------------------------------------

    def _tell(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def end_background(self) -> None:
        if self._group is not None:
            await groups.end_background(self._group)

    async def _report_death(self, group: groups.Group, reading: asyncio.Task[None]) -> None:
        """Report codex's end, after everything else that it reports."""
        ended = asyncio.create_task(self._lines.wait_ended())
        await asyncio.wait({ended, reading}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({reading}, timeout=limits.AGENT_END_SECONDS)
        ended.cancel()
        self.approvals.withdraw()
        fault = reading.exception() if reading.done() and not reading.cancelled() else None
        if fault is not None:
            log.error("driver_failed", agent=NAME, exc_info=fault)
            why = f"the bridge cannot read what it says ({type(fault).__name__})"
        else:
            why = await self._lines.describe_end()
        self.events.put(events.AgentDied(f"codex has stopped: {why}"))
        await groups.end_group(group)

    async def close(self) -> None:
        self.events.close()
        for task in (self._giving, self._watch, self._reading, *self._telling):
            if task is not None:
                task.cancel()
        if self._group is not None:
            await groups.end_group(self._group)
            self._lines.stop_reading()
        self._remove_place()


def why_not(answer: Params, sandbox: str, policies: Sequence[str]) -> str:
    """Return why a thread does not ask, by codex's answer; "" if it does."""
    if (policy := answer.get("approvalPolicy")) not in policies:
        return f"its approval policy is {_short(policy)}"
    if (reviewer := answer.get("approvalsReviewer")) != ASKING["approvalsReviewer"]:
        return f"what it asks goes to {_short(reviewer)}"
    box = part(answer, sandbox)
    if any(box.get(name) != value for name, value in _SANDBOX.items()):
        return f"its sandbox is {_short(box)}"
    return ""


def _short(value: Any) -> str:
    return printable(json.dumps(value))[: limits.AGENT_OPTION_NAME_CHARS]


def _input(content: str, pictures: Sequence[Picture] = ()) -> list[Params]:
    """Return a message as codex takes it."""
    shown: list[Params] = [
        {"type": "image", "url": f"data:{one.media_type};base64,{data}"}
        for one in pictures
        if (data := base64.b64encode(one.data).decode())
    ]
    return [*shown, {"type": "text", "text": content, "text_elements": []}]


def _ended(turn: Params) -> events.TurnEnded:
    match turn.get("status"):
        case "failed":
            error = part(turn, "error")
            said = (_words(text(error, name)) for name in ("message", "additionalDetails"))
            why = clean(": ".join(filter(None, said))) or "codex could not end its turn."
            if error.get("codexErrorInfo") == "unauthorized":
                why = log_in(why)
            return events.TurnEnded("error", error=why)
        case "interrupted":
            return events.TurnEnded("stop", interrupted=True)
    return events.TurnEnded("stop")


def _words(said: str) -> str:
    """Return the words in what a model's server has answered, which may be its JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(said)
        return text(part(found, "error"), "message") if isinstance(found, dict) else said
    return said


def message_of(item: Params) -> HistoryMessage | None:
    """Return what a person or codex has said, None for any other item."""
    match item.get("type"):
        case "agentMessage":
            said = text(item, "text")
        case "userMessage":
            said = "\n".join(filter(None, (text(one, "text") for one in parts(item, "content"))))
        case _:
            return None
    said = clean(said).strip()
    at = (count(item, "startedAtMs") or 0) / 1000
    return HistoryMessage(said, item["type"] == "agentMessage", at) if said else None
