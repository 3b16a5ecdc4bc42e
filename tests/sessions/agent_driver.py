"""An agent that does what a test says, when it says so; and short ways to see what became of its
session.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async

from devices_app.models import Device
from sessions_app.agents import registry
from sessions_app.agents.driver import AgentKind, Driver, Start, Verdict
from sessions_app.agents.events import Event
from sessions_app.agents.ownership import found
from sessions_app.agents.supervisor import Supervisor
from sessions_app.approvals.tool_call import Call
from sessions_app.models import Feed, LogRow, Session, ToolCall

NAME = "scripted"


class Scripted(Driver):
    """What it is told is in ``told``, in order. ``on_start``, ``on_interrupt`` and ``on_prompt``
    are what it does then besides.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self.closed = asyncio.Event()

    async def on_start(self) -> None: ...

    async def on_prompt(self) -> None: ...

    async def on_interrupt(self) -> None: ...

    async def start(self, start: Start) -> None:
        self.told.append(start)
        await self.on_start()

    async def prompt(self, content: str) -> None:
        self.told.append(content)
        await self.on_prompt()

    async def decide(self, call_id: str, verdict: Verdict) -> bool:
        self.told.append((call_id, verdict))
        return True

    async def end_background(self) -> None:
        """It runs no commands."""

    async def interrupt(self) -> None:
        self.told.append("interrupt")
        await self.on_interrupt()

    async def close(self) -> None:
        self.closed.set()
        self.events.close()

    async def say(self, *events: Event) -> None:
        for event in events:
            self.events.put(event)
            await self.events.wait_for_room()

    @property
    def prompts(self) -> list[str]:
        return [told for told in self.told if isinstance(told, str) and told != "interrupt"]


class Agency:
    """A runtime whose one kind of agent is scripted; ``made`` are the drivers so far. What
    ``change`` does to each is done before it starts.
    """

    def __init__(self, supervisor: Supervisor, device: Device, directory: str) -> None:
        self.supervisor, self.device, self.directory = supervisor, device, directory
        self.made: list[Scripted] = []
        self.change: Callable[[Scripted], None] = lambda driver: None
        self.why_not: str | None = None

    def register(self) -> None:
        registry.KINDS[NAME] = AgentKind(NAME, self.make, lambda: self.why_not, lambda: "1.0")

    def make(self) -> Scripted:
        driver = Scripted()
        self.change(driver)
        self.made.append(driver)
        return driver

    async def session(self, session_id: str | None = None) -> tuple[Session, Scripted]:
        """A session whose agent is ready, and that agent."""
        session = await self.supervisor.create(session_id, NAME, self.directory, self.device)
        return session, self.made[-1]


async def until(
    condition: Callable[[], Awaitable[Any] | Any], what: str, seconds: float = 60
) -> Any:
    """The first true value of ``condition()``; AssertionError after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        value = await value if isinstance(value, Awaitable) else value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)


async def state(session: Session) -> Session:
    return await sync_to_async(found)(session.pk)


async def has_state(session: Session, status: str) -> Session:
    async def reached() -> Session | None:
        now = await state(session)
        return (
            now
            if now.status == status and (status in ("active", "created") or now.owner is None)
            else None
        )

    result: Session = await until(reached, f"the session is {status}")
    return result


@sync_to_async
def said(session: Session, *types: str) -> list[dict[str, Any]]:
    """The messages of the session's feed, of these types or of all, in order."""
    return _messages(session.feed_id, types)


@sync_to_async
def announced(*types: str) -> list[dict[str, Any]]:
    """The same of the feed for all."""
    return _messages(Feed.ALL, types)


def _messages(feed_id: int, types: tuple[str, ...]) -> list[dict[str, Any]]:
    frames = [
        json.loads(frame)
        for frame in LogRow.objects.filter(feed_id=feed_id)
        .order_by("seq")
        .values_list("frame", flat=True)
    ]
    return [frame for frame in frames if not types or frame["type"] in types]


async def has_said(session: Session, type_: str, count: int = 1) -> list[dict[str, Any]]:
    async def enough() -> list[dict[str, Any]] | None:
        messages: list[dict[str, Any]] = await said(session, type_)
        return messages if len(messages) >= count else None

    result: list[dict[str, Any]] = await until(enough, f"{count} {type_}")
    return result


@sync_to_async
def approval(session: Session) -> ToolCall:
    return ToolCall.objects.select_related("session").get(session=session)


def call(id: str | None = "call-1", tool: str = "Bash", **params: Any) -> Call:
    params = params or {"command": "make"}
    return Call(id, tool, params, f"{tool}: {params}")
