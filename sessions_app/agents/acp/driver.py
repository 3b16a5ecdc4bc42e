"""Runs any agent that speaks the Agent Client Protocol (protocol 1, over standard input and
output), as ``BRIDGE_ACP_AGENTS`` names it (D41).

ACP knows no "modified": such a call is rejected once, and when the agent has ended its turn the
changed parameters are said to it as a follow-up prompt, in the same turn of the bridge. The agent
then asks anew, and a person sees what will really run.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog
from acp import PROTOCOL_VERSION, RequestError, schema, text_block
from acp.client import ClientSideConnection
from pydantic import ValidationError

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.protocol.types import FinishReason
from sessions_app.agents.acp import recipes
from sessions_app.agents.acp.client import Host
from sessions_app.agents.acp.modes import Asking, Offer, choose, mode_in
from sessions_app.agents.acp.recipes import Recipe
from sessions_app.agents.acp.wire import Wire
from sessions_app.agents.driver import (
    AgentDied,
    CannotResume,
    CannotStart,
    Chunk,
    Driver,
    Event,
    SessionIdentified,
    Start,
    StoppedAsking,
    TurnEnded,
    Verdict,
    WillNotAsk,
)
from sessions_app.agents.process import groups

log = structlog.get_logger("bridge.agents.acp")

AUTH_REQUIRED = -32000  # the protocol's own
REASONS: dict[str, FinishReason] = {"end_turn": "stop", "cancelled": "stop", "max_tokens": "length"}
WHY = {
    "refusal": "The agent refused to go on with this prompt.",
    "max_turn_requests": "The agent has used up the calls of its model that one turn may have.",
}
_NEEDS_LINE = "{name} asks before it acts only when the bridge starts its program itself: BRIDGE_ACP_AGENTS must name the program, without a shell or a script around it."
_STRAYED = "{name} went to its mode {mode}, in which it may act without asking, and could not be set back. It was told to stop."
_ASTRAY = "{name} is in a mode in which it may act without asking, and cannot be set back: it was not given the prompt."
# Reading files is not announced, though it is answered: an agent has them itself, and gemini 0.61
# takes "not found" for a fault and writes no new file.
_CAPABILITIES = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(write_text_file=True), terminal=True
)
versions: dict[str, str] = {}  # what each agent said of itself when it was last started
asking: dict[str, bool | None] = {}  # and whether it asks before it acts


class AcpDriver(Driver):
    """One process and one session of an ACP agent."""

    can_modify = False

    def __init__(self, name: str, command: list[str]) -> None:
        self._name = name
        self._command = command
        self._said: asyncio.Queue[Event | None] = asyncio.Queue()
        self._taken = asyncio.Event()
        self._chars = 0  # of text in what was said and has not been taken
        self._turn: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._group: groups.Group | None = None
        self._connection: ClientSideConnection | None = None
        self._files: TemporaryDirectory[str] | None = None  # what its recipe has it read
        self._interrupted = False
        self._closing = False
        self._asking: Asking | None = None  # until it is settled how the agent is made to ask
        self._returning: asyncio.Task[None] | None = None  # to the mode in which it asks
        self._returns = 0  # in this turn
        self._mode = ""  # as far as it has reported it

    # -- start -------------------------------------------------------------------------------------

    async def start(self, start: Start) -> None:
        self._files = TemporaryDirectory(prefix="bridge-agent-", ignore_cleanup_errors=True)
        command, more = recipes.launch(self._command, start.directory, Path(self._files.name))
        try:
            self._group = await groups.start(command, start.directory, more=more, stdin=True)
        except OSError as error:
            self._files.cleanup()
            raise CannotStart(
                f"{self._name} could not be started: {error.strerror or error}. Its command is in BRIDGE_ACP_AGENTS."
            ) from error
        try:
            self._wire = Wire(self._group, self._room)
            self._host = Host(self._say, start.directory, self._mode_is)
            self._connection = ClientSideConnection(self._host, self._wire)
            await self._introduce(start)
        except BaseException:
            await asyncio.shield(self.close())
            raise
        self._say(SessionIdentified(self._session_id))
        self._watch = asyncio.create_task(self._watch_over(self._group))

    async def _introduce(self, start: Start) -> None:
        conn = self._conn
        try:
            hello = await conn.initialize(
                PROTOCOL_VERSION, _CAPABILITIES, schema.Implementation(name="bridge", version="1")
            )
            if hello.protocol_version != PROTOCOL_VERSION:
                raise CannotStart(
                    f"{self._name} speaks version {hello.protocol_version} of the protocol, the bridge {PROTOCOL_VERSION}."
                )
            versions[self._name] = (hello.agent_info.version if hello.agent_info else "") or ""
            recipe = recipes.of_line(self._command)
            named = (
                recipes.of_name(hello.agent_info.name)
                if hello.agent_info and recipe is None
                else None
            )
            meta = known.meta if (known := recipe or named) is not None else {}
            session = await (
                self._load(hello, start, meta)
                if start.resume_id
                else conn.new_session(cwd=str(start.directory), mcp_servers=[], **meta)
            )
            self._session_id = start.resume_id or session.session_id
            await self._have_it_ask(session, start, recipe, named)
        except RequestError as error:
            raise CannotStart(self._cannot(error)) from error
        except (ConnectionError, BrokenPipeError) as error:
            raise CannotStart(
                f"{self._name} could not be started: {await self._wire.last_words()}"
            ) from error
        except ValidationError as error:
            raise CannotStart(
                f"{self._name} does not answer as the Agent Client Protocol says."
            ) from error

    def _cannot(self, error: RequestError) -> str:
        if error.code == AUTH_REQUIRED:
            return f"{self._name} wants a login ({_words(error)}): run {shlex.join(self._command[:1])} once in a terminal on the bridge's machine."
        return f"{self._name} could not begin a session: {_words(error)}"

    async def _load(
        self, hello: schema.InitializeResponse, start: Start, meta: Mapping[str, Any]
    ) -> Any:
        """Continue a session. What the agent tells of its history, before or after its answer, is
        not said again.
        """
        assert start.resume_id is not None
        if not (hello.agent_capabilities and hello.agent_capabilities.load_session):
            raise CannotResume(f"{self._name} cannot continue an earlier session.")
        try:
            answer = await self._conn.load_session(
                cwd=str(start.directory), session_id=start.resume_id, mcp_servers=[], **meta
            )
        except RequestError as error:
            if error.code == AUTH_REQUIRED:
                raise
            raise CannotResume(
                f"{self._name} does not know this session any more: {_words(error)}"
            ) from error
        with contextlib.suppress(TimeoutError):  # one that tells on and on is taken as it is
            async with asyncio.timeout(limits.ACP_HISTORY_SECONDS):
                while await self._heard_again():
                    pass
        return answer

    async def _heard_again(self) -> bool:
        """Whether the agent says something more before it has been quiet for a while."""
        self._host.heard.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._host.heard.wait(), limits.ACP_QUIET_SECONDS)
        return self._host.heard.is_set()

    # -- that it asks ------------------------------------------------------------------------------

    async def _have_it_ask(
        self, session: Any, start: Start, recipe: Recipe | None, named: Recipe | None
    ) -> None:
        """Have the agent ask before it acts, whatever its own settings say.

        ``recipe`` is that of its command line, ``named`` that of the name that it gave itself.
        Raises WillNotAsk when it cannot be made to, unless BRIDGE_ACP_UNASKED names it.
        """
        try:
            if named is not None and named.needs_line:
                raise WillNotAsk(_NEEDS_LINE.format(name=self._name))
            offer = Offer.of(session)
            if (
                offer is None
                and start.resume_id
                and (known := recipe or named) is not None
                and not known.configured
            ):
                offer = Offer(known.modes[:1])  # its modes were told when the session began
            chosen = choose(self._name, recipe or named, offer)
            self._mode = chosen.wanted or (offer.current if offer is not None else "")
            self._asking = chosen  # from here on, what it reports of its mode counts
            if chosen.wanted is not None:
                await self._set(chosen)
        except (WillNotAsk, RequestError) as error:
            why = (
                str(error)
                if isinstance(error, WillNotAsk)
                else f"{self._name} cannot be made to ask before it acts: {_words(error)}."
            )
            asking[self._name] = False
            if self._name not in conf.bridge_acp_unasked:
                raise WillNotAsk(
                    f"{why} BRIDGE_ACP_UNASKED={self._name} lets it run all the same."
                ) from error
            log.warning("acp_agent_does_not_ask", agent=self._name, why=why)
            self._asking = Asking(False)
        self.asks = asking[self._name] = self._asking.asks

    async def _set(self, chosen: Asking) -> None:
        """Set the mode in which the agent asks. Raises RequestError, and WillNotAsk when it takes
        another.
        """
        assert chosen.wanted is not None
        if chosen.option is None:
            await self._conn.set_session_mode(session_id=self._session_id, mode_id=chosen.wanted)
            return
        answer = await self._conn.set_config_option(
            config_id=chosen.option, session_id=self._session_id, value=chosen.wanted
        )
        if (took := mode_in(answer)) not in (None, chosen.wanted):
            raise WillNotAsk(
                f"{self._name} cannot be made to ask before it acts: it takes the mode {took} for {chosen.wanted}."
            )

    def _mode_is(self, mode: str) -> None:
        """Set the agent back when it reports a mode in which it may not ask."""
        self._mode = mode
        self._set_back()

    def _set_back(self) -> None:
        """Begin to set the agent back, where that is needed and not under way."""
        under_way = self._returning is not None and not self._returning.done()
        if (
            self._asking is not None
            and self._asking.strays(self._mode)
            and not under_way
            and not self._closing
        ):
            self._returning = asyncio.create_task(self._return(self._asking))

    async def _return(self, chosen: Asking) -> None:
        """Set the agent back to the mode in which it asks; where that fails, tell it to stop."""
        while chosen.strays(left_for := self._mode):
            log.warning("acp_agent_changed_its_mode", agent=self._name, mode=left_for)
            self._returns += 1
            try:
                if chosen.wanted is None or self._returns > limits.ACP_MODE_RETURNS:
                    raise WillNotAsk(left_for)
                self._mode = chosen.wanted  # unless it reports another again, until it has answered
                async with asyncio.timeout(limits.ACP_MODE_SECONDS):
                    await self._set(chosen)
            except ConnectionError:
                return  # gone: the watch says so
            except (RequestError, ValidationError, TimeoutError, WillNotAsk):
                self._mode = left_for
                self._say(StoppedAsking(_STRAYED.format(name=self._name, mode=left_for)))
                await self.interrupt()
                return

    async def _asks_again(self) -> bool:
        """Before a turn: try once more with an agent that could not be set back."""
        if self._returning is not None:
            await asyncio.wait({self._returning})
        self._returns = 0
        self._set_back()
        if self._returning is not None:
            await asyncio.wait({self._returning})
        return self._asking is None or not self._asking.strays(self._mode)

    # -- what it says ------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[Event]:
        while (event := await self._said.get()) is not None:
            self._chars -= _weight(event)
            self._taken.set()
            yield event
            if isinstance(event, AgentDied):
                return

    def _say(self, event: Event) -> None:
        if not self._closing:
            self._chars += _weight(event)
            self._said.put_nowait(event)

    async def _room(self) -> None:
        """Wait until what was said has been taken: an agent that nobody listens to is not read
        either.
        """
        await asyncio.sleep(0)  # the message before this one says what it has to say first
        while (
            self._said.qsize() >= limits.AGENT_EVENTS_WAITING
            or self._chars >= limits.AGENT_CHARS_WAITING
        ):
            self._taken.clear()
            await self._taken.wait()

    async def _watch_over(self, group: groups.Group) -> None:
        """Say when the agent is gone, after all that it still said."""
        gone = [
            asyncio.create_task(group.exited.wait()),
            asyncio.create_task(self._wire.ended.wait()),
        ]
        try:
            await asyncio.wait(gone, return_when=asyncio.FIRST_COMPLETED)
            # What it had written is read first, and how it ended; something that it started may
            # hold its output open for ever.
            await asyncio.wait(gone, timeout=limits.AGENT_END_SECONDS)
        finally:
            for task in gone:
                task.cancel()
        if self._turn is not None:
            # it ends with the connection, having said what it had to
            await asyncio.wait({self._turn}, timeout=limits.AGENT_END_SECONDS)
            self._turn.cancel()
        self._host.asking.withdraw()
        why = await self._wire.last_words()
        self._say(AgentDied(f"{self._name} has stopped: {why}"))
        await groups.end_group(group)

    # -- what it is told ---------------------------------------------------------------------------

    async def prompt(self, content: str) -> None:
        self._interrupted = self._host.asking.stopping = False
        self._host.in_turn = True
        self._turn = asyncio.create_task(self._run(content))

    async def _run(self, content: str) -> None:
        ended = (
            await self._converse(content)
            if await self._asks_again()
            else TurnEnded("error", error=_ASTRAY.format(name=self._name))
        )
        if ended is not None:
            self._host.end_turn(interrupted=self._interrupted)
            self._say(ended)

    async def _converse(self, content: str) -> TurnEnded | None:
        """A prompt and those that follow from changed parameters; None when the agent is gone,
        which the watch says.
        """
        usage: dict[str, Any] = {}
        following: str | None = content
        ended = TurnEnded("stop")
        while following is not None and not self._interrupted:
            try:
                answer = await self._conn.prompt(
                    session_id=self._session_id, prompt=[text_block(following)]
                )
            except ConnectionError:
                return None
            except (RequestError, ValidationError) as error:
                ended = self._failed(error)
                break
            usage = _added(usage, _usage(answer, self._host.cost))
            ended = TurnEnded(
                REASONS.get(answer.stop_reason, "error"), None, WHY.get(answer.stop_reason, "")
            )
            following = self._host.asking.follow_up() if answer.stop_reason == "end_turn" else None
        return replace(ended, usage=usage or None)

    def _failed(self, error: RequestError | ValidationError) -> TurnEnded:
        if self._interrupted:  # some agents answer a cancelled prompt with an error
            return TurnEnded("stop")
        if isinstance(error, RequestError):
            return TurnEnded("error", error=f"{self._name}: {_words(error)}")
        return TurnEnded(
            "error",
            error=f"{self._name} ended its turn in a way that the Agent Client Protocol does not know.",
        )

    async def decide(self, call_id: str, verdict: Verdict) -> bool:
        return self._host.asking.decide(call_id, verdict)

    async def interrupt(self) -> None:
        if self._turn is None or self._turn.done():
            return
        self._interrupted = self._host.asking.stopping = True
        self._host.asking.withdraw()
        with contextlib.suppress(ConnectionError):  # gone: the watch says so
            await self._conn.cancel(session_id=self._session_id)

    async def end_background(self) -> None:
        if self._group is not None:
            await asyncio.gather(
                groups.end_background(self._group), self._host.terminals.end_background()
            )

    async def close(self) -> None:
        self._closing = True
        for task in (self._turn, self._watch, self._returning):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._connection is not None:
            await self._connection.close()
            self._wire.stop()
        if self._group is not None:
            ending = [groups.end_group(self._group)]
            if self._connection is not None:
                ending.append(self._host.terminals.close())
            # one after the other would take longer than the runtime waits
            await asyncio.gather(*ending)
        if self._files is not None:
            self._files.cleanup()
        self._said.put_nowait(None)

    @property
    def _conn(self) -> ClientSideConnection:
        assert self._connection is not None
        return self._connection


def _weight(event: Event) -> int:
    return len(event.content) if isinstance(event, Chunk) else 0


def _words(error: RequestError) -> str:
    """An agent's error in its own words, with the details that some put beside them."""
    data = error.data if isinstance(error.data, dict) else {}
    details = next(
        (data[name] for name in ("details", "message", "error") if isinstance(data.get(name), str)),
        "",
    )
    text = f"{error}: {details}" if details and details not in str(error) else str(error)
    return text[: limits.AGENT_REASON_MAX_CHARS]


def _usage(answer: schema.PromptResponse, cost: dict[str, Any] | None) -> dict[str, Any]:
    """The tokens of a turn, where the agent reports them (gemini beside the protocol), and the
    session's cost so far.
    """
    found = (
        answer.usage.model_dump(exclude_none=True, exclude={"field_meta"}) if answer.usage else {}
    )
    if not found:
        quota = (answer.field_meta or {}).get("quota")
        tokens = quota.get("token_count") if isinstance(quota, dict) else None
        found = (
            {name: count for name, count in tokens.items() if isinstance(count, int)}
            if isinstance(tokens, dict)
            else {}
        )
    return found | ({"cost": cost} if cost else {})


def _added(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The sum of the usage of two prompts; what is no number is the later one's."""
    return {
        name: first[name] + second[name]
        if isinstance(first.get(name), int) and isinstance(second.get(name), int)
        else second.get(name, first.get(name))
        for name in {**first, **second}
    }
