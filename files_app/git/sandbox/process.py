"""One git process: its own group, a time limit, output bounded while it is read, and nothing left
of it or its children afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError

_CHUNK: Final = 64 * 1024
# how soon it is noticed that git has ended while a child of it holds its output open
_LOOK_SECONDS: Final = 0.05
# for what git has said when it has ended; a child of it may go on for ever
_LAST_WORDS_SECONDS: Final = 0.5
_UMASK: Final = 0o022  # the bridge's own is 077, for its data; what git writes is the repository's
_ERR_MAX_BYTES: Final = 64 * 1024

_running: set[subprocess.Popen[bytes]] = set()
_guard: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Done:
    """How a process ended: ``cut`` says that it had more to say than it was let."""

    code: int
    out: bytes
    err: bytes
    cut: bool = False


def run(
    arguments: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    seconds: float,
    max_bytes: int,
    check: Callable[[], None] | None = None,
) -> Done:
    """Run ``git ARGUMENTS`` and wait for it.

    Of its output at most ``max_bytes`` are read; then it is ended, and the answer is ``cut``. After
    ``seconds`` it is ended, and that is a GIT_ERROR, as is a machine without git. Whatever git
    started in its own group is ended with it, also when git has ended well. ``check`` is called
    when git has run for GIT_CHECK_SECONDS, and then ever more rarely; what it raises ends git.
    """
    process = _start([executable(), *arguments], cwd, environment)
    exchange = _Exchange(process, stdin, max_bytes, check)
    try:
        in_time = exchange.go(time.monotonic() + seconds)
    finally:
        _end(process)
        exchange.close()
    if not in_time:
        raise BridgeError("GIT_ERROR", f"git took longer than {seconds:g} seconds and was ended.")
    return Done(process.returncode, bytes(exchange.out), bytes(exchange.err), exchange.cut)


@functools.cache
def executable() -> str:
    """Git's absolute path: a relative entry in PATH would let a repository bring its own."""
    found = shutil.which("git", path=search_path())
    if found is None:
        raise BridgeError("GIT_ERROR", "git is not installed on the bridge's machine.")
    return found


def search_path() -> str:
    return os.pathsep.join(
        part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(part)
    )


def end_all() -> None:
    """End whatever runs; the threads that wait for it go on at once."""
    with _guard:
        running = list(_running)
    for process in running:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + limits.GIT_END_SECONDS
    for process in running:
        if not _exits_by(process, deadline):
            _signal(process, signal.SIGKILL)


def _start(command: list[str], cwd: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            umask=_UMASK,
            bufsize=0,
        )
    except (FileNotFoundError, NotADirectoryError):  # git is there, so it is the directory
        raise BridgeError("FILE_NOT_FOUND") from None
    except PermissionError:
        raise BridgeError("FILE_ACCESS_DENIED") from None
    with _guard:
        _running.add(process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group. As long as its leader has not been waited for, its number is nobody else's."""
    try:
        if not _exited(process):
            _signal(process, signal.SIGTERM)  # git takes its lock files away
            _exits_by(process, time.monotonic() + limits.GIT_END_SECONDS)
        _signal(process, signal.SIGKILL)
        process.wait()
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
        time.sleep(_LOOK_SECONDS / 5)
    return True


def _exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended, without waiting for it where the system can tell."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # another thread has waited for it
        return True


class _Exchange:
    """What goes in and out of a process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: bytes,
        max_bytes: int,
        check: Callable[[], None] | None,
    ) -> None:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        self.process = process
        self.left = memoryview(stdin)
        self.max_bytes = max_bytes
        self.check = check
        self.out, self.err = bytearray(), bytearray()
        self.cut = False
        self.streams = (process.stdin, process.stdout, process.stderr)
        self.selector = selectors.DefaultSelector()
        for stream in self.streams:
            os.set_blocking(stream.fileno(), False)
        self.selector.register(process.stdout, selectors.EVENT_READ, self._read_out)
        self.selector.register(process.stderr, selectors.EVENT_READ, self._read_err)
        if stdin:
            self.selector.register(process.stdin, selectors.EVENT_WRITE, self._write)
        else:
            process.stdin.close()

    def go(self, deadline: float) -> bool:
        """Until the process has ended, or has said too much; False when the deadline came first."""
        exited = False
        wait = limits.GIT_CHECK_SECONDS
        check_at = time.monotonic() + wait
        while self.selector.get_map() and not self.cut:
            if not exited and _exited(self.process):
                exited, deadline = True, min(deadline, time.monotonic() + _LAST_WORDS_SECONDS)
            elif self.check is not None and time.monotonic() > check_at:
                self.check()
                wait *= 3
                check_at = time.monotonic() + wait
            ready = self.selector.select(0 if exited else _LOOK_SECONDS)
            for key, _ in ready:
                key.data()
            if exited and not ready:
                return True  # what git itself said is read
            if time.monotonic() > deadline:
                return exited
        return self.cut or _exits_by(self.process, deadline)

    def close(self) -> None:
        self.selector.close()
        for stream in self.streams:
            stream.close()

    def _read_out(self) -> None:
        data = self._read(1)
        room = self.max_bytes - len(self.out)
        self.out += data[:room]
        self.cut = len(data) > room

    def _read_err(self) -> None:
        data = self._read(2)
        self.err += data[: _ERR_MAX_BYTES - len(self.err)]

    def _read(self, number: int) -> bytes:
        stream = self.streams[number]
        data = os.read(stream.fileno(), _CHUNK)
        if not data:
            self.selector.unregister(stream)
        return data

    def _write(self) -> None:
        stream = self.streams[0]
        try:
            self.left = self.left[os.write(stream.fileno(), self.left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not want to hear more
            self.left = self.left[:0]
        if not self.left:
            self.selector.unregister(stream)
            stream.close()
