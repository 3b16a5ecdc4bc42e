"""Start and take over hosts, and speak with each as with its driver (D79)."""

import asyncio
import json
import os
import signal
import socket
import sys
import uuid
from asyncio.subprocess import DEVNULL
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import structlog

from bridge_project.kernel import limits, ways
from bridge_project.kernel.config import conf
from bridge_project.kernel.place import PROJECT_DIR
from sessions_app import leases
from sessions_app.agents import driver as drivers
from sessions_app.agents import started
from sessions_app.agents.driver import Attached, HistoryMessage, Verdict
from sessions_app.agents.events import AgentDied, Event, Events
from sessions_app.agents.host import sockets, wire
from sessions_app.agents.offers import Offers
from sessions_app.agents.process import groups

GONE: Final = "The process that ran the agent was ended."
# not `-m`, which would look for programs in the directory where the bridge was started; packages
# are where this process has them
_FORKER: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from sessions_app.agents.host.forker import main; main()"
)
_ERRORS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (
        *(drivers.CannotStart, drivers.WillNotAsk, drivers.CannotResume),
        *(drivers.OpenElsewhere, drivers.NotOffered, drivers.NotTaken),
    )
}


class HostFault(Exception):
    """Report what went wrong in a host, or that it cannot be reached, for a person."""


class Forker:
    """Have hosts forked by a process of this bridge, which the first of them starts."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def fork(self, agent: str, host_id: str, path: Path, *, joins: bool) -> None:
        """Have a host forked, which listens at ``path`` then. Raises HostFault, OSError."""
        async with self._lock:
            if self._streams is None:
                self._streams = await self._start()
            reader, writer = self._streams
            request = {"agent": agent, "host_id": host_id, "path": str(path), "joins": joins}
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                answer = json.loads(await reader.readuntil(b"\n"))
            except (ConnectionError, EOFError):
                self._streams = None
                writer.close()
                raise HostFault("The process that starts agents has ended. Try again.") from None
            except asyncio.CancelledError:  # its answer would be taken for the next one's
                self.close()
                raise
        if "error" in answer:
            raise HostFault(answer["error"])

    async def _start(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        with theirs:
            await self._run(theirs)
        reader, writer = await asyncio.open_connection(sock=ours, limit=limits.MB)
        values = {name: value for name, value in vars(limits).items() if name.isupper()}
        numbers = {name: one for name, one in values.items() if isinstance(one, int | float)}
        instance = await asyncio.to_thread(leases.instance)
        begin = {"limits": numbers, "ways": ways.linux, "instance": instance}
        begin |= {"roots": conf.allowed_roots}
        writer.write(json.dumps(begin).encode() + b"\n")
        return reader, writer

    async def _run(self, control: socket.socket) -> None:
        """Start the process, with this socket."""
        path = json.dumps([str(PROJECT_DIR), *filter(os.path.isabs, sys.path)])
        await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", "-c", _FORKER, path, str(control.fileno())],
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            pass_fds=[control.fileno()],
            start_new_session=True,
        )

    def close(self) -> None:
        """End that process; the hosts go on."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


forker: Final = Forker()


class Received(Events):
    """Hold what a host has reported and the log does not have yet."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: deque[int] = deque()
        self.taken = 0  # the number of the newest event that was taken out
        self._unlimited = False

    def take_all(self) -> None:
        """Have room for whatever comes from now on."""
        self._unlimited = True
        self._taken.set()

    def _is_full(self) -> bool:
        return not self._unlimited and super()._is_full()

    def put(self, event: Event, number: int = 0) -> None:
        """Add an event; one of the bridge's own has no number."""
        if not self._closed:
            self._numbers.append(number)
        super().put(event)

    def take(self) -> list[Event]:
        batch = super().take()
        for _ in batch:
            self.taken = max(self.taken, self._numbers.popleft())
        return batch


