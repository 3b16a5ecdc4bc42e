"""The processes of agents and of their commands, which end with all they started (D35, D40).

Each runs below a launcher (``launch.py``), which ends what is below it when it is told to, and when
the bridge is gone. Besides, every process carries two marks in its environment, which all that it
starts inherits: the bridge it belongs to (``BRIDGE_AGENT_OF``, the data directory's id) and the run
(``BRIDGE_AGENT_RUN``). By them is found what a launcher did not end: where a launcher was killed,
and on systems where it can end no more than a group. Only processes of our own user that carry the
mark are ever ended so, and never this process or one that it descends from: a bridge can have been
started by an agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import time
import uuid
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bridge_project.kernel import child_environment, limits
from bridge_project.kernel.child_process import UMASK, search_path
from sessions_app.agents.process.launch import AGENT_OF, AGENT_RUN

LAUNCHER = Path(__file__).with_name("launch.py")
# what is being ended can start more meanwhile; one that does so for ever is left to the next sweep
_SWEEPS = 20
_UNSURE_LOOKS = 3  # after one that found nothing, when a process was between two programs
_BLANK_SECONDS = 0.01
_GONE_SECONDS = 0.5  # between SIGKILL and the next look

_instance = f"process-{os.getpid()}"  # until ``reap`` has said whose we are


@dataclass(slots=True, eq=False)
class Group:
    """A command below a launcher, and what it has started. ``pid`` is the command's process."""

    pid: int
    process: Process  # the launcher's, with the command's streams
    control: _Control = field(repr=False)
    run: str = field(repr=False)
    gone: asyncio.Event  # the launcher has ended
    over: asyncio.Event  # and the command's output is closed
    transport: asyncio.SubprocessTransport = field(repr=False)

    @property
    def exited(self) -> asyncio.Event:
        """Set when the command has ended, though something that it started may go on."""
        return self.control.exited

    @property
    def returncode(self) -> int | None:
        """Of the command, negative for a signal; None while it runs."""
        return self.control.returncode

    @property
    def stdin(self) -> asyncio.StreamWriter:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        assert self.process.stderr is not None
        return self.process.stderr


class Groups:
    """The commands of one session that the bridge runs itself, for as long as anything of them
    does.
    """

    def __init__(self) -> None:
        self._ending: dict[Group, asyncio.Task[None]] = {}

    def add(self, group: Group) -> None:
        self._ending[group] = asyncio.create_task(self._forget(group))

    async def _forget(self, group: Group) -> None:
        await group.control.closed.wait()
        del self._ending[group]

    async def end(self) -> None:
        """End all of them at once."""
        await asyncio.gather(*(end_group(group, patience=0) for group in tuple(self._ending)))


