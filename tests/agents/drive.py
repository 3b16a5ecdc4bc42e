"""Plays the runtime for one driver: prompts it, answers it, and keeps what it says."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil

from bridge_project.kernel.config import PROJECT_DIR
from sessions_app.agents.driver import (
    AgentDied,
    ApprovalAsked,
    Chunk,
    Driver,
    Event,
    Start,
    TurnEnded,
    Verdict,
)

E = TypeVar("E")
SECONDS = 30.0  # for whatever a test waits for; reached only when it fails
APPROVED, REJECTED = Verdict("approved"), Verdict("rejected")


class Drive:
    """A driver with a reader of its own; ``answers`` are given in turn to what is asked, the last
    one again and again.
    """

    def __init__(self, driver: Driver, *answers: Verdict) -> None:
        self.driver = driver
        self.answers = list(answers)
        self.said: list[Event] = []
        self.news = asyncio.Condition()
        self.reader: asyncio.Task[None] | None = None
        self.closed = False

    async def start(self, directory: Path, resume_id: str | None = None) -> Drive:
        self.reader = asyncio.create_task(self._read())
        await asyncio.wait_for(self.driver.start(Start("session", directory, resume_id)), SECONDS)
        return self

    async def turn(self, content: str) -> list[Event]:
        """What is said until the turn has ended."""
        first = len(self.said)
        await self.driver.prompt(content)
        await self.until(
            lambda: any(isinstance(event, TurnEnded | AgentDied) for event in self.said[first:])
        )
        return self.said[first:]

    async def until(self, true: Callable[[], bool]) -> None:
        async with self.news:
            await asyncio.wait_for(self.news.wait_for(true), SECONDS)

    async def close(self) -> None:
        self.closed = True
        await asyncio.wait_for(self.driver.close(), SECONDS)
        if self.reader is not None:
            await asyncio.wait_for(asyncio.shield(self.reader), SECONDS)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.said if isinstance(event, kind)]

    async def _read(self) -> None:
        async for event in self.driver.events():
            async with self.news:
                self.said.append(event)
                self.news.notify_all()
            if isinstance(event, ApprovalAsked) and self.answers:
                verdict = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await self.driver.decide(event.call.id or "", verdict)


def text(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Chunk))


def kinds(events: list[Event]) -> list[str]:
    """The names of the events, chunks that follow each other as one."""
    names = [type(event).__name__ for event in events]
    return [
        name
        for index, name in enumerate(names)
        if name != "Chunk" or names[index - 1 : index] != ["Chunk"]
    ]


def command(module: str, *arguments: str) -> list[str]:
    """The command line of an agent that is a module of the project."""
    return ["/usr/bin/env", f"PYTHONPATH={PROJECT_DIR}", sys.executable, "-m", module, *arguments]


def carrying(value: str) -> list[int]:
    """Processes of our own that have ``value`` in an argument or in their environment, this one
    left out.
    """
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            if alive and value in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


async def eventually(true: Callable[[], bool]) -> None:
    """Wait until something outside holds; fails after SECONDS."""
    until = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < until, "it never came true"
        await asyncio.sleep(0.02)


async def within(seconds: float, work: Awaitable[E]) -> E:
    return await asyncio.wait_for(work, seconds)
