"""Hold the FIFOs at which hooks wait for a person's answer (D66).

A hook makes a FIFO with a name of its own, reads from it, and writes that name before its event.
Opening it for writing succeeds only while the hook reads. As long as this process lives and holds
it the hook waits; an end of file sends it away without an answer. Others cannot get there: the
directory is 0700.
"""

import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.process_note import ProcessNote

HELD: Final = b"held\n"  # from now on the end of this process is the end of the wait
ANSWER: Final = b"answer\n"  # the file with the answer is there, and whole
_LOOK_SECONDS: Final = 0.01  # between two looks at whether a hook still reads, but on Linux
KEPT_SECONDS: Final = 24 * 3600  # of what a killed hook has left


@dataclass(eq=False, slots=True)
class HeldHook:
    """Hold the FIFO of a hook that waits.

    ``beside``: a dialog is shown meanwhile; else it waits because the owner is away.
    """

    process: ProcessNote
    beside: bool
    descriptor: int
    since: float = field(default_factory=time.time)
    # since when the agent's registry says that the desk has answered (monotonic)
    answered: float | None = None

    @property
    def nonce(self) -> str:
        return self.process.nonce

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Return whether the hook reads no more, now or within ``seconds``."""
        if sys.platform == "linux":
            polled = select.poll()
            polled.register(self.descriptor, 0)  # that nobody reads is told unasked
            return bool(polled.poll(1000 * seconds))
        else:  # noqa: RET505 - each system's types are checked
            until = time.monotonic() + seconds
            with closing(select.kqueue()) as queue:
                queue.control([select.kevent(self.descriptor, select.KQ_FILTER_WRITE)], 0)
                while True:  # that it can be written to is told too, and at once
                    told = queue.control(None, 1, 0)
                    if any(one.flags & select.KQ_EV_EOF for one in told):
                        return True
                    if time.monotonic() >= until:
                        return False
                    time.sleep(_LOOK_SECONDS)

    def hand_over(self, answer: str) -> bool:
        """Give the hook its answer; return whether it has taken it.

        The hook deletes the file before it prints what is in it: so does this, when the hook is too
        slow, and only one of the two can.
        """
        path = directory() / f"{self.nonce}.json"
        try:
            given = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(given, "wb") as file:
                file.write(answer.encode())
            os.write(self.descriptor, ANSWER)
            self.has_ended(limits.HOOK_ANSWER_SECONDS)
        except OSError:  # it has ended, or the disk is full: it prints nothing
            path.unlink(missing_ok=True)
            return False
        try:
            path.unlink()
        except FileNotFoundError:
            return True
        return False

    def close(self) -> None:
        """Send the hook away, if it still waits, and clear up after one that was killed."""
        os.close(self.descriptor)
        with suppress(OSError):
            (directory() / self.nonce).unlink()


_held: dict[str, HeldHook] = {}  # by nonce
_lock = threading.Lock()
# called from any thread when a hook begins to wait here, or is let go of
on_change: Callable[[], object] = lambda: None  # noqa: E731


def directory() -> Path:
    """Return where the hooks of this machine make their FIFOs."""
    return conf.bridge_data_dir / "spool" / "answers"


def hold(process: ProcessNote | None, *, subagent: bool) -> HeldHook | None:
    """Hold the hook that an event came from; None when none waits (any more).

    Beside a call of a subagent no dialog is shown, whatever the hook believes.
    """
    if process is None or not process.nonce:
        return None
    try:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(directory() / process.nonce, flags)
    except OSError:
        return None
    about = os.fstat(descriptor)
    try:
        if not stat.S_ISFIFO(about.st_mode) or about.st_uid != os.geteuid():
            raise OSError
        os.write(descriptor, HELD)
    except OSError:  # it ends just now, or is none
        os.close(descriptor)
        return None
    hook = HeldHook(process, process.beside and not subagent, descriptor)
    with _lock:
        before, _held[process.nonce] = _held.get(process.nonce), hook
    if before is not None:  # of a transaction that was tried before
        os.close(before.descriptor)
    on_change()
    return hook


def held() -> list[HeldHook]:
    with _lock:
        return list(_held.values())


def take(nonce: str) -> HeldHook | None:
    """Return a held hook to the one caller that hands its answer over, or closes it."""
    with _lock:
        return _held.pop(nonce, None)


def release(nonce: str) -> None:
    """Send a hook away without an answer."""
    if (hook := take(nonce)) is not None:
        hook.close()


def remove_old() -> None:
    """Remove what hooks have left that were killed while no bridge ran."""
    with suppress(OSError):
        for path in directory().iterdir():
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > KEPT_SECONDS:
                    path.unlink()
