"""The processes of agents: each a group of its own that ends with all it started, dies with the bridge, and is found again if it did not (D35, D40).

Every process carries two marks in its environment, which all that it starts inherits: the bridge it belongs to (``BRIDGE_AGENT_OF``, the data
directory's id) and the run (``BRIDGE_AGENT_RUN``). By them is found what left the group (``setsid``) or was left over by its parent. Only processes of our
own user that carry the mark are ever ended, and never this process or one that it descends from: a bridge can have been started by an agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bridge_project import child_environment, limits

AGENT_OF = "BRIDGE_AGENT_OF"
AGENT_RUN = "BRIDGE_AGENT_RUN"
LAUNCHER = Path(__file__).with_name("launch.py")
_UMASK = 0o022  # the bridge's own is 077, for its data; what an agent writes is the user's
_SWEEPS = 20  # what is being ended can start more meanwhile; one that does so for ever is left to the next sweep
_UNSURE_LOOKS = 3  # after one that found nothing, when a process was between two programs
_BLANK_SECONDS = 0.01
_GONE_SECONDS = 0.5  # between SIGKILL and the next look

_instance = f"process-{os.getpid()}"  # until ``reap`` has said whose we are


@dataclass(slots=True)
class Group:
    """A started process. ``exited`` is set as soon as it has ended, even while something that it started holds its output open; ``over`` when that is closed too."""

    process: Process
    exited: asyncio.Event
    over: asyncio.Event
    run: str = field(repr=False)
    transport: asyncio.SubprocessTransport = field(repr=False)

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


class _Protocol(SubprocessStreamProtocol):
    """Says when the process has ended: ``Process.wait`` of Python 3.11 waits for the end of its output too."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit, loop=asyncio.get_running_loop())
        self.exited, self.over = asyncio.Event(), asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.over.set()


async def start(
    command: Sequence[str], directory: Path, *, more: Mapping[str, str] | None = None, stdin: bool = False, line_bytes: int = limits.AGENT_LINE_BYTES
) -> Group:
    """Start ``command`` in ``directory`` with the scrubbed environment, the marks and ``more``; its output comes by pipes.

    ``stdin``: it can be written to, else it is empty. ``line_bytes``: how much of a line its streams keep. Raises FileNotFoundError,
    PermissionError, or another OSError when it cannot be started at all.
    """
    run = uuid.uuid4().hex
    environ = child_environment.scrubbed(**{**(more or {}), **marks(run)})
    transport, protocol = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Protocol(line_bytes),
        *launched([_program(command[0], directory, environ), *command[1:]]),
        stdin=PIPE if stdin else DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=directory,
        env=environ,
        start_new_session=True,
        umask=_UMASK,
    )
    return Group(Process(transport, protocol, asyncio.get_running_loop()), protocol.exited, protocol.over, run, transport)


def marks(run: str) -> dict[str, str]:
    """The variables by which what is started with them is found again."""
    return {AGENT_OF: _instance, AGENT_RUN: run}


def launched(command: Sequence[str]) -> list[str]:
    """``command`` by way of the launcher.

    The kernel's signal goes by the thread that started a process, not by the process: where that is not the main thread, which lives as long as
    the bridge, the process is not tied to it, and ``reap`` has to find it.
    """
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(parent), *command]


def _program(name: str, directory: Path, environ: Mapping[str, str]) -> str:
    """Where a program is, by the path that it will have itself; said here, where the error can still be told from others."""
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no directory {directory}")
    if found := shutil.which(name if "/" not in name else str(directory / name), path=search_path(environ)):
        return found
    if "/" in name and (directory / name).is_file():
        raise PermissionError(f"{name} is not executable")
    raise FileNotFoundError(f"{name} is not installed, or not on the bridge's PATH")


def search_path(environ: Mapping[str, str] = os.environ) -> str:
    """PATH without relative entries, by which a repository could bring a program of its own."""
    return os.pathsep.join(part for part in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(part))


async def end_group(group: Group, *, patience: float = limits.AGENT_END_SECONDS) -> None:
    """End the process and everything that it started: asked first (SIGTERM), after ``patience`` seconds made to (SIGKILL)."""
    try:
        family = await asyncio.to_thread(_family, group.process.pid) if not group.exited.is_set() else []
        if patience and not group.exited.is_set():
            _signal_group(group, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(group.exited.wait(), patience)
    finally:
        _signal_group(group, signal.SIGKILL)  # also when whoever waits for this gives up: there is no other who would do it
    await asyncio.to_thread(_end, family)
    await asyncio.to_thread(end_run, group.run)
    await group.exited.wait()
    if group.process.stdin is not None:
        group.process.stdin.close()
    with contextlib.suppress(TimeoutError):  # what it had printed is read by whoever reads; what nobody reads would keep the pipe open for ever
        await asyncio.wait_for(group.over.wait(), _GONE_SECONDS)
    group.transport.close()


def end_run(run: str) -> int:
    """End what carries the mark of a run; how many processes that were."""
    return _sweep(AGENT_RUN, run)


def reap(instance: str) -> int:
    """End what an earlier bridge with this data directory left running, and mark from here on what is started as ``instance``'s.

    To be called once, at the start, by the one process that holds the data directory. Returns how many processes were ended.
    """
    global _instance
    _instance = instance
    return _sweep(AGENT_OF, instance)


def _signal_group(group: Group, number: signal.Signals) -> None:
    """Only while its leader has not been waited for is the group's number surely its own."""
    if not group.exited.is_set():
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS says so of a group of zombies
            os.killpg(group.process.pid, number)


def _family(pid: int) -> list[psutil.Process]:
    """What descends from a process: found even if it has taken the marks out of its environment."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


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
    """psutil holds a process against its time of birth, so that a number that was given out anew is not taken for it."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_GONE_SECONDS)


def _carrying(name: str, value: str) -> tuple[list[psutil.Process], bool]:
    """Our user's processes with this mark, and whether one showed no environment at all: it may just be becoming another program."""
    me = psutil.Process()
    spared, uid = {me.pid, *(parent.pid for parent in me.parents())}, os.getuid()
    found, blank = [], False
    for process in psutil.process_iter():
        try:
            if process.pid in spared or process.uids().real != uid or process.status() == psutil.STATUS_ZOMBIE:
                continue
            environ = process.environ()
            blank = blank or not environ
            if environ.get(name) == value:
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, or not ours to look into
            continue
    return found, blank
