"""Run calls that touch files in threads, of which a hung mount holds few (D12).

A thread that waits for a dead disk cannot be ended. So each mount has few threads; who waits for
one that shows no progress is answered after DISK_HUNG_SECONDS, and other mounts go on. Where
DISK_THREADS_HUNG have been given up, the next call is refused at once, until one returns.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from bridge_project.kernel import limits, mounts
from bridge_project.kernel.errors import BridgeError

P = ParamSpec("P")
T = TypeVar("T")

POOL: Final = 64  # threads at most: of so many mounts, halved, each can hang
_here = threading.local()  # `.call` is what this thread runs
_lock = threading.Lock()
_hung: Counter[str] = Counter()  # mount point → calls that were given up and have not returned


class _Call:
    """Hold a call: its mount, and when and where it was last seen to go on."""

    def __init__(self, threads: DiskThreads, path: str, work: Callable[[], Any]) -> None:
        self.threads, self.work = threads, work
        self.path = self.place = path
        self.mount = mount_point(path)
        self.moved_at = time.monotonic()
        self.hung = False
        self.future: Future[Any] = Future()

    def patience(self) -> float:
        """Return the seconds until it counts as hung.

        One that has not begun waits for those before it as long as one of them goes on.
        """
        ahead = () if self.future.running() else tuple(self.threads.active[self.mount])
        moved_at = max(one.moved_at for one in (self, *ahead))
        return moved_at + limits.DISK_HUNG_SECONDS - time.monotonic()


class DiskThreads:
    """Run calls about paths, each mount's apart from the others'.

    Every method raises FILE_UNAVAILABLE, with the path, for a mount that does not answer.
    """

    def __init__(self, name: str, a_mount: int, around: Callable[[Callable[[], Any]], Any]) -> None:
        """``a_mount``: calls that run at once for one mount; ``around`` makes each."""
        self._pool = ThreadPoolExecutor(POOL, thread_name_prefix=name)
        self._a_mount, self._around = a_mount, around
        self.active: defaultdict[str, set[_Call]] = defaultdict(set)  # of each mount point
        self._waiting: defaultdict[str, deque[_Call]] = defaultdict(deque)

    async def run(self, path: str, function: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Call `function`, which touches files at and below `path`."""
        call = self._submit(path, partial(function, *args, **kw))
        waiter: asyncio.Future[T] = asyncio.wrap_future(call.future)
        while not waiter.done():
            await asyncio.wait({waiter}, timeout=max(0.0, min(call.patience(), 60.0)))
            if not waiter.done() and self._give_up(call):
                waiter.cancel()
                raise unavailable(call.path)
        return waiter.result()

    def call(self, path: str, function: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Do what `run` does, in a thread that may wait."""
        call = self._submit(path, partial(function, *args, **kw))
        while not call.future.done():
            wait({call.future}, timeout=max(0.0, min(call.patience(), 60.0)))
            if not call.future.done() and self._give_up(call):
                raise unavailable(call.path)
        result: T = call.future.result()
        return result

    def _submit(self, path: str, work: Callable[[], Any]) -> _Call:
        call = _Call(self, path, work)
        if _hangs(call.mount):
            raise unavailable(path)
        with _lock:
            self._waiting[call.mount].append(call)
            self._start(call.mount)
        return call

    def _start(self, mount: str) -> None:
        """Start what waits for the mount while it has threads; the lock is held."""
        waiting = self._waiting[mount]
        while waiting and len(self.active[mount]) < self._a_mount:
            call = waiting.popleft()
            if call.future.set_running_or_notify_cancel():
                call.moved_at = time.monotonic()
                self.active[mount].add(call)
                self._pool.submit(self._work, call)
        if not waiting:
            del self._waiting[mount]

    def _work(self, call: _Call) -> None:
        _here.call = call
        result, failure = None, None
        try:
            result = self._around(call.work)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            failure = error
        finally:
            _here.call = None
            with _lock:
                self.active[call.mount].discard(call)
                _hung[call.mount] -= call.hung
                self._start(call.mount)
        if failure is not None:
            call.future.set_exception(failure)
        else:
            call.future.set_result(result)

    def _give_up(self, call: _Call) -> bool:
        """Return whether nobody needs to wait any longer for a call.

        One that began counts against the mount where it stands, which a link may have led to.
        """
        at = mount_point(call.place)
        with _lock:
            if call.patience() > 0 or call.future.done():
                return False
            if not call.future.cancel():
                self.active[call.mount].discard(call)
                self.active[at].add(call)
                self._start(call.mount)
                _hung[at] += 1
                call.mount, call.hung = at, True
            return True


def _hangs(mount: str) -> bool:
    return _hung[mount] >= limits.DISK_THREADS_HUNG


def mount_point(path: str) -> str:
    """Return the mount that a path lies in, by its name alone; nothing is touched."""
    found = mounts.mount_of(path, mounts.mounts()) if path.startswith("/") else None
    return found.point if found else "/"


def unavailable(path: str) -> BridgeError:
    """Make the error for a path whose file system does not answer."""
    text = f"The file system of {path.encode(errors='replace').decode()} does not answer."
    return BridgeError("FILE_UNAVAILABLE", text)


def reaches(path: str) -> None:
    """Note in a disk thread that the next step is about `path`.

    Raises FILE_UNAVAILABLE when a link has led to a mount that hangs.
    """
    call: _Call | None = getattr(_here, "call", None)
    if call is not None:
        call.moved_at, call.place = time.monotonic(), path
        if any(_hung.values()) and _hangs(mount_point(path)):
            raise unavailable(call.path)


@contextmanager
def bounded_otherwise() -> Iterator[None]:
    """In a disk thread: meanwhile something else bounds how long it takes."""
    call: _Call | None = getattr(_here, "call", None)
    if call is not None:
        call.moved_at = math.inf
    try:
        yield
    finally:
        if call is not None:
            call.moved_at = time.monotonic()
