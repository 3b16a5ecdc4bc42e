"""Define an agent kind, and the interface of a session's driver.

A driver runs one session of one agent. It knows nothing of devices, the log or the database: the
session runner passes commands on and stores what it reports (``events.py``; D35, D40, D41).
"""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.picture_files import Picture
from bridge_project.protocol.resources import ApprovalOption
from bridge_project.protocol.risk import risk_of
from bridge_project.protocol.types import Decision
from sessions_app.agents.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    EventQueue,
    OffersChanged,
    ToolStarted,
)
from sessions_app.agents.offers import Offers
from sessions_app.agents.past.store import Store
from sessions_app.agents.sanitize import is_too_large
from sessions_app.approvals.tool_call import Call, describe

REJECTED = "The call was rejected."
SECRET_WORDS = (
    "It asks for a secret: the answer goes to the agent, and stays readable in this session and "
    "on every paired device."
)
NOT_ASKED = "Nobody was asked about the call: its parameters are too long, or too many calls wait."


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """Represent one message of a resumed agent's earlier conversation.

    ``at``: when it was begun, in seconds since the epoch; 0: the agent does not say.
    """

    text: str
    by_agent: bool
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class AgentKind:
    """Describe one kind of agent, as ``registry.py`` lists it.

    ``make`` returns a driver for one session; ``join`` one that joins a session of the desk's
    (D80). ``problem`` says for a person why none can start here now, None if one can; it is called
    for each connection and names no path of this machine.
    ``version`` is empty when unknown. ``mend``: the shell command that removes what ``problem``
    names, or "". ``can_modify``: a ``modified`` call runs with the new parameters; else the driver
    refuses it and tells the agent to ask again with them. ``asks``: what is known before a session
    starts (D59). ``history`` returns the messages of a session by the agent's id of it, whether or
    not it runs; None: only its driver can, if at all. ``store``: what it keeps of its sessions, for
    those that run elsewhere; where there is none, ``no_store`` says why (D67). ``steers``: its
    drivers' ``steer`` gives a message to the turn that runs (D71). A kind that is not
    ``real`` is scripted: it is never preferred and has no breaker. ``path``: where its program is,
    for its owner alone. ``trouble``: what was wrong when it was last started or asked for its
    version, though it may start; ``version`` and it may take seconds, and are called in a thread.
    """

    name: str
    make: Callable[[], Driver]
    problem: Callable[[], str | None] = lambda: None
    version: Callable[[], str] = str
    real: bool = True
    mend: Callable[[], str] = str
    can_modify: bool = True
    asks: Callable[[], bool | None] = lambda: True
    steers: bool = False
    history: Callable[[str], Sequence[HistoryMessage]] | None = None
    store: Store | None = None
    join: Callable[[], Driver] | None = None
    no_store: str = "It keeps no sessions that the bridge could find."
    path: Callable[[], str] = str
    trouble: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold a decision; with ``modified`` come the tool's new parameters.

    ``reason``: why it is rejected; ``option_id``: which of the call's options was chosen.
    """

    decision: Decision
    modifications: Mapping[str, Any] | None = None
    reason: str = ""
    option_id: str | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """Hold a file that came with a prompt, and how the agent is given it (D70)."""

    attachment_id: str
    name: str
    type: str
    given: str | None  # picture, file, or not at all
    path: Path  # of the bridge's own


class CannotStart(Exception):
    """Report why the agent could not be started, for a person."""

    code = "AGENT_ERROR"


class WillNotAsk(CannotStart):
    """Report that the agent cannot be made to ask before it acts (D59)."""

    code = "AGENT_UNAVAILABLE"  # settled by its modes: no failure that passes


class CannotResume(CannotStart):
    """Report that the agent does not know its session any more."""

    code = "SESS_NOT_RESUMABLE"


class OpenElsewhere(CannotStart):
    """Report that another program has the agent's session open."""

    code = "SESS_AT_THE_DESK"


class NotOffered(Exception):
    """Report that the agent does not offer this option, or this value of it, now."""


class NotTaken(Exception):
    """Report why the agent did not take a value that it offers, for a person."""


class PendingApprovals:
    """Hold the calls of one session that wait for a decision."""

    def __init__(self, events: EventQueue) -> None:
        self._events = events
        self._waiting: dict[str, asyncio.Future[Verdict | None]] = {}

    async def ask(self, call: Call, options: Sequence[ApprovalOption] = ()) -> Verdict | None:
        """Report ApprovalAsked and wait for the decision; None if withdrawn."""
        assert call.id is not None
        if is_too_large(call.params) or len(self._waiting) >= limits.AGENT_QUESTIONS_WAITING:
            self._events.put(ToolStarted(call))
            return Verdict("rejected", reason=NOT_ASKED)
        waiting: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = waiting
        self._events.put(ApprovalAsked(call, options))
        try:
            return await waiting
        except asyncio.CancelledError:  # the agent, or its turn, is gone
            self._events.put(ApprovalWithdrawn(call.id))
            raise
        finally:
            if self._waiting.get(call.id) is waiting:
                del self._waiting[call.id]

    def decide(self, call_id: str, verdict: Verdict | None) -> bool:
        """Deliver a decision; False when nothing waits for it."""
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(verdict)
        return True

    def withdraw(self, *call_ids: str) -> None:
        """Stop waiting for these calls, or for all."""
        for call_id in call_ids or tuple(self._waiting):
            if self.decide(call_id, None):
                self._events.put(ApprovalWithdrawn(call_id))


