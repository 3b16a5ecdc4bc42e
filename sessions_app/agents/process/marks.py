"""Find and end the processes that carry a mark in their environment.

A launcher leaves processes behind when it was killed, and on systems where it can end no more than
a group; their marks find them. Only our own user's processes are ended, and never this process or
one of its ancestors: an agent may have started the bridge.
"""

import contextlib
import os
import time

import psutil

# what is being ended can start more meanwhile; one that does so for ever is left to the next sweep
_SWEEPS = 20
_UNSURE_LOOKS = 3  # after one that found nothing, when a process was between two programs
_BLANK_SECONDS = 0.01
_GONE_SECONDS = 0.5  # between SIGKILL and the next look


def sweep(name: str, value: str) -> int:
    """End the processes with this mark; return how many there were."""
    ended: set[int] = set()
    unsure = _UNSURE_LOOKS
    for _ in range(_SWEEPS):
        found, blank = _carrying(name, value)
        ended.update(process.pid for process in found)
        for process in found:
            # psutil knows a number that was given out anew by the time of birth
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=_GONE_SECONDS)
        if not found:
            unsure -= 1
            if not blank or not unsure:
                break
            time.sleep(_BLANK_SECONDS)
    return len(ended)


def _carrying(name: str, value: str) -> tuple[list[psutil.Process], bool]:
    """Return our user's marked processes, and whether one showed no environment."""
    me = psutil.Process()
    spared, uid = {me.pid, *(parent.pid for parent in me.parents())}, os.getuid()
    found, blank = [], False
    for process in psutil.process_iter():
        try:
            if process.pid in spared or process.uids().real != uid:
                continue
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            environ = process.environ()
        except (psutil.Error, OSError):  # gone meanwhile, or not ours to look into
            continue
        blank = blank or not environ
        if environ.get(name) == value:
            found.append(process)
    return found, blank