class HostedDriver:
    """Speak with a session's driver, which runs in a host.

    The methods are a ``Driver``'s. ``key``: of a command of the inbox; each is obeyed once,
    whatever bridge sends it. ``joins``: it joins a session of the desk's (D80).
    """

    def __init__(self, agent: str, *, joins: bool = False) -> None:
        self.path = ""  # of its socket
        self.events = Received()
        self.received: frozenset[int] = frozenset()  # keys, when it was taken over
        self._agent, self._joins = agent, joins
        self._known = wire.Known()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._behind: deque[wire.Answered] = deque()  # answers to what events precede
        self._newest = 0  # event that has come
        self._leaving = self._closed = False
        self._pid = 0

    # -- what is known of the agent ----------------------------------------------------------------

    @property
    def asks(self) -> bool | None:
        return self._known.asks

    @property
    def picture_bytes(self) -> int:
        return self._known.picture_bytes

    @property
    def offers(self) -> Offers:
        return self._known.offers

    @property
    def history(self) -> Sequence[HistoryMessage]:
        return self._known.history

    @property
    def error_output(self) -> str:
        return self._known.error_output

    def _note(self, known: wire.Known) -> None:
        self._known = known
        if known.shown is not None:
            started.last[self._agent] = known.shown

    # -- its host ----------------------------------------------------------------------------------

    async def start(self, directory: Path, resume_id: str | None = None) -> None:
        """Start a host, and its agent. Raises what a driver does, HostFault and OSError."""
        host_id = uuid.uuid4().hex
        path = await asyncio.to_thread(sockets.path_of, host_id)
        self.path = str(path)
        await forker.fork(self._agent, host_id, path, joins=self._joins)
        await self.take_over(self.path, 0)
        await self._ask(wire.Start(directory, resume_id))

    async def take_over(self, path: str, after: int) -> None:
        """Take over a host; it sends what it has reported after the event of this number.

        Raises HostFault when it is gone, does not answer, or speaks another version: then it has
        been ended.
        """
        self.path, self._newest = path, after
        try:
            async with asyncio.timeout(limits.HOST_ANSWER_SECONDS):
                connection = sockets.connect(Path(path))
                self._pid = sockets.peer(connection)[0]
                reader, self._writer = await asyncio.open_unix_connection(
                    sock=connection, limit=limits.MB
                )
                self._writer.write(wire.encode(wire.Take(wire.VERSION, after)))
                taken = await wire.read(reader)
            if not isinstance(taken, wire.Taken) or taken.version != wire.VERSION:
                raise HostFault("it is of another version")
            if taken.stored > after:
                raise HostFault("what it reported before is not in this database")
        except (OSError, EOFError, TimeoutError, wire.WireError, HostFault) as error:
            self.kill()
            if not isinstance(error, PermissionError):
                await asyncio.to_thread(_clean_up, Path(path))
            raise HostFault(f"The host of the agent cannot be reached: {error!r}") from error
        except asyncio.CancelledError:  # it must not take this for a bridge that is there
            self.kill()
            raise
        self.received = frozenset(taken.received)
        self._note(taken.known)
        self._reading = asyncio.create_task(self._read(reader, self._writer))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear the host until it closes the connection, then close it here too.

        The garbage collector would do so in any thread, and then take the number of the descriptor
        out of the loop when it may be a new connection's already, which nobody would read.
        """
        why = GONE
        try:
            while True:
                await self._hear(await wire.read(reader))
        except EOFError:
            pass
        except wire.WireError as error:
            why = f"The bridge cannot read what the agent's process says: {error}"
            self.kill()
        finally:
            writer.close()
            if not self._leaving:
                self.events.put(AgentDied(why))
            self.events.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(HostFault(why))
            self._waiting.clear()

    async def _hear(self, message: object) -> None:
        match message:
            case wire.Reported(number, event):
                self.events.put(event, number)
                self._newest = number
                while self._behind and self._behind[0].after <= number:
                    self._settle(self._behind.popleft())
                if not self._leaving:
                    await self.events.wait_for_room()
            case wire.Answered():
                if message.after > self._newest:
                    self._behind.append(message)
                else:
                    self._settle(message)
            case wire.Known():
                self._note(message)
            case wire.Active(at):
                self.events.last_activity = at
            case wire.Logged(level, event, about):
                line = structlog.get_logger("bridge.agent")
                getattr(line, level, line.info)(event, **about)

    def _settle(self, answer: wire.Answered) -> None:
        waiting = self._waiting.pop(answer.number, None)
        if waiting is None or waiting.done():
            return
        if answer.error:
            waiting.set_exception(_ERRORS.get(answer.error, HostFault)(answer.words))
        else:
            waiting.set_result(None)

    def _send(self, message: object) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(message))

    async def _ask(self, command: wire.Command, key: int = 0) -> None:
        if self._reading is None or self._reading.done():
            raise HostFault(GONE)
        number, waiting = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self._send(wire.Request(number, command, key))
        await waiting

    def stored(self, number: int) -> None:
        """Say that the events up to this one are stored."""
        self._send(wire.Stored(number))

    def leave(self) -> None:
        """Leave the host to another bridge."""
        self._leaving = True
        if self._writer is not None:
            self._writer.close()
        self.events.close()

    @staticmethod
    def end(path: Path) -> None:
        """End a host that runs no session of ours, if it is there; in a thread."""
        with suppress(OSError):
            os.kill(sockets.process_at(path), signal.SIGKILL)
        path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End the host at once; its guards end the agent and all it started."""
        if self._pid:
            with suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
            self._pid = 0  # which the system may give to another process
        if self._writer is not None:
            self._writer.close()

    # -- its driver --------------------------------------------------------------------------------

    async def give(
        self,
        content: str,
        attached: Sequence[Attached],
        key: int,
        *,
        steering: str | None = None,
    ) -> None:
        await self._ask(wire.Give(content, attached, steering), key)

    def decide(self, call_id: str, verdict: Verdict, key: int) -> None:
        self._send(wire.Request(next(self._numbers), wire.Decide(call_id, verdict), key))

    async def interrupt(self, key: int = 0) -> None:
        await self._ask(wire.Interrupt(), key)

    async def choose(self, option_id: str, value: str, key: int = 0) -> None:
        await self._ask(wire.Choose(option_id, value), key)

    async def end_background(self) -> None:
        await self._ask(wire.EndBackground())

    async def close(self) -> None:
        """End the agent, its host and everything it started; may be called twice."""
        if self._reading is None or self._closed:
            return
        self._leaving = self._closed = True
        self.events.take_all()
        try:
            await self._ask(wire.Close())
            await asyncio.wait({self._reading})
        except HostFault:  # it has died
            await asyncio.to_thread(_clean_up, Path(self.path))
        finally:
            if not self._reading.done():
                self.kill()


def _clean_up(path: Path) -> None:
    """Remove what a host that has died has left."""
    groups.end_host(leases.instance(), sockets.id_of(str(path)))
    path.unlink(missing_ok=True)