class Driver(ABC):
    """Run one session of an agent, and report what it does in ``events``.

    What it asks waits in ``approvals``. Whoever has called ``start`` calls ``close``, also when the
    start fails.

    ``picture_bytes``, once started: the size of the largest picture that ``prompt`` takes; of
    larger ones and other files the agent is told the path of a copy (D70).

    ``asks``, once started: whether the agent asks before it changes or runs something; None when
    nobody knows (D59).
    """

    asks: bool | None = True

    picture_bytes = 0

    offers = Offers()  # what a person may choose, as of now (D69)

    def __init__(self) -> None:
        self.events = EventQueue()
        self.approvals = PendingApprovals(self.events)
        self._files: TemporaryDirectory[str] | None = None

    @property
    def _place(self) -> Path:
        """Return a private directory of this session; ``_remove_place`` removes it."""
        if self._files is None:
            self._files = TemporaryDirectory(prefix="bridge-agent-", ignore_cleanup_errors=True)
        return Path(self._files.name)

    def _remove_place(self) -> None:
        if self._files is not None:
            self._files.cleanup()

    @property
    def _copies(self) -> Path:
        """Return the directory of what is attached, which the agent may read."""
        (copies := self._place / "attachments").mkdir(exist_ok=True)
        return copies

    @property
    def history(self) -> Sequence[HistoryMessage]:
        """Return the earlier conversation that a resumed agent has reported.

        Callable in any thread.
        """
        return ()

    @property
    def error_output(self) -> str:
        """Return the end of what the agent wrote on its error output, without secrets."""
        return ""

    @abstractmethod
    async def start(self, directory: Path, resume_id: str | None = None) -> None:
        """Start the agent; return when it takes prompts.

        Raises CannotStart and its kinds. ``resume_id``: the agent's id of a session to continue.
        """

    async def give(
        self, content: str, attached: Sequence[Attached], *, steering: str | None = None
    ) -> None:
        """Begin a turn with a prompt and what is attached to it (D70).

        ``steering``: the id of a message that is given to the turn that runs instead.
        """
        pictures, told = [], []
        for one in attached:
            try:
                if one.given == "picture":
                    pictures.append(Picture(one.type, await asyncio.to_thread(one.path.read_bytes)))
                elif one.given == "file":
                    told.append(str(await asyncio.to_thread(self._copy, one)))
            except OSError as error:
                told.append(f"{one.name} ({error.strerror})")
        files = "\n".join(["", "", "Attached:", *told]) if told else ""
        if steering is None:
            await self.prompt(content + files, pictures)
        else:
            await self.steer(content + files, steering, pictures)

    def _copy(self, attached: Attached) -> Path:
        (place := self._copies / attached.attachment_id).mkdir(exist_ok=True)
        return Path(shutil.copyfile(attached.path, place / attached.name))

    @abstractmethod
    async def prompt(self, content: str, pictures: Sequence[Picture] = ()) -> None:
        """Begin a turn, which TurnEnded ends. Never called during one."""

    async def steer(self, content: str, message_id: str, pictures: Sequence[Picture] = ()) -> None:
        """Give a message to the turn that runs; only where the agent's kind steers (D71)."""
        raise NotImplementedError

    @abstractmethod
    async def interrupt(self) -> None:
        """Stop the turn; TurnEnded follows soon, or the supervisor closes the driver.

        Also called outside a turn while calls are open, which then end.
        """

    async def choose(self, option_id: str, value: str) -> None:
        """Have the agent take a value of an option (D69), also during a turn.

        Raises NotOffered, NotTaken.
        """
        if self.offers.find(option_id, value) is None:
            raise NotOffered
        try:
            async with asyncio.timeout(limits.AGENT_OPTION_SECONDS):
                await self._choose(option_id, value)
        except TimeoutError:
            raise NotTaken("The agent did not answer in time.") from None

    async def _choose(self, option_id: str, value: str) -> None:
        """Have the agent take a value that it offers, and change ``offers`` by its answer."""
        raise NotOffered

    def _offer(self, offers: Offers) -> None:
        """Report what a person may choose from now on, if that has changed."""
        if offers != self.offers:
            self.offers = offers
            self.events.put(OffersChanged(offers))

    async def end_background(self) -> None:  # noqa: B027 - an agent may run no commands
        """End what commands have left running; the agent itself goes on."""

    @abstractmethod
    async def close(self) -> None:
        """End the agent and everything it started; may be called twice."""


def with_error_output(reason: str, output: str) -> str:
    """Append the agent's error output to a failure's reason that lacks it."""
    if not output or output in reason:
        return reason
    return f"{reason.rstrip('.')}. The last that it wrote on its error output: {output}"


def describe_call(
    call_id: str,
    tool: str,
    params: Mapping[str, Any],
    *,
    reasoning: str | None = None,
    description: str = "",
    risk_tool: str = "",
) -> Call:
    """Describe a tool call for a person; ``risk_tool``: its name for the risk rules."""
    risk = risk_of(risk_tool or tool, params)
    return Call(call_id, tool, params, describe(tool, params, description), risk, reasoning)
