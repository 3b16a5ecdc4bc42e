"""Run calls that touch files in threads, of which a hung mount holds few (D12).

A thread that waits for a dead disk cannot be ended. So DISK_THREADS_HUNG calls at most, of files
and of git together, stand on one mount at once. The others wait until one of them leaves it: it is
done, follows a link to another mount, or waits for a program that has a time limit. Who waits for
a mount that shows no progress is answered after DISK_HUNG_SECONDS, and other mounts go on. Once all
that stand on a mount have been given up, the next call is refused at once, until one returns.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from bridge_project.kernel import limits, mounts
from bridge_project.kernel.errors import BridgeError

P = ParamSpec("P")
T = TypeVar("T")

POOL: Final = 64  # threads at most: of so many mounts, halved, each can hang
LOOK_SECONDS: Final = 1.0  # between looks at a call that something else bounds
_here = threading.local()  # `.call` is what this thread runs
_changed = threading.Condition()  # its lock guards all below
_standing: defaultdict[str, set[_Call]] = defaultdict(set)  # of each mount point, of all pools


class _Call:
    """Hold a call: its mount, and when it was last seen to go on there."""

    def __init__(self, threads: DiskThreads, path: str, work: Callable[[], Any]) -> None:
        self.threads, self.work, self.path = threads, work, path
        self._place = path  # about which its last step was
        self._points = mounts.points()
        self.mount = self._mount_point(path)
        self.moved_at = time.monotonic()  # `inf`: it needs nobody to give it up
        self.hung = False
        self.future: Future[Any] = Future()

    def patience(self) -> float:
        """Return the seconds until it counts as hung.

        One that has not begun waits for those before it as long as one of them goes on.
        """
        ahead = () if self.future.running() else tuple(self.threads.active[self.mount])
        return _hangs_in(self.moved_at, ahead)

    def reaches(self, path: str) -> None:
        """Stand on the mount of `path`, once there is room; raise if it hangs."""
        self._place, mount = path, self._mount_point(path)
        if mount == self.mount and self in _standing[mount]:
            self.moved_at = time.monotonic()
            return
        with _changed:
            self._leave()
            self.threads.move(self, mount)
            self._stand()

    def leaves(self) -> None:
        """Make room on the mount, as long as something else bounds how long it takes."""
        with _changed:
            self._leave()

    def comes_back(self) -> None:
        """Stand where its last step was; raise if that hangs."""
        self._points = mounts.points()  # something may have been mounted meanwhile
        self.reaches(self._place)

    def _leave(self) -> None:
        _standing[self.mount].discard(self)
        self.moved_at = math.inf
        _changed.notify_all()

    def _stand(self) -> None:
        since, there = time.monotonic(), _standing[self.mount]
        while len(there) >= limits.DISK_THREADS_HUNG:
            seconds = _hangs_in(since, there)
            if _hangs(self.mount) or seconds <= 0:
                raise unavailable(self.path)
            _changed.wait(seconds)
        there.add(self)
        self.moved_at = time.monotonic()

    def _mount_point(self, path: str) -> str:
        """Return the mount that a path lies in, by its name alone; nothing is touched."""
        while path not in self._points:
            path = path.rpartition("/")[0] or "/"
        return path


def _hangs_in(since: float, ahead: Iterable[_Call]) -> float:
    """Return in how many seconds a call hangs that waits for others since then."""
    moved_at = max([since, *(one.moved_at for one in ahead)])
    return moved_at + limits.DISK_HUNG_SECONDS - time.monotonic()


class DiskThreads:
    """Run calls about paths, each mount's apart from the others'.

    Every method raises FILE_UNAVAILABLE, with the path, for a mount that does not answer.
    """

    def __init__(self, name: str, a_mount: int, around: Callable[[Callable[[], Any]], Any]) -> None:
        """``a_mount``: calls begun for one mount; ``around`` makes each."""
        self._pool = ThreadPoolExecutor(POOL, thread_name_prefix=name)
        self._a_mount, self._around = a_mount, around
        self.active: defaultdict[str, set[_Call]] = defaultdict(set)  # of each mount point
        self._waiting: defaultdict[str, deque[_Call]] = defaultdict(deque)

    async def run(self, path: str, function: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Call `function`, which touches files at and below `path`."""
        call = self._submit(path, partial(function, *args, **kw))
        waiter: asyncio.Future[T] = asyncio.wrap_future(call.future)
        while not waiter.done():
            await asyncio.wait({waiter}, timeout=_next_look(call))
            if not waiter.done() and _give_up(call):
                waiter.cancel()
                raise unavailable(call.path)
        return waiter.result()

    def call(self, path: str, function: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Do what `run` does, in a thread that may wait."""
        call = self._submit(path, partial(function, *args, **kw))
        while not call.future.done():
            wait({call.future}, timeout=_next_look(call))
            if not call.future.done() and _give_up(call):
                raise unavailable(call.path)
        result: T = call.future.result()
        return result

    def move(self, call: _Call, mount: str) -> None:
        """Count a running call for another mount; the lock is held."""
        self.active[call.mount].discard(call)
        self.active[mount].add(call)
        self._start(call.mount)
        call.mount = mount

    def _submit(self, path: str, work: Callable[[], Any]) -> _Call:
        call = _Call(self, path, work)
        with _changed:
            if _hangs(call.mount):
                raise unavailable(path)
            self._waiting[call.mount].append(call)
            self._start(call.mount)
        return call

    def _start(self, mount: str) -> None:
        """Start what waits for the mount while it has threads; the lock is held."""
        waiting = self._waiting[mount]
        while waiting and len(self.active[mount]) < self._a_mount:
            call = waiting.popleft()
            if call.future.set_running_or_notify_cancel():
                call.moved_at = math.inf
                self.active[mount].add(call)
                self._pool.submit(self._work, call)
        if not waiting:
            del self._waiting[mount]

    def _work(self, call: _Call) -> None:
        _here.call = call
        result, failure = None, None
        try:
            call.comes_back()
            result = self._around(call.work)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            failure = error
        finally:
            _here.call = None
            call.leaves()
            with _changed:
                self.active[call.mount].discard(call)
                self._start(call.mount)
        if failure is not None:
            call.future.set_exception(failure)
        else:
            call.future.set_result(result)


def _next_look(call: _Call) -> float:
    """Return in how many seconds to look whether the call hangs."""
    return max(0.0, min(call.patience(), LOOK_SECONDS))


def _give_up(call: _Call) -> bool:
    """Return whether nobody needs to wait any longer for a call."""
    with _changed:
        if call.patience() > 0 or call.future.done():
            return False
        if not call.future.cancel():
            call.hung = True
            _changed.notify_all()
        return True


def _hangs(mount: str) -> bool:
    return sum(one.hung for one in _standing[mount]) >= limits.DISK_THREADS_HUNG


def unavailable(path: str) -> BridgeError:
    """Make the error for a path whose file system does not answer."""
    text = f"The file system of {path.encode(errors='replace').decode()} does not answer."
    return BridgeError("FILE_UNAVAILABLE", text)


def reaches(path: str) -> None:
    """Say in a disk thread that the next step is about `path`.

    A link may have led to another mount. Raises FILE_UNAVAILABLE when that hangs.
    """
    if (call := _current()) is not None:
        call.reaches(path)


@contextmanager
def bounded_otherwise() -> Iterator[None]:
    """In a disk thread: meanwhile something else bounds how long it takes."""
    if (call := _current()) is None:
        yield
        return
    call.leaves()
    try:
        yield
    finally:
        call.comes_back()


@contextmanager
def unbounded() -> Iterator[None]:
    """In `bounded_otherwise`: meanwhile nothing does."""
    if (call := _current()) is None:
        yield
        return
    call.comes_back()
    try:
        yield
    finally:
        call.leaves()


def _current() -> _Call | None:
    return getattr(_here, "call", None)
