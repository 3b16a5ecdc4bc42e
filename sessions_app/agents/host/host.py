"""Run one session's driver for bridges that come and go (D79).

What it reports is numbered, and kept until a bridge has stored it. Only one bridge speaks with it
at a time, the last that took it over. It ends when it is told to, or when no bridge has come for
HOST_ALONE_SECONDS; then it ends its agent in order. Nothing is decided here: what asks waits.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import structlog

from bridge_project.kernel import limits
from sessions_app.agents import registry, started
from sessions_app.agents.driver import CannotStart, NotOffered, NotTaken
from sessions_app.agents.events import AgentDied, Event
from sessions_app.agents.host import sockets, wire

log = structlog.get_logger("bridge.agent")
_LINES_KEPT = 100  # for the log, while no bridge is there


def run(agent: str, listening: socket.socket, path: Path) -> None:
    """Be a host of an agent of this kind, until it has ended."""
    asyncio.run(Host(agent).run(listening))
    path.unlink(missing_ok=True)


class Host:
    """Run a driver, and speak with the bridge."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._driver = registry.KINDS[agent].make()
        self._bridge: asyncio.StreamWriter | None = None
        self._kept: dict[int, bytes] = {}  # number of an event → its frame, until it is stored
        self._kept_bytes = 0
        self._last = self._stored = 0  # the numbers of the newest event, and of the last one stored
        self._received: list[int] = []  # keys of commands
        self._working: set[asyncio.Task[Any]] = set()
        self._lines: deque[wire.Logged] = deque(maxlen=_LINES_KEPT)
        self._known = wire.Known()  # as the bridge knows it
        self._active = 0.0
        self._sent = 0  # the last event that this bridge was sent
        self._ended = False  # the agent has, or is being closed
        self._news, self._room, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._written = asyncio.Event()
        self._alone: asyncio.TimerHandle | None = None

    async def run(self, listening: socket.socket) -> None:
        """Serve bridges until the agent has been closed."""
        self._forward_logs()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        self._wait_for_bridge()
        tasks = [asyncio.create_task(one) for one in (self._report(), self._tell_activity())]
        server = await asyncio.start_unix_server(self._meet, sock=listening)
        await self._over.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await self._close()

    # -- bridges -----------------------------------------------------------------------------------

    def _wait_for_bridge(self) -> None:
        loop = asyncio.get_running_loop()
        self._alone = loop.call_later(limits.HOST_ALONE_SECONDS, self._over.set)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak with a bridge until it leaves, or another takes over."""
        try:
            if sockets.peer(writer.get_extra_info("socket"))[1] != os.geteuid():
                return
            async with asyncio.timeout(limits.HOST_ANSWER_SECONDS):
                take = await wire.read(reader)
            if not isinstance(take, wire.Take):
                return
            taken = wire.Taken(wire.VERSION, self._stored, self._received, self._look())
            writer.write(wire.encode(taken))
            if take.version == wire.VERSION and take.after >= self._stored:
                await self._serve(take, reader, writer)
        except (EOFError, ConnectionError):
            pass  # it has left
        except (TimeoutError, wire.WireError) as error:
            log.warning("bridge_not_understood", agent=self._agent, why=repr(error))
        finally:
            writer.close()

    async def _serve(
        self, take: wire.Take, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        former, self._bridge = self._bridge, writer
        if former is not None:
            former.close()
        if self._alone is not None:
            self._alone.cancel()
        writer.transport.set_write_buffer_limits(0)  # what is drained has left this process
        while self._lines:
            self._send(self._lines.popleft())
        self._forget(take.after)
        feeding = asyncio.create_task(self._feed(take.after, writer))
        try:
            while True:
                message = await wire.read(reader)
                if self._bridge is not writer:
                    return
                match message:
                    case wire.Stored(number):
                        self._forget(number)
                    case wire.Request():
                        self._obey(message)
        finally:
            feeding.cancel()
            if self._bridge is writer:
                self._bridge = None
                self._wait_for_bridge()

    def _send(self, message: object) -> None:
        if self._bridge is not None and not self._bridge.is_closing():
            self._bridge.write(wire.encode(message))

    async def _feed(self, number: int, writer: asyncio.StreamWriter) -> None:
        """Send the events after ``number``, and those that come."""
        with contextlib.suppress(ConnectionError):  # which the reader finds
            while True:
                self._news.clear()
                while number < self._last:
                    number += 1
                    writer.write(self._kept[number])
                    await writer.drain()
                self._sent = number
                self._written.set()
                await self._news.wait()

    def _forget(self, stored: int) -> None:
        for number in range(self._stored + 1, stored + 1):
            self._kept_bytes -= len(self._kept.pop(number, b""))
        self._stored = max(self._stored, stored)
        self._room.set()

    # -- the driver --------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Number what the driver reports; leave it there while too much is kept."""
        queue = self._driver.events
        while await queue.wait():
            while self._is_full():
                self._room.clear()
                await self._room.wait()
            self._take_events()
        if not self._ended:
            self._keep(AgentDied("The agent ended and gave no reason."))

    def _is_full(self) -> bool:
        return self._kept_bytes >= limits.HOST_KEPT_BYTES

    def _take_events(self) -> None:
        """Take what the driver has reported by now."""
        queue = self._driver.events
        while queue.waiting and not self._is_full():
            for event in queue.take():
                self._keep(event)

    def _keep(self, event: Event) -> None:
        self._last += 1
        self._ended |= isinstance(event, AgentDied)
        frame = self._kept[self._last] = wire.encode(wire.Reported(self._last, event))
        self._kept_bytes += len(frame)
        self._news.set()

    def _look(self) -> wire.Known:
        driver = self._driver
        return wire.Known(
            driver.asks,
            driver.picture_bytes,
            driver.offers,
            tuple(driver.history),
            driver.error_output,
            started.last.get(self._agent),
        )

    async def _tell_activity(self) -> None:
        while True:
            await asyncio.sleep(limits.HOST_ACTIVITY_SECONDS)
            if (at := self._driver.events.last_activity) != self._active:
                self._active = at
                self._send(wire.Active(at))

    def _obey(self, request: wire.Request) -> None:
        """Begin to obey; commands begin in the order in which they come."""
        if request.key:
            self._received.append(request.key)
        if isinstance(request.command, wire.Decide):  # nothing overtakes a decision
            asked = self._driver.approvals.decide(request.command.call_id, request.command.verdict)
            if not asked:
                log.info("decision_too_late", agent=self._agent, call=request.command.call_id)
            return
        task = asyncio.create_task(self._answer(request))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _answer(self, request: wire.Request) -> None:
        error = words = ""
        try:
            await self._do(request.command)
        except (CannotStart, NotOffered, NotTaken) as why:
            error, words = type(why).__name__, str(why)
        except Exception as why:
            log.exception(
                "driver_failed", agent=self._agent, command=type(request.command).__name__
            )
            error, words = "Fault", str(getattr(why, "strerror", None) or why)
        self._take_events()
        if (known := self._look()) != self._known:
            self._known = known
            self._send(known)
        self._send(wire.Answered(request.number, self._last, error, words))
        if isinstance(request.command, wire.Close):
            await self._send_last()
            self._over.set()

    def _do(self, command: wire.Command) -> Awaitable[None]:
        driver = self._driver
        match command:
            case wire.Start(directory, resume_id):
                return driver.start(directory, resume_id)
            case wire.Give(content, attached, steering):
                return driver.give(content, attached, steering=steering)
            case wire.Choose(option_id, value):
                return driver.choose(option_id, value)
            case wire.Interrupt():
                return driver.interrupt()
            case wire.EndBackground():
                return driver.end_background()
            case _:
                return self._close()

    async def _close(self) -> None:
        """End the agent, and give up what is being done with it; may be called twice."""
        self._ended = True
        others = self._working - {asyncio.current_task()}
        for task in others:
            task.cancel()
        try:
            async with asyncio.timeout(limits.HOST_CLOSE_SECONDS):
                if others:
                    await asyncio.wait(others)
                await self._driver.close()
        except Exception:  # whatever it is, the guards end what is left
            log.exception("driver_not_closed", agent=self._agent)

    async def _send_last(self) -> None:
        """Wait until the bridge has been sent all, or has gone."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(limits.HOST_ANSWER_SECONDS):
                while self._bridge is not None and self._sent < self._last:
                    self._written.clear()
                    await self._written.wait()
                if self._bridge is not None:
                    await self._bridge.drain()

    # -- the log -----------------------------------------------------------------------------------

    def _forward_logs(self) -> None:
        """Have the bridge log what is logged here."""

        def forward(_: Any, level: str, about: Any) -> Any:
            line = wire.Logged(level, str(about.pop("event", "")), dict(about))
            if self._bridge is None:
                self._lines.append(line)
            else:
                self._send(line)
            raise structlog.DropEvent

        structlog.configure(processors=[structlog.processors.format_exc_info, forward])
        logging.basicConfig(handlers=[_Handler()], level=logging.WARNING, force=True)


class _Handler(logging.Handler):
    """Log what the libraries log as our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "warning" if record.levelno < logging.ERROR else "error"
        getattr(log, level)(record.getMessage(), logger=record.name)
