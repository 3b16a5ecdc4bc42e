"""Start agents' processes, and end them with everything they started.

Each runs below a guard process (``launch.py``), which ends what is below it when it is told to, and
when whoever started it is gone. By two marks in the environment, the bridge's (``BRIDGE_AGENT_OF``,
the data directory's id, and its host's) and the run's (``BRIDGE_AGENT_RUN``), a sweep finds what a
guard did not end.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
import uuid
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

import psutil

from bridge_project.kernel import child_environment, limits, ways
from bridge_project.kernel.child_process import UMASK, search_path
from sessions_app.agents.process.launch import AGENT_OF, AGENT_RUN, PORTABLE

GUARD = Path(__file__).with_name("launch.py")
_CLOSED_SECONDS = 0.5  # for the output of what has ended to be closed
# passes of one sweep: what is being ended can start more; the next start ends what is left
_PASSES = 20
_CLEAN_PASSES = 2
_PASS_SECONDS = 0.01
_KILL_SECONDS = 0.5  # between SIGKILL and the next pass

_instance = f"process-{os.getpid()}"  # until ``reap`` has said whose we are


class Group(asyncio.Protocol):
    """Control one command, run below a guard process, and all it started.

    It is the bridge's end of the socket to the guard, whose words are in ``launch.py``.
    """

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex  # the mark of what it starts
        self.secrets: list[str] = []  # values that it was given and that are shown to nobody
        self.exited = asyncio.Event()  # the command has; something that it started may go on
        self.returncode: int | None = None  # the command's, negative for a signal
        self.closed = asyncio.Event()  # the guard has ended
        self.nothing_left = False
        self.pid: int  # the command's
        self.process: Process  # launch.py's first: the guard or, on Linux, its parent
        self.stdin: asyncio.StreamWriter  # the command's, where ``start`` was asked for it
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader
        self.streams: _Streams
        self.transport: asyncio.SubprocessTransport
        # the command's process; OSError when its guard ends first
        self.started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._cleared: list[asyncio.Future[None]] = []
        self._said = b""
        self._socket: asyncio.Transport | None = None

    # -- reports from the guard --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            if word == "started":
                self.started.set_result(int(number))
            elif word == "exited":
                self._exit(int(number))
            elif word == "cleared" and self._cleared:
                self._cleared.pop(0).set_result(None)
            elif word == "ended":
                self.nothing_left = True

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.started.done():
            self.started.set_exception(OSError("its guard ended at once"))
        if not self.exited.is_set():
            self._exit(-signal.SIGKILL)
        for waiting in self._cleared:
            waiting.set_result(None)
        self._cleared.clear()
        self.closed.set()

    def _exit(self, code: int) -> None:
        self.returncode = code
        self.exited.set()

    # -- orders to the guard -----------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send the guard a byte; ``t`` asks the command to end."""
        if self._socket is not None and not self._socket.is_closing():
            self._socket.write(data)

    async def clear(self) -> None:
        """End what the command left running; return when it is done."""
        if not self.closed.is_set():
            waiting = asyncio.get_running_loop().create_future()
            self._cleared.append(waiting)
            self.send(b"o")
            await asyncio.shield(waiting)  # the answers come in the order of the questions

    def end(self) -> None:
        """End everything; the guard ends last."""
        if self._socket is not None and not self.closed.is_set():
            self._socket.write_eof()


class _Streams(SubprocessStreamProtocol):
    """Report when the command's output is closed."""

    def __init__(self) -> None:
        super().__init__(limit=limits.AGENT_LINE_BYTES, loop=asyncio.get_running_loop())
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.closed.set()


class Groups:
    """Hold the commands that the bridge runs for one session."""

    def __init__(self) -> None:
        self._groups: list[Group] = []

    def add(self, group: Group) -> None:
        self._groups = [*self._running(), group]

    def _running(self) -> list[Group]:
        return [group for group in self._groups if not group.closed.is_set()]

    async def end(self) -> None:
        await asyncio.gather(*(end_group(group, at_once=True) for group in self._running()))


