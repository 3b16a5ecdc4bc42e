"""What every agent looks like to the bridge: one driver for each kind, and a stream of neutral
events (D35, D40, D41).

A driver runs one session of one agent. It knows nothing of devices, of the log or of the database:
the runtime tells it what to do and writes down what it says. A new agent is one file with one
driver in it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from bridge_project.protocol.resources import ToolErrorDetails, ToolOutcome
from bridge_project.protocol.types import Decision, FinishReason, ToolErrorCode
from sessions_app.approvals.tool_call import Call

# -- what an agent says ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the answer; ``is_tool_use``: it is a tool's input being written, not text for a
    person.
    """

    content: str
    is_tool_use: bool = False


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is being used about which nobody is asked."""

    call: Call


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A tool call waits for ``decide``, under the id of ``call``."""

    call: Call


@dataclass(frozen=True, slots=True)
class ApprovalWithdrawn:
    """The agent no longer waits for a decision."""

    call_id: str


@dataclass(frozen=True, slots=True)
class ToolSucceeded:
    """A tool gave a result."""

    call: Call
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """A tool failed; ``retries`` is how often the spec's retry policy lets it be tried again."""

    call: Call
    message: str
    code: ToolErrorCode = "TOOL_EXECUTION_FAILED"
    details: ToolErrorDetails = field(default_factory=ToolErrorDetails)
    retries: int = 0


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is over. ``error``: why it failed, in words for a person; the session goes on all the
    same.
    """

    finish_reason: FinishReason
    usage: Mapping[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SessionIdentified:
    """The agent's own id of the session has become, or has changed to, this: what a resume
    needs.
    """

    resume_id: str


@dataclass(frozen=True, slots=True)
class StoppedAsking:
    """The agent no longer asks and could not be made to: the driver has told it to stop (D59)."""

    reason: str


@dataclass(frozen=True, slots=True)
class AgentDied:
    """The agent is gone, unasked; nothing follows."""

    reason: str


Event = (
    Chunk
    | ToolStarted
    | ApprovalAsked
    | ApprovalWithdrawn
    | ToolSucceeded
    | ToolFailed
    | TurnEnded
    | SessionIdentified
    | StoppedAsking
    | AgentDied
)


# -- what it is told -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """A person's decision; ``modifications`` are the parameters to run the tool with, of a modified
    one.
    """

    decision: Decision
    modifications: Mapping[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Where and as what a session begins; ``resume_id``: the agent's own id of one to continue."""

    session_id: str
    directory: Path
    resume_id: str | None = None


class CannotStart(Exception):
    """The agent could not be started; the text is for a person."""


class WillNotAsk(CannotStart):
    """The agent cannot be made to ask before it acts (D59)."""


class CannotResume(CannotStart):
    """The agent does not know its session any more."""


class Driver(ABC):
    """One session of an agent. Its methods are called by one task, one at a time; ``events`` is
    read by another.

    ``can_modify``: the agent runs a call with the parameters that a person gives it in a
    ``modified`` decision. Where it does not, the driver has the call refused and the agent asked to
    make it anew with them, so that the person decides once more; the call that was modified never
    runs. The driver's ``Kind`` says the same, for those who have no driver. ``can_resume``: a
    session can go on where it was, by the id that the driver gave in ``Identified``.

    ``asks``, once it has been started: whether the agent asks before it changes or runs something;
    None when nobody knows (D59).
    """

    can_modify: ClassVar[bool] = True
    can_resume: ClassVar[bool] = True
    asks: bool | None = True

    @abstractmethod
    async def start(self, start: Start) -> None:
        """Return when prompts can be taken. Raises CannotStart, CannotResume."""

    @abstractmethod
    def events(self) -> AsyncIterator[Event]:
        """Everything the agent says from now on; ends after Died, or when the driver is closed."""

    @abstractmethod
    async def prompt(self, content: str) -> None:
        """Begin a turn, which an Ended ends. Never called while one runs."""

    @abstractmethod
    async def decide(self, call_id: str, verdict: Verdict) -> bool:
        """Answer an Asked; False when the agent no longer waits for it."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Ask the running turn to stop: an Ended follows soon, or the runtime closes the driver."""

    @abstractmethod
    async def end_background(self) -> None:
        """End what commands have left running, after an interrupt; the agent itself goes on."""

    @abstractmethod
    async def close(self) -> None:
        """End the agent and everything it started; may be called at any time, also twice."""


class Events:
    """The queue behind a driver's ``events``; bounded, so that an agent that nobody reads waits."""

    def __init__(self, size: int = 1000) -> None:
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(size)
        self._closed = False

    async def put(self, event: Event) -> None:
        if not self._closed:
            await self._queue.put(event)

    def close(self) -> None:
        """No more comes; what has been put is still read."""
        if not self._closed:
            self._closed = True
            self._queue.put_nowait(None) if not self._queue.full() else None

    async def __aiter__(self) -> AsyncIterator[Event]:
        while not (self._closed and self._queue.empty()):
            event = await self._queue.get()
            if event is None:
                return
            yield event
