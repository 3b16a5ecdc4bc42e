"""Becomes an agent's process: a session of its own that dies with the bridge. Run as ``python -I -S launch.py PARENT COMMAND …``, standard library only.

It stands between fork and exec because there nothing but a new program may safely do this: code that runs in a fork of a process with
threads can wait for ever for a lock that another thread held.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_FOUND, NOT_ALLOWED = 127, 126  # as a shell says it


def main(arguments: list[str]) -> None:
    """``PARENT`` is the process with which this one dies, 0 for none."""
    parent, command = int(arguments[0]), arguments[1:]
    if os.getsid(0) != os.getpid():
        os.setsid()
    if parent:
        die_with(parent)
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so in the program that follows
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201  (the bridge reads it)
        sys.exit(NOT_ALLOWED if isinstance(error, PermissionError) else NOT_FOUND)


def die_with(parent: int) -> None:
    """Have the kernel end this process when the thread that started it ends, where there is such a kernel.

    A parent that died before the call would never be noticed, so it is looked for once more after it.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
