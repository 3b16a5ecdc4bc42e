"""A driver of claude-code with its real program, and everything that it has said."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from sessions_app.agents.driver import (
    ApprovalAsked,
    Chunk,
    Event,
    SessionIdentified,
    Start,
    TurnEnded,
    Verdict,
)
from sessions_app.agents.process.launch import AGENT_RUN

if TYPE_CHECKING:
    from sessions_app.agents.claude.driver import ClaudeDriver

PATIENCE = 20.0
E = TypeVar("E", bound=Event)


def driver_of(program: Path | None = None) -> ClaudeDriver:
    """A driver, of the real program or of another. Imported here, so that the tests can be
    collected where there is no SDK.
    """
    from sessions_app.agents.claude.driver import ClaudeDriver

    return ClaudeDriver(program)


class Session:
    """`said` is every event so far; every wait has a condition and a deadline."""

    def __init__(self, directory: Path, resume_id: str | None = None) -> None:
        self.directory = directory
        self.driver = driver_of()
        self.said: list[Event] = []
        self._start = Start("a-session", directory, resume_id)
        self._new = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Session:
        try:
            await self.driver.start(self._start)
        except BaseException:
            await self.driver.close()
            raise
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.driver.close()
        assert self._reader is not None
        await asyncio.wait_for(self._reader, PATIENCE)

    async def _read(self) -> None:
        async for event in self.driver.events():
            self.said.append(event)
            self._new.set()

    async def until(
        self, kind: type[E], wanted: Callable[[E], bool] = lambda event: True, *, after: int = 0
    ) -> E:
        """The first such event from the index `after` on."""
        deadline, looked_at = time.monotonic() + PATIENCE, after
        while True:
            self._new.clear()
            for event in self.said[looked_at:]:
                if isinstance(event, kind) and wanted(event):
                    return event
            looked_at = max(looked_at, len(self.said))
            try:
                await asyncio.wait_for(self._new.wait(), max(0.01, deadline - time.monotonic()))
            except TimeoutError:
                raise AssertionError(f"no {kind.__name__}; it said {self.said[after:]}") from None

    async def turn(self, prompt: str, *verdicts: Verdict) -> Sequence[Event]:
        """A whole turn; each call that asks gets the next verdict. What was said in it, the Ended
        last.
        """
        begin = position = len(self.said)
        await self.driver.prompt(prompt)
        for verdict in verdicts:
            asked = await self.until(ApprovalAsked, after=position)
            position = self.said.index(asked) + 1
            assert asked.call.id is not None
            assert await self.driver.decide(asked.call.id, verdict)
        ended = await self.until(TurnEnded, after=position)
        return self.said[begin : self.said.index(ended, position) + 1]


class Kept:
    """One session for many tests, started when first asked for; ``resume_id`` is what it was first
    called.
    """

    def __init__(self, directory: Path) -> None:
        self.resume_id = ""
        self._directory = directory
        self._session: Session | None = None

    async def session(self) -> Session:
        for path in self._directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self._session is None:
            self._session = await Session(self._directory).__aenter__()
            self.resume_id = only(
                SessionIdentified, await self._session.turn("play:hello")
            ).resume_id
        self._session.said.clear()
        return self._session

    async def drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__()


def pid_of(session: Session) -> int:
    """The program's process."""
    assert session.driver.pid is not None
    return session.driver.pid


def text(events: Sequence[Event]) -> str:
    """What was said to a person."""
    return "".join(
        event.content for event in events if isinstance(event, Chunk) and not event.is_tool_use
    )


def only(kind: type[E], events: Sequence[Event]) -> E:
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, events
    return found[0]


def run_of(pid: int) -> str:
    """The mark of the run that a process belongs to."""
    return psutil.Process(pid).environ()[AGENT_RUN]


def carrying(run: str) -> list[psutil.Process]:
    """The processes of a run that are alive."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
                and process.environ().get(AGENT_RUN) == run
            ):
                found.append(process)
        except psutil.Error:  # gone meanwhile
            continue
    return found


async def gone(run: str) -> None:
    """Wait until nothing of a run is left."""
    deadline = time.monotonic() + PATIENCE
    while left := carrying(run):
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.05)
