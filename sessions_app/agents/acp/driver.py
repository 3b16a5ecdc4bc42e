"""Run any agent that speaks the Agent Client Protocol on its stdio (D41)."""

import asyncio
import base64
import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from acp import PROTOCOL_VERSION, RequestError, image_block, schema, text_block
from acp.client import ClientSideConnection
from pydantic import ValidationError

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.picture_files import Picture
from bridge_project.protocol.types import FinishReason
from sessions_app.agents import events, started
from sessions_app.agents.acp import recipes
from sessions_app.agents.acp.choices import Choices, commands_of
from sessions_app.agents.acp.client import AcpClient
from sessions_app.agents.acp.content import HistoryCollector, tokens_of
from sessions_app.agents.acp.errors import AUTH_REQUIRED, how_to_log_in, is_busy, text_of_error
from sessions_app.agents.acp.modes import ModeKeeper, offer_of
from sessions_app.agents.acp.recipes import Recipe
from sessions_app.agents.acp.transport import AcpTransport
from sessions_app.agents.driver import (
    CannotResume,
    CannotStart,
    Driver,
    HistoryMessage,
    NotTaken,
    WillNotAsk,
)
from sessions_app.agents.process import groups

Blocks = list[Any]  # a prompt's text and pictures; the library has a union of five kinds

VERSION_CHARS = 100  # of what an agent says of itself
REASONS: dict[str, FinishReason] = {"end_turn": "stop", "cancelled": "stop", "max_tokens": "length"}
_NOT_ASKING = (
    "{name} is in a mode in which it may act without asking, and cannot be set back: it was "
    "not given the prompt."
)
_BARRED = (
    "{name} would run what the repository says in {file} without asking: the bridge does not start "
    "it there. BRIDGE_ACP_UNASKED={name} lets it run all the same."
)
_STAYS_BUSY = (
    "it is busy with something of its own, and has not taken the message for "
    f"{limits.ACP_BUSY_MAX_SECONDS / 60:g} minutes. Send it again later."
)
# neither files nor terminals (D76)
_CAPABILITIES = schema.ClientCapabilities(
    elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
)


