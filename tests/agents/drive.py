"""Plays the supervisor for one driver: prompts it, answers it, and keeps what it reports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from sessions_app.agents.driver import Driver, Verdict
from sessions_app.agents.events import (
    AgentDied,
    ApprovalAsked,
    Chunk,
    Event,
    OffersChanged,
    PromptMoved,
    SessionIdentified,
    TitleChanged,
    TurnEnded,
    UsageChanged,
)

E = TypeVar("E")
SECONDS = 90.0  # for whatever a test waits for; reached only when it fails
APPROVED, REJECTED = Verdict("approved"), Verdict("rejected")


class Drive:
    """``answers`` are given in turn to what a driver asks, the last one again and again."""

    def __init__(self, driver: Driver, *answers: Verdict) -> None:
        self.driver = driver
        self.answers = list(answers)
        self.said: list[Event] = []
        self.news = asyncio.Condition()
        self.reader: asyncio.Task[None] | None = None

    async def start(self, directory: Path, resume_id: str | None = None) -> Drive:
        self.directory = directory
        self.reader = asyncio.create_task(self._read())
        await within(self.driver.start(directory, resume_id))
        return self

    async def turn(self, content: str, *answers: Verdict) -> list[Event]:
        """What is said until the turn has ended; ``answers`` replace those given before."""
        self.answers = list(answers) or self.answers
        first = len(self.said)
        await self.driver.prompt(content)
        await self.until(
            lambda: any(isinstance(event, TurnEnded | AgentDied) for event in self.said[first:])
        )
        return self.said[first:]

    async def until(self, true: Callable[[], bool]) -> None:
        async with self.news:
            await within(self.news.wait_for(true))

    async def said_one(self, kind: type[E]) -> E:
        await self.until(lambda: bool(self.of(kind)))
        return self.of(kind)[0]

    async def close(self) -> None:
        await within(self.driver.close())
        if self.reader is not None:
            await within(asyncio.shield(self.reader))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.said if isinstance(event, kind)]

    async def _read(self) -> None:
        async for event in self.driver.events:
            async with self.news:
                self.said.append(event)
                self.news.notify_all()
            if isinstance(event, ApprovalAsked) and self.answers:
                verdict = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                self.driver.approvals.decide(event.call.id or "", verdict)


def text(events: Sequence[Event]) -> str:
    chunks = (event for event in events if isinstance(event, Chunk) and not event.is_tool_use)
    return "".join(chunk.content for chunk in chunks)


def kinds(events: Sequence[Event]) -> list[str]:
    """The names of the events, but for chunks and what is no step of a turn."""
    passed = (
        Chunk,
        OffersChanged,
        PromptMoved,
        SessionIdentified,
        TitleChanged,
        UsageChanged,
    )
    return [type(event).__name__ for event in events if not isinstance(event, passed)]


def only(kind: type[E], events: Sequence[Event]) -> E:
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, events
    return found[0]


def carrying(value: str) -> list[int]:
    """Processes other than this one that have ``value`` in an argument or their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            if alive and value in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def sleeping(number: str) -> list[int]:
    """Processes that run `sleep` for a number that has these digits."""
    every = psutil.process_iter(["name", "cmdline"])
    asleep = [one for one in every if one.info["name"] == "sleep"]
    return [one.pid for one in asleep if number in str(one.info["cmdline"])]


async def within(work: Awaitable[E]) -> E:
    """Fail after SECONDS: what ends never must not hold the tests up."""
    return await asyncio.wait_for(work, SECONDS)


async def read_late(driver: Driver, directory: Path, prompt: str) -> str:
    """What a prompt makes it say, at whose end it makes a file `said`; at first nobody reads it."""
    await driver.start(directory)
    await driver.prompt(prompt)
    await driver.events.wait()
    await asyncio.sleep(0.3)  # time in which an agent that is read on would get to its end
    assert not (directory / "said").exists()
    said = []
    async for event in driver.events:
        said.append(event)
        if isinstance(event, TurnEnded):
            break
    await driver.close()
    return text(said)
