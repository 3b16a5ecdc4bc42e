"""What the machine says: CPU time and memory of processes, its load, and which core does what."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def family(processes: Iterable[int]) -> set[int]:
    """Processes and all that descend from them."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(
                int(path.parent.name)
            )
    found, todo = set(), list(processes)
    while todo:
        found.add(process := todo.pop())
        todo += [child for child in children.get(process, []) if child not in found]
    return found


def cpu_seconds(processes: Iterable[int]) -> float:
    """CPU time that processes and their descendants have used so far; it grows in steps of 10
    ms.
    """
    total = 0
    for process in family(processes):
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICK


def resident_mb(processes: Iterable[int]) -> float:
    """Resident memory of processes and their descendants."""
    total = 0
    for process in family(processes):
        with suppress(OSError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return total * PAGE / 2**20


def load() -> float:
    """How many processes have wanted to run at once, over the last minute."""
    return os.getloadavg()[0]


def describe() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def cores() -> tuple[set[int], set[int]]:
    """For the servers, and for the generator: one core each where there are two or more, else the
    same.
    """
    there = sorted(os.sched_getaffinity(0))
    return {there[0]}, {there[-1]}


@contextmanager
def running_on(chosen: set[int]) -> Iterator[None]:
    """What is started inside, and what we do inside, runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
