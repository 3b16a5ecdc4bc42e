"""Define the events that a driver reports, and the queue in which they wait."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.kernel.picture_files import Picture
from bridge_project.kernel.pictures import Stream
from bridge_project.kernel.text import clean
from bridge_project.protocol.resources import ApprovalOption, Usage
from bridge_project.protocol.types import FinishReason, MessageState
from sessions_app.agents.offers import Offers
from sessions_app.approvals.rules.matching import ASKS, Judgement
from sessions_app.approvals.tool_call import Call
from sessions_app.approvals.tool_result import Failure


class Event:
    """Report that an agent did something; the base of all events."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Chunk(Event):
    """Report a piece of the answer; with ``is_tool_use`` a piece of a tool's input.

    ``pictures``: what its ``content`` names.
    """

    content: str
    is_tool_use: bool = False
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    """Report a call that nobody is asked about; it may be refused, or fail."""

    call: Call


@dataclass(frozen=True, slots=True)
class ApprovalAsked(Event):
    """Report a call that waits for a decision, under the id of ``call``.

    ``options``: among which a person chooses, if several allow it, or several refuse it.
    ``judgement``: which rules would cover it.
    """

    call: Call
    options: Sequence[ApprovalOption] = ()
    judgement: Judgement = ASKS


@dataclass(frozen=True, slots=True)
class ApprovalWithdrawn(Event):
    """Report that the agent no longer waits for a decision."""

    call_id: str


@dataclass(frozen=True, slots=True)
class ToolSucceeded(Event):
    """Report a tool's result; ``pictures``: what its ``content`` names."""

    call: Call
    content: str = ""
    diff: str | None = None
    metadata: Mapping[str, Any] | None = None
    duration_ms: int | None = None
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True)
class ToolStopped(Event):
    """Report a call without a result: rejected, interrupted, or forgotten."""

    call: Call
    reason: str
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToolFailed(Event):
    """Report a tool that ran and failed."""

    call: Call
    failure: Failure


@dataclass(frozen=True, slots=True)
class RanAnyway(Event):
    """Report a call that ran although it had been rejected."""

    call: Call


@dataclass(frozen=True, slots=True)
class RanOther(Event):
    """Report an approved call that did something else, as its agent says."""

    call: Call
    ran: str


@dataclass(frozen=True, slots=True)
class AnswerEnded(Event):
    """Report that an answer ended but not its turn: the driver prompts once more.

    ``own``: it was the agent's own, while the prompt waited (D71, D76).
    """

    own: bool = False


@dataclass(frozen=True, slots=True)
class PromptMoved(Event):
    """Report what became of the turn's prompt: given, queued again, or refused (D71).

    ``message_id``: of another message, which steers the turn.
    """

    state: MessageState
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class TitleChanged(Event):
    """Report the title that the agent gives its session."""

    title: str


@dataclass(frozen=True, slots=True)
class UsageChanged(Event):
    """Report what the session has used, as far as the agent says (D72)."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class TurnEnded(Event):
    """Report the end of a turn; ``error`` says for a person why it failed.

    ``interrupted``: somebody stopped it (D40). ``own``: no prompt began it (D76).
    """

    finish_reason: FinishReason
    usage: Mapping[str, Any] | None = None
    error: str = ""
    interrupted: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class ModelRetried(Event):
    """Report that the model failed and is asked again; ``why``: for a person."""

    why: str


@dataclass(frozen=True, slots=True)
class OffersChanged(Event):
    """Report what the agent lets a person choose from now on (D69)."""

    offers: Offers


@dataclass(frozen=True, slots=True)
class ChoiceAnswered(Event):
    """Report that the choice ``command_pk`` stands, or with ``code`` why it does not.

    It comes from the session's runner, behind what the choice has changed.
    """

    command_pk: int
    code: str = ""
    why: str = ""


class TurnSilent(Event):
    """Report a turn without any sign for TURN_SILENCE_SECONDS."""


@dataclass(frozen=True, slots=True)
class SessionIdentified(Event):
    """Report the agent's own id of the session, which resumes it."""

    resume_id: str


@dataclass(frozen=True, slots=True)
class StoppedAsking(Event):
    """Report that the agent no longer asks (D59).

    ``interrupted``: its turn was. Before its first prompt there is nothing that it could do.
    """

    reason: str
    interrupted: bool = True


@dataclass(frozen=True, slots=True)
class PromptTyped(Event):
    """Report a prompt that was given at the desk, in a session that is joined (D80)."""

    content: str


