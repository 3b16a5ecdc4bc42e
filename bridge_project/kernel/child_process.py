"""Run a program with a deadline and bounded output; end its whole process group."""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import psutil

from bridge_project.kernel import limits, ways
from bridge_project.kernel.disk_threads import bounded_otherwise, reaches, unbounded

CHUNK: Final = 64 * 1024
UMASK: Final = 0o022  # the bridge's own is 077, for its data; what a program writes is the user's
LAST_OUTPUT_SECONDS: Final = 0.5  # for what an ended program printed: its child may go on for ever
_EXIT_POLL_SECONDS: Final = 0.05  # until an end is noticed while a child holds the output open
_ERR_MAX_BYTES: Final = 64 * 1024

_running: set[subprocess.Popen[bytes]] = set()
_ending = False  # `end_all` was called
_guard: Final = threading.Lock()


class Output:
    """Keep the first ``limit`` bytes of a stream, or with ``tail`` the last."""

    def __init__(self, limit: int = limits.TOOL_OUTPUT_BYTES, *, tail: bool = False) -> None:
        self.kept = bytearray()
        self.total = 0
        self._limit = limit
        self._tail = tail

    @property
    def cut(self) -> bool:
        return self.total > self._limit

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self.kept += data if self._tail else data[: max(0, self._limit - len(self.kept))]
        del self.kept[: max(0, len(self.kept) - self._limit)]

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read ``stream`` to its end, and keep what the limit allows."""
        while data := await stream.read(CHUNK):
            self.add(data)

    @property
    def text(self) -> str:
        """Return the kept bytes as text, without a cut character or NULs."""
        return self.kept.decode("utf-8", "ignore" if self.cut else "replace").replace(
            "\x00", "\ufffd"
        )

    def __str__(self) -> str:
        return f"{self.text}\n[cut: {self.total} bytes in all]" if self.cut else self.text


@dataclass(frozen=True, slots=True)
class Done:
    """Hold how a program ended; ``cut``: it printed too much and was ended."""

    code: int
    out: bytes
    err: bytes
    cut: bool = False


def search_path(environ: Mapping[str, str] = os.environ) -> str:
    """Return PATH without relative entries, which a repository could fill."""
    return os.pathsep.join(
        part for part in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(part)
    )


def run(
    command: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    seconds: float,
    max_bytes: int,
    check: Callable[[], object] | None = None,
    pass_fds: Sequence[int] = (),
) -> Done:
    """Run ``command`` and wait for it; call this in a thread.

    Its whole group is ended with it, also after a success. ``check`` is called after
    GIT_CHECK_SECONDS, and then less and less often; an exception from it ends the program. By
    default it sees whether the disk of ``cwd`` answers (see ``disk_threads``). Raises
    TimeoutError after ``seconds``, OSError when it cannot be started.
    """
    reaches(cwd)
    with tempfile.TemporaryFile() if stdin else open(os.devnull, "w+b") as given:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=UMASK,
            bufsize=0,
            pass_fds=pass_fds,
        )
    with _guard:
        _running.add(process)
        if _ending:  # `end_all` did not see it
            seconds = min(seconds, limits.GIT_END_SECONDS)
    out, err = Output(max_bytes), Output(_ERR_MAX_BYTES)
    try:
        with bounded_otherwise():
            deadline, there = time.monotonic() + seconds, partial(os.path.exists, cwd)
            in_time = _read(process, out, err, deadline, check or there)
    finally:
        _end(process)
    if not in_time:
        raise TimeoutError(f"{seconds:g} seconds")
    return Done(process.returncode, bytes(out.kept), bytes(err.kept), out.cut)


def end_all() -> None:
    """End running programs; those that start later get at most GIT_END_SECONDS.

    A thread whose program was ended may start another, as a commit does with its last steps.
    """
    global _ending
    with _guard:
        _ending = True
        running = list(_running)
    for process in running:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + limits.GIT_END_SECONDS
    for process in running:
        if not _exits_by(process, deadline):
            _signal(process, signal.SIGKILL)


def _read(
    process: subprocess.Popen[bytes],
    out: Output,
    err: Output,
    deadline: float,
    check: Callable[[], object],
) -> bool:
    """Read until the program ends or prints too much; False past the deadline."""
    exited, wait = False, limits.GIT_CHECK_SECONDS
    check_at = time.monotonic() + wait
    with selectors.DefaultSelector() as selector:
        for stream, output in ((process.stdout, out), (process.stderr, err)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, output)
        while selector.get_map() and not out.cut:
            if not exited and _exited(process):
                exited, deadline = True, min(deadline, time.monotonic() + LAST_OUTPUT_SECONDS)
            elif time.monotonic() > check_at:
                with unbounded():
                    check()
                wait *= 3
                check_at = time.monotonic() + wait
            ready = selector.select(0 if exited else _EXIT_POLL_SECONDS)
            for key, _ in ready:
                if data := os.read(key.fd, CHUNK):
                    key.data.add(data)
                else:
                    selector.unregister(key.fileobj)
            if exited and not ready:
                return True
            if time.monotonic() > deadline:
                return exited
    return out.cut or _exits_by(process, deadline)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group, before its leader is waited for: the id is still its own."""
    try:
        with process:  # at its end the output is closed, and the leader waited for
            if not _exited(process):
                _signal(process, signal.SIGTERM)  # git takes its lock files away
                _exits_by(process, time.monotonic() + limits.GIT_END_SECONDS)
            _signal(process, signal.SIGKILL)
    finally:
        with _guard:
            _running.discard(process)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # PermissionError: macOS says so of a group of zombies
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _exits_by(process: subprocess.Popen[bytes], deadline: float) -> bool:
    while not _exited(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(_EXIT_POLL_SECONDS / 10)
    return True


def _exited(process: subprocess.Popen[bytes]) -> bool:
    """Return whether it has ended, without reaping it."""
    if process.returncode is not None:
        return True
    try:
        if ways.linux["children"] and sys.platform != "darwin":
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, process.pid, how) is not None
        return psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    except (ChildProcessError, psutil.NoSuchProcess):  # another thread has waited for it
        return True