async def start(
    command: Sequence[str],
    directory: Path,
    *,
    more: Mapping[str, str] | None = None,
    stdin: bool = False,
) -> Group:
    """Start ``command`` in ``directory`` with a cleaned environment plus ``more``.

    The environment also has the two marks. Its output comes by pipes; with ``stdin`` it can be
    written to, else that is empty. Of a program that is not there the guard says so, and ends as
    a shell does. Raises OSError with words for a person when there is no such directory.
    """
    loop, group = asyncio.get_running_loop(), Group()
    environ = child_environment.scrubbed(**(more or {}))
    environ["PATH"] = search_path(environ)  # a session's directory brings no program of its own
    group.secrets = child_environment.secrets_in(environ, command)
    words = [os.fsencode(word) for word in (_instance, group.run, *command)]
    if any(b"\0" in word for word in words):
        raise ValueError("a command holds no NUL")
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            group.transport, group.streams = await loop.subprocess_exec(
                _Streams,
                *[sys.executable, "-I", "-S", str(GUARD), str(theirs.fileno())],
                *[] if ways.linux["agents"] else [PORTABLE],
                stdin=PIPE if stdin else DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                cwd=directory,
                env=environ,
                start_new_session=True,
                umask=UMASK,
                pass_fds=[theirs.fileno()],
            )
        process = group.process = Process(group.transport, group.streams, loop)
        assert process.stdout is not None and process.stderr is not None
        group.stdout, group.stderr = process.stdout, process.stderr
        if process.stdin is not None:
            group.stdin = process.stdin
        await loop.create_connection(lambda: group, sock=ours)
    except BaseException as error:
        ours.close()  # which ends what there is by now
        if isinstance(error, FileNotFoundError) and str(error.filename) == str(directory):
            gone = f"The directory {directory} is not there any more"
            raise FileNotFoundError(error.errno, gone) from error
        raise
    group.send(b"%d\n" % len(words) + b"".join(word + b"\0" for word in words))
    try:
        group.pid = await group.started
    except BaseException:
        group.end()
        group.transport.close()
        raise
    return group


async def within(seconds: float, work: Awaitable[object]) -> None:
    """Await ``work``, but no longer than these seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


async def end_group(group: Group, *, at_once: bool = False) -> None:
    """End the command and everything that it started.

    Unless ``at_once`` it is asked first (SIGTERM), and made to (SIGKILL) after AGENT_END_SECONDS.
    """
    try:
        if not at_once and not group.exited.is_set():
            group.send(b"t")
            await within(limits.AGENT_END_SECONDS, group.exited.wait())
    finally:
        # also when the caller is cancelled: nothing else would end it
        group.end()
    gone = asyncio.gather(group.closed.wait(), group.process.wait())
    await within(limits.AGENT_END_SECONDS, gone)
    if not group.nothing_left:
        await asyncio.to_thread(_sweep, AGENT_RUN, group.run.__eq__)
    if group.process.stdin is not None:
        group.process.stdin.close()
    # what it printed is read by its reader; without a reader the pipe would stay open for ever
    await within(_CLOSED_SECONDS, group.streams.closed.wait())
    group.transport.close()


async def end_background(group: Group) -> None:
    """End processes that the command left: orphans, and their children.

    The command goes on, and so do its own children: of an agent those are the helpers that it
    needs.
    """
    await within(limits.AGENT_END_SECONDS, group.clear())


def mark() -> dict[str, str]:
    """Return the variable by which the next start finds what was left running."""
    return {AGENT_OF: _instance}


def mark_as(instance: str) -> None:
    """Mark what is started from here on as this bridge's, or as one of its hosts'."""
    global _instance
    _instance = instance


def reap(instance: str, hosts: Collection[str]) -> None:
    """End what an earlier bridge left running, but for what its hosts run.

    It had this data directory. What is started from here on is marked as ``instance``'s. To be
    called once, at the start, by the one process that holds the data directory.
    """
    mark_as(instance)
    kept = {f"{instance}/{host_id}" for host_id in hosts}

    def is_left(mark: str) -> bool:
        return mark.partition("/")[0] == instance and mark not in kept

    _sweep(AGENT_OF, is_left)


def end_host(instance: str, host_id: str) -> None:
    """End what a host that has died has left running, if its guards did not."""
    _sweep(AGENT_OF, f"{instance}/{host_id}".__eq__)


def _sweep(name: str, is_meant: Callable[[str], bool]) -> None:
    """End our user's processes whose mark of this name is meant."""
    clean = 0  # passes that found nothing: one between two programs shows no environment
    for _ in range(_PASSES):
        found = _marked(name, is_meant)
        for process in found:
            # psutil knows a number that was given out anew by the time of birth
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=_KILL_SECONDS)
        clean = 0 if found else clean + 1
        if clean == _CLEAN_PASSES:
            break
        time.sleep(_PASS_SECONDS)


def _marked(name: str, is_meant: Callable[[str], bool]) -> list[psutil.Process]:
    """Return our user's processes with such a mark, without this one and its parents.

    An agent of one bridge may start another on a copy of the same data.
    """
    found, uid, me = [], os.getuid(), psutil.Process()
    spared = {me.pid, *(parent.pid for parent in me.parents())}
    for process in psutil.process_iter():
        # gone meanwhile, or not ours to look into
        with contextlib.suppress(psutil.Error, OSError):
            ours = process.pid not in spared and process.uids().real == uid
            if ours and is_meant(process.environ().get(name, "")):
                found.append(process)
    return found