@dataclass(frozen=True, slots=True)
class AsksChanged(Event):
    """Report whether the agent asks at the desk from now on.

    ``why`` it does not, or "".
    """

    why: str


@dataclass(frozen=True, slots=True)
class AgentDied(Event):
    """Report that the agent has ended by itself; nothing follows."""

    reason: str


KINDS: Final[tuple[type[Event], ...]] = tuple(
    one for one in vars().values() if isinstance(one, type) and issubclass(one, Event)
)


def ends_prompt(event: Event) -> bool:
    """Return whether an event ends the turn of a prompt."""
    return isinstance(event, AgentDied) or (isinstance(event, TurnEnded) and not event.own)


class Events:
    """Hold events that nobody has taken yet."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._chars = 0  # of text in them
        self._closed = False
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self.last_activity = 0.0  # the agent's last sign that is no event, by the monotonic clock

    def put(self, event: Event) -> None:
        """Add an event; a closed queue ignores it."""
        if not self._closed:
            self._append(event)
            self._changed.set()

    def _append(self, event: Event) -> None:
        self._events.append(event)
        self._chars += len(event.content) if isinstance(event, Chunk) else 0

    def close(self) -> None:
        """Take no more events; those in it can still be read."""
        self._closed = True
        self._changed.set()
        self._taken.set()

    @property
    def waiting(self) -> bool:
        """Return whether it holds any."""
        return bool(self._events)

    @property
    def has_end(self) -> bool:
        """Return whether the end of a prompt's turn, or of the agent, waits in it."""
        return any(map(ends_prompt, self._events))

    async def wait_for_room(self) -> None:
        """Wait while it is full: nothing is read from the agent meanwhile."""
        while self._is_full() and not self._closed:
            self._taken.clear()
            await self._taken.wait()

    def _is_full(self) -> bool:
        many = len(self._events) >= limits.AGENT_EVENTS_WAITING
        return many or self._chars >= limits.AGENT_CHARS_WAITING

    async def wait(self) -> bool:
        """Wait for an event; False when none will come any more."""
        while not self._events and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        return bool(self._events)

    def take(self) -> list[Event]:
        """Take all events out, or those up to the first end of a turn."""
        taken: list[Event] = []
        while self._events and not (taken and isinstance(taken[-1], TurnEnded)):
            taken.append(self._events.popleft())
        self._chars -= sum(len(event.content) for event in taken if isinstance(event, Chunk))
        self._taken.set()
        return taken

    async def __aiter__(self) -> AsyncIterator[Event]:
        while await self.wait():
            for event in self.take():
                yield event


class EventQueue(Events):
    """Hold what a driver has reported.

    A character or a picture that comes in pieces is whole in it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._half: Chunk | None = None  # the first half of a character, which waits for the other
        self._is_tool_use = False  # of the last text
        self._pictures = Stream()

    def note_activity(self) -> None:
        """Note that the agent gave a sign of life that is no event, such as a thought."""
        self.last_activity = time.monotonic()

    def put(self, event: Event) -> None:
        """Add an event; a closed queue ignores it."""
        if self._closed:
            return
        half, self._half = self._half, None
        if not isinstance(event, Chunk) or event.pictures:
            self._add_text(half)
            self._end_text()
            self._append(event)
        elif half is not None and half.is_tool_use == event.is_tool_use:
            self._put_text(replace(event, content=half.content + event.content))
        else:
            self._add_text(half)
            self._put_text(event)
        self._changed.set()

    def _put_text(self, chunk: Chunk) -> None:
        if chunk.content and "\ud800" <= (last := chunk.content[-1]) <= "\udbff":
            self._half = replace(chunk, content=last)
            chunk = replace(chunk, content=chunk.content[:-1])
        self._add_text(chunk)

    def _add_text(self, chunk: Chunk | None) -> None:
        if chunk is None:
            return
        if chunk.is_tool_use != self._is_tool_use:
            self._end_text()
        self._is_tool_use = chunk.is_tool_use
        self._append_text(self._pictures.feed(chunk.content))

    def _end_text(self) -> None:
        self._append_text(self._pictures.end())

    def _append_text(self, text: str) -> None:
        if text:
            taken, self._pictures.taken = self._pictures.taken, []
            self._append(Chunk(clean(text), self._is_tool_use, tuple(taken)))

    def close(self) -> None:
        """Take no more events; those in it can still be read."""
        self._add_text(self._half)
        self._end_text()
        self._half = None
        super().close()