class AcpDriver(Driver):
    """Run one process and one session of an ACP agent."""

    def __init__(self, name: str, command: list[str]) -> None:
        super().__init__()
        self._name = name
        self._command = command
        self._log_in = how_to_log_in(recipes.of_line(command), None)
        self._modes = ModeKeeper(name, self._stopped_asking)
        self._choices: Choices | None = None  # once the session has begun
        self._history: Sequence[HistoryMessage] = ()  # complete with the first prompt
        self._turn: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._group: groups.Group | None = None  # with it come transport, client and connection

    @property
    def error_output(self) -> str:
        return self._transport.error_output if self._group is not None else ""

    @property
    def history(self) -> Sequence[HistoryMessage]:
        collector = self._client.collector if self._group is not None else None
        return collector.messages() if collector is not None else self._history

    # -- starting ----------------------------------------------------------------------------------

    async def start(self, directory: Path, resume_id: str | None = None) -> None:
        self._barred = await asyncio.to_thread(recipes.barred_by, self._command, directory)
        if self._barred and self._name not in conf.bridge_acp_unasked:
            raise WillNotAsk(_BARRED.format(name=self._name, file=self._barred))
        command, more = recipes.launch(self._command, directory, self._place)
        group = await groups.start(command, directory, more=more, stdin=True)
        self._transport = AcpTransport(group, self._wait_for_room)
        self._client = AcpClient(
            self.events, self.approvals, directory, self._modes.take, self._take_offers
        )
        self._connection = ClientSideConnection(
            cast(Any, self._client), self._transport, use_unstable_protocol=True
        )
        self._group = group
        await self._introduce(directory, resume_id)
        self._watch = asyncio.create_task(self._report_death(group))

    async def _wait_for_room(self) -> None:
        await asyncio.sleep(0)  # the message before this one reports what it has to first
        await self.events.wait_for_room()

    async def _introduce(self, directory: Path, resume_id: str | None) -> None:
        """Begin or load the session, and have the agent ask."""
        start = started.Start()
        try:
            hello = await self._connection.initialize(
                PROTOCOL_VERSION, _CAPABILITIES, schema.Implementation(name="bridge", version="1")
            )
            if hello.protocol_version != PROTOCOL_VERSION:
                raise CannotStart(
                    f"{self._name} speaks version {hello.protocol_version} of the protocol, "
                    f"the bridge {PROTOCOL_VERSION}."
                )
            if _takes_pictures(hello):
                self.picture_bytes = limits.PICTURE_BYTES
            info = hello.agent_info
            start.version = ((info.version if info else "") or "")[:VERSION_CHARS]
            of_line = recipes.of_line(self._command)
            recipe = of_line
            if info and (of_line is None or not of_line.is_called(info.name)):
                recipe = recipes.of_name(info.name)  # another program of that name
            self._log_in = how_to_log_in(recipe, hello.auth_methods)
            meta = recipe.meta if recipe is not None else {}
            where: dict[str, Any] = {"cwd": str(directory), "mcp_servers": [], **meta}
            session: Any
            if resume_id:
                session = await self._load(hello, resume_id, where)
            else:
                session = await self._connection.new_session(**where)
            self._session_id = resume_id or session.session_id
            start.asks = await self._set_up(session, recipe, of_line, resumed=bool(resume_id))
            started.last[self._name] = start
        except WillNotAsk as error:
            start.asks, start.trouble = False, str(error)
            started.last[self._name] = start
            raise
        except RequestError as error:
            raise CannotStart(self._text_of(error, " could not begin a session")) from error
        except ConnectionError as error:
            why = await self._transport.describe_end()
            raise CannotStart(f"{self._name} could not be started: {why}") from error
        except ValidationError as error:
            why = "does not answer as the Agent Client Protocol says"
            raise CannotStart(f"{self._name} {why}.") from error
        if _can_load(hello) or _can_resume(hello):
            self.events.put(events.SessionIdentified(self._session_id))

    async def _set_up(
        self, session: Any, recipe: Recipe | None, of_line: Recipe | None, *, resumed: bool
    ) -> bool | None:
        """Have the agent ask, and know what it offers; return whether it asks.

        ``session``: the answer that began or loaded it; ``of_line``: the command line's recipe.
        Raises WillNotAsk.
        """
        self._choices = Choices(recipe, session)
        self._offer(self.offers.with_options(self._choices.options))
        asks = await self._modes.set_asking_mode(
            self._connection,
            self._session_id,
            offer_of(session),
            recipe,
            by_name=recipe is not of_line,
            resumed=resumed,
        )
        self.asks = asks and not self._barred  # then it runs only as it may act unasked
        return asks

    def _text_of(self, error: RequestError, what: str = "") -> str:
        if error.code == AUTH_REQUIRED:
            return f"{self._name} wants a login ({text_of_error(error)}). {self._log_in}"
        return f"{self._name}{what}: {text_of_error(error)}"

    async def _load(
        self, hello: schema.InitializeResponse, resume_id: str, where: dict[str, Any]
    ) -> Any:
        """Load a session; what the agent reports before the first prompt is its history.

        Wait until it falls silent: what came once a prompt was given would be said as an answer.
        One that can only be resumed reports none.
        """
        if not _can_load(hello) and not _can_resume(hello):
            raise CannotResume(f"{self._name} cannot continue an earlier session.")
        try:
            if not _can_load(hello):
                return await self._connection.resume_session(session_id=resume_id, **where)
            self._client.collector = HistoryCollector()
            answer = await self._connection.load_session(session_id=resume_id, **where)
        except RequestError as error:
            if error.code == AUTH_REQUIRED:
                raise
            why = f"does not know this session any more: {text_of_error(error)}"
            raise CannotResume(f"{self._name} {why}") from error
        with contextlib.suppress(TimeoutError):  # one that never stops
            async with asyncio.timeout(limits.ACP_HISTORY_SECONDS):
                await self._wait_silent()
        return answer

    # -- a turn ------------------------------------------------------------------------------------

    async def prompt(self, content: str, pictures: Sequence[Picture] = ()) -> None:
        self._history = self.history
        self._client.begin_turn()
        blocks: Blocks = [
            image_block(base64.b64encode(one.data).decode(), one.media_type) for one in pictures
        ]
        self._turn = asyncio.create_task(self._run([*blocks, text_block(content)]))

    async def _run(self, content: Blocks) -> None:
        why = _NOT_ASKING.format(name=self._name)
        ended: events.TurnEnded | None = events.TurnEnded("error", error=why)
        if await self._modes.asks_again():
            ended = await self._converse(content)
        if ended is not None:
            self._client.end_turn()
            self.events.put(ended)

    async def _converse(self, content: Blocks) -> events.TurnEnded | None:
        """Give a prompt, and those that follow from changes; None if the agent is gone."""
        usage: Counter[str] = Counter()
        following: Blocks | None = content
        ended = events.TurnEnded("stop")
        while following is not None and not self._client.calls.interrupted:
            try:
                answer = await self._give(following)
            except ConnectionError:
                return None
            except (RequestError, ValidationError) as error:
                ended = self._failed(error)
                break
            usage.update(tokens_of(answer))
            reason = answer.stop_reason
            why = "" if reason in REASONS else f"{self._name} ended its turn: {reason}."
            ended = events.TurnEnded(REASONS.get(reason, "error"), error=why)
            following = None
            if reason in ("end_turn", "cancelled"):  # some cancel their turn at a refusal
                text = self._client.permissions.next_follow_up()
                following = None if text is None else [text_block(text)]
            if following is not None:
                self.events.put(events.AnswerEnded())
        return replace(ended, usage={**usage, **self._client.cost} or None)

    async def _give(self, content: Blocks) -> schema.PromptResponse:
        """Give a prompt, and again as long as the agent is busy by itself (D71).

        What it says meanwhile is a turn of its own, which ends before the next try.
        """
        until, seen_free = time.monotonic() + limits.ACP_BUSY_MAX_SECONDS, False
        queued = False  # as the devices know it
        while True:
            self._client.said = False
            try:
                return await self._try_to_give(content)
            except RequestError as error:
                if not is_busy(error) or self._client.calls.interrupted:
                    raise
                if time.monotonic() >= until:
                    self.events.put(events.PromptMoved("refused"))
                    raise RequestError(error.code, _STAYS_BUSY) from error
            if not queued:
                self.events.put(events.PromptMoved("queued"))
            seen_free, queued = await self._wait_free(seen_free=seen_free), True
            if self._client.said:
                self.events.put(events.AnswerEnded(own=True))
                queued = False

    async def _try_to_give(self, content: Blocks) -> schema.PromptResponse:
        """Give a prompt once; the agent has it when it does not refuse it at once."""
        prompt = self._connection.prompt(session_id=self._session_id, prompt=content)
        answer = asyncio.ensure_future(prompt)
        try:
            await asyncio.wait({answer}, timeout=limits.ACP_REFUSAL_SECONDS)
            why = answer.exception() if answer.done() else None
            busy = isinstance(why, RequestError) and is_busy(why)
            if not busy and not isinstance(why, ConnectionError):
                self.events.put(events.PromptMoved("given"))
            return await answer
        finally:
            answer.cancel()

    async def _wait_free(self, *, seen_free: bool) -> bool:
        """Wait until the agent falls silent, the first time, else ACP_BUSY_SECONDS.

        Return whether it has fallen silent by now, or did so before.
        """
        updated = self._client.updated
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.ACP_BUSY_SECONDS):
                while not self._client.calls.interrupted:
                    updated.clear()
                    await updated.wait()
                    if not seen_free:
                        await self._wait_silent()
                        return True
        return seen_free

    async def _wait_silent(self) -> None:
        """Wait until the agent has sent no update for ACP_QUIET_SECONDS."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._client.updated.clear()
                async with asyncio.timeout(limits.ACP_QUIET_SECONDS):
                    await self._client.updated.wait()

    def _failed(self, error: RequestError | ValidationError) -> events.TurnEnded:
        # some agents answer a cancelled prompt with an error
        if self._client.calls.interrupted:
            return events.TurnEnded("stop")
        unknown = f"{self._name} ended its turn in a way that the protocol does not know."
        why = self._text_of(error) if isinstance(error, RequestError) else unknown
        return events.TurnEnded("error", error=why)

    # -- what a person may choose ------------------------------------------------------------------

    def _take_offers(self, update: Any) -> None:
        """Take the options or commands that an update tells."""
        if isinstance(update, schema.AvailableCommandsUpdate):
            self._offer(self.offers.with_commands(commands_of(update)))
        elif self._choices is not None and self._choices.take(update):
            self._offer(self.offers.with_options(self._choices.options))

    async def _choose(self, option_id: str, value: str) -> None:
        assert self._choices is not None
        try:
            answer = await self._choices.set(self._connection, self._session_id, option_id, value)
        except RequestError as error:
            raise NotTaken(self._text_of(error)) from error
        except ConnectionError as error:
            raise NotTaken(f"{self._name} is gone.") from error
        self._modes.take(answer)  # so that what left the asking mode is set back
        self._choices.take(answer)
        self._offer(self.offers.with_options(self._choices.options))
        took = next((one.value for one in self.offers.options if one.id == option_id), "")
        if took != value:
            raise NotTaken(f"{self._name} takes {took or 'something else'} for {value}.")

    async def interrupt(self) -> None:
        self._client.interrupt()
        with contextlib.suppress(ConnectionError):  # gone, which is reported elsewhere
            await self._connection.cancel(session_id=self._session_id)

    async def _stopped_asking(self, reason: str) -> None:
        interrupted = self._turn is not None
        self.events.put(events.StoppedAsking(reason, interrupted))
        if interrupted:
            await self.interrupt()

    # -- ending ------------------------------------------------------------------------------------

    async def end_background(self) -> None:
        if self._group is not None:
            await groups.end_background(self._group)

    async def _report_death(self, group: groups.Group) -> None:
        """Report the agent's end, after everything else that it reports."""
        await self._transport.wait_ended()
        if self._turn is not None:
            # it ends with the connection, having reported what it had to
            await asyncio.wait({self._turn}, timeout=limits.AGENT_END_SECONDS)
            self._turn.cancel()
        self._client.permissions.withdraw()
        why = await self._transport.describe_end()
        self.events.put(events.AgentDied(f"{self._name} has stopped: {why}"))
        await groups.end_group(group)

    async def close(self) -> None:
        self.events.close()
        self._modes.close()
        if self._group is not None:
            self._client.close()
        for task in (self._turn, self._watch):
            if task is not None:
                task.cancel()
        if self._group is not None:
            await self._connection.close()
            await groups.end_group(self._group)
            self._transport.stop_reading()
        self._remove_place()


def _takes_pictures(hello: schema.InitializeResponse) -> bool:
    found = hello.agent_capabilities and hello.agent_capabilities.prompt_capabilities
    return bool(found and found.image)


def _can_load(hello: schema.InitializeResponse) -> bool:
    return bool(hello.agent_capabilities and hello.agent_capabilities.load_session)


def _can_resume(hello: schema.InitializeResponse) -> bool:
    found = hello.agent_capabilities and hello.agent_capabilities.session_capabilities
    return bool(found and found.resume is not None)
