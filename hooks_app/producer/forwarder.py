"""Send the spool's events to the bridge until it accepts or refuses each (D47)."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hooks_app.producer.spool import Spool
from hooks_app.producer.spool_queue import STALE_RETRIES, Item, SpoolQueue, seconds_behind
from hooks_app.producer.translate import Event

try:
    import inotify_simple
except ImportError:  # another machine, or not Linux
    inotify_simple = None

BACKOFF_SECONDS = (0.2, 30.0)
SCAN_SECONDS = 2.0  # between two scans of the spool when nothing announces a change
UNANNOUNCED_SCAN_SECONDS = 0.05  # the same without inotify, where nothing can announce one
STOP_CHECK_SECONDS = 0.25  # between two checks of `stop`
YOUNG_SECONDS = 0.25  # between two scans while a file is being written
BEHIND_SECONDS = 60.0  # older than this: the log says how far behind the forwarder is, as often
SEND_MAX_EVENTS = 500

log = logging.getLogger("hooks_app.producer.forwarder")


class Result(NamedTuple):
    """Hold the outcome of sending an event.

    ``verdict``: "taken"; "refused" for good, for ``reason``; "stale": only its time was wrong, so
    it is translated anew; "waits": to be sent again as it is.
    """

    verdict: str
    reason: str = ""


TAKEN, WAITS = Result("taken"), Result("waits")


class Unreachable(Exception):
    """Report that nothing was taken; ``seconds``: how long the bridge said to wait."""

    def __init__(self, why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.seconds = seconds


class Limited(Unreachable):
    """Report that the rate allows nothing for ``seconds``."""


class Sender(Protocol):
    """Send events to the bridge."""

    clock_offset: float  # the server's clock minus ours, in seconds

    def allowed(self, waiting: Sequence[Item]) -> int:
        """Return how many of the next events may be sent at once. Raises Limited."""

    def send(self, events: Sequence[Event]) -> list[Result]:
        """Send events; return their results. Raises Unreachable."""


class Forwarder:
    """Empty a spool; a lock file lets one forwarder at a time work on it.

    ``run_once()`` sends what can be sent now; ``run_forever(stop)`` is for a thread. ``trouble``
    says why nothing goes out at present (empty: nothing is wrong).
    """

    def __init__(self, path: Path, sender: Sender) -> None:
        self.spool = Spool(path)
        self.queue = SpoolQueue(self.spool)
        self.trouble = ""
        self._sender = sender
        self._lock: int | None = None
        self._inotify: Any = None
        self._failures = 0
        # monotonic times: of the next look at the spool, the next send, the next log line about
        # the backlog
        self._wake_at = self._retry_at = self._behind_at = 0.0

    def run_forever(self, stop: threading.Event) -> None:
        """Forward until ``stop`` is set.

        Wait while the spool's parent directory is gone, or another forwarder has the spool.
        """
        try:
            while not stop.is_set():
                try:
                    self.run_once()
                except OSError as error:
                    # the spool was removed, or the disk is full: not the forwarder's end
                    self._report(f"the spool cannot be used: {error}")
                    self.close()
                usual = YOUNG_SECONDS if self.queue.young else SCAN_SECONDS
                wait = self._wake_at - time.monotonic()
                self._wait(stop, min(wait, usual) if wait > 0 else usual)
        finally:
            self.close()

    def _wait(self, stop: threading.Event, seconds: float) -> None:
        """Return when a file was written, ``stop`` is set or the time is over.

        Measured, from the written file to the return, and what waiting costs of a core:
        inotify_simple 0.07 ms, 0.04 %; watchfiles, which sleeps in steps, 3.1 ms and 1.4 % at 2 ms
        a step, 1.6 ms and 2.2 % at 1 ms.
        """
        if self._inotify is None:
            stop.wait(UNANNOUNCED_SCAN_SECONDS if self._lock is not None else 1.0)
            return
        while seconds > 0 and not stop.is_set():
            if self._inotify.read(timeout=1000 * min(seconds, STOP_CHECK_SECONDS)):
                return
            seconds -= STOP_CHECK_SECONDS

    def run_once(self) -> int:
        """Send all that can be sent; return how many were taken. Raises OSError."""
        if not self._locked():
            return 0
        taken, next_read = 0, 0.0
        try:
            while True:
                # A spool of many thousands takes its time to list: events go out meanwhile.
                if (began := time.monotonic()) >= next_read or not self.queue.items:
                    self.queue.read_new()
                    next_read = time.monotonic() + 4 * (time.monotonic() - began)
                if not self.queue.items or time.monotonic() < self._retry_at:
                    break
                taken += self._round()
        except Unreachable as error:
            if (wait := error.seconds) is None:
                low, high = BACKOFF_SECONDS
                self._failures += 1
                wait = min(high, low * 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1)
            self._wake_at = time.monotonic() + wait
            if not isinstance(error, Limited):  # else a permission request may go before that
                self._retry_at = self._wake_at
                self._report(str(error))
        self.queue.report()
        count, behind = len(self.queue.items), seconds_behind(self.queue.items)
        if behind >= BEHIND_SECONDS and time.monotonic() >= self._behind_at:
            log.warning("%d hook events wait, the oldest for %.0f seconds", count, behind)
            self._behind_at = time.monotonic() + BEHIND_SECONDS
        return taken

    def _round(self) -> int:
        chosen = self.queue.take(
            self._sender.allowed(self.queue.items[:SEND_MAX_EVENTS]), self._sender.clock_offset
        )
        results = [WAITS] * len(chosen)
        try:
            if chosen:
                results = self._sender.send([event for _, event in chosen])
                self._failures = 0
                self._report("")
        finally:
            settled = zip([item for item, _ in chosen], results)
            # back to where they were
            self.queue.items[:0] = [item for item, result in settled if self._again(item, result)]
        return results.count(TAKEN)

    def _again(self, item: Item, result: Result) -> bool:
        """Act on an event's result; return whether it is to be sent again."""
        if result.verdict == "stale" and item.stale < STALE_RETRIES:
            item.stale += 1
            return True
        if result is TAKEN:
            self.spool.drop(item.file.name)
        elif result is not WAITS:
            self.queue.refuse(item.file, result.reason, item.session)
        return result is WAITS

    def _locked(self) -> bool:
        """Lock the spool, and return whether that worked.

        A lock file that was replaced (a new spool at the same place) is taken anew.
        """
        path = self.spool.path / "lock"
        self.spool.make_directory()
        if self._lock is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(self._lock).st_ino == path.stat().st_ino:
                    return True
            self.close()
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        self.spool.make()
        with contextlib.suppress(OSError):  # the system's number of watches is used up
            self._inotify = inotify_simple and _watch(self.spool.path)
        return True

    def close(self) -> None:
        """Unlock the spool for the next forwarder."""
        self.queue.items.clear()
        if self._inotify is not None:
            self._inotify.close()
        if self._lock is not None:
            os.close(self._lock)
        self._inotify = self._lock = None

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("%s", trouble)
        elif self.trouble and not trouble:
            log.info("the bridge takes events again")
        self.trouble = trouble


def _watch(path: Path) -> Any:
    flags = inotify_simple.flags
    inotify = inotify_simple.INotify()
    inotify.add_watch(
        path, flags.CLOSE_WRITE | flags.MOVED_TO | flags.DELETE_SELF | flags.MOVE_SELF
    )
    return inotify