class _Control(asyncio.Protocol):
    """The bridge's end of the socket to a launcher (``launch.py`` has its words)."""

    def __init__(self) -> None:
        self.started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        self.closed = asyncio.Event()  # the launcher is gone
        self.nothing_left = False
        self._cleared: list[asyncio.Future[None]] = []
        self._said = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

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
            self.started.set_exception(OSError("its launcher ended at once"))
        if not self.exited.is_set():
            self._exit(-signal.SIGKILL)
        for waiting in self._cleared:
            waiting.set_result(None)
        self._cleared.clear()
        self.closed.set()

    def _exit(self, code: int) -> None:
        self.returncode = code
        self.exited.set()

    def terminate(self) -> None:
        """Ask the command to end."""
        self.tell(b"t")

    async def clear(self) -> None:
        """Have ended what the command has left running; returns when it has."""
        if not self.closed.is_set():
            waiting = asyncio.get_running_loop().create_future()
            self._cleared.append(waiting)
            self.tell(b"o")
            await asyncio.shield(waiting)  # the answers come in the order of the questions

    def end(self) -> None:
        """Have everything ended; the launcher goes when that is done."""
        if self._transport is not None and not self.closed.is_set():
            self._transport.write_eof()

    def tell(self, word: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(word)


class _Protocol(SubprocessStreamProtocol):
    """Says when the process has ended, and when its output is closed."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit, loop=asyncio.get_running_loop())
        self.gone, self.over = asyncio.Event(), asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.gone.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.over.set()


async def start(
    command: Sequence[str],
    directory: Path,
    *,
    more: Mapping[str, str] | None = None,
    stdin: bool = False,
    line_bytes: int = limits.AGENT_LINE_BYTES,
) -> Group:
    """Start ``command`` in ``directory`` with the scrubbed environment, the marks and ``more``; its
    output comes by pipes.

    ``stdin``: it can be written to, else it is empty. ``line_bytes``: how much of a line its
    streams keep. Raises FileNotFoundError, PermissionError, or another OSError when it cannot be
    started at all.
    """
    run = uuid.uuid4().hex
    loop = asyncio.get_running_loop()
    environ = child_environment.scrubbed(**(more or {}))
    words = [
        os.fsencode(word) + b"\0"
        for word in (_instance, run, _program(command[0], directory, environ), *command[1:])
    ]
    if any(b"\0" in word[:-1] for word in words):
        raise ValueError("a command holds no NUL")
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Protocol(line_bytes),
                *[sys.executable, "-I", "-S", str(LAUNCHER), str(theirs.fileno())],
                stdin=PIPE if stdin else DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                cwd=directory,
                env=environ,
                start_new_session=True,
                umask=UMASK,
                pass_fds=[theirs.fileno()],
            )
        _, control = await loop.create_connection(_Control, sock=ours)
    except BaseException:
        ours.close()  # which ends what there is by now
        raise
    control.tell(b"%d\n" % len(words) + b"".join(words))
    try:
        pid = await control.started
    except BaseException:
        control.end()
        transport.close()
        raise
    return Group(
        pid,
        Process(transport, protocol, loop),
        control,
        run,
        protocol.gone,
        protocol.over,
        transport,
    )


def _program(name: str, directory: Path, environ: Mapping[str, str]) -> str:
    """Where a program is, by the path that it will have itself; said here, where the error can
    still be told from others.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no directory {directory}")
    if found := shutil.which(
        name if "/" not in name else str(directory / name), path=search_path(environ)
    ):
        return found
    if "/" in name and (directory / name).is_file():
        raise PermissionError(f"{name} is not executable")
    raise FileNotFoundError(f"{name} is not installed, or not on the bridge's PATH")


async def end_group(group: Group, *, patience: float = limits.AGENT_END_SECONDS) -> None:
    """End the command and everything that it started: asked first (SIGTERM), after ``patience``
    seconds made to (SIGKILL).
    """
    try:
        if patience and not group.exited.is_set():
            group.control.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(group.exited.wait(), patience)
    finally:
        # also when whoever waits for this gives up: there is no other who would do it
        group.control.end()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(
            asyncio.gather(group.control.closed.wait(), group.gone.wait()), limits.AGENT_END_SECONDS
        )
    if not group.control.nothing_left:
        await asyncio.to_thread(end_run, group.run)
    if group.process.stdin is not None:
        group.process.stdin.close()
    # what it had printed is read by whoever reads; what nobody reads would keep the pipe open for
    # ever
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(group.over.wait(), _GONE_SECONDS)
    group.transport.close()


async def end_background(group: Group) -> None:
    """End what the command has left running: processes whose parent has gone, with all they
    started.

    The command goes on, and so do its own children: of an agent those are the helpers that it
    needs.
    """
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(group.control.clear(), limits.AGENT_END_SECONDS)


def end_run(run: str) -> int:
    """End what carries the mark of a run; how many processes that were."""
    return _sweep(AGENT_RUN, run)


def reap(instance: str) -> int:
    """End what an earlier bridge with this data directory left running, and mark from here on what
    is started as ``instance``'s.

    To be called once, at the start, by the one process that holds the data directory. Returns how
    many processes were ended.
    """
    global _instance
    _instance = instance
    return _sweep(AGENT_OF, instance)


def _sweep(name: str, value: str) -> int:
    ended: set[int] = set()
    unsure = _UNSURE_LOOKS
    for _ in range(_SWEEPS):
        found, blank = _carrying(name, value)
        ended.update(process.pid for process in found)
        _end(found)
        if not found:
            unsure -= 1
            if not blank or not unsure:
                break
            time.sleep(_BLANK_SECONDS)
    return len(ended)


def _end(processes: list[psutil.Process]) -> None:
    """psutil holds a process against its time of birth, so that a number that was given out anew is
    not taken for it.
    """
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_GONE_SECONDS)


def _carrying(name: str, value: str) -> tuple[list[psutil.Process], bool]:
    """Our user's processes with this mark, and whether one showed no environment at all: it may
    just be becoming another program.
    """
    me = psutil.Process()
    spared, uid = {me.pid, *(parent.pid for parent in me.parents())}, os.getuid()
    found, blank = [], False
    for process in psutil.process_iter():
        try:
            if (
                process.pid in spared
                or process.uids().real != uid
                or process.status() == psutil.STATUS_ZOMBIE
            ):
                continue
            environ = process.environ()
            blank = blank or not environ
            if environ.get(name) == value:
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or not ours to look into
            continue
    return found, blank
