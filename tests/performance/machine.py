"""What the machine says: CPU time and memory of processes, its load, and which core does what."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import psutil


def family(processes: Iterable[int]) -> Iterator[psutil.Process]:
    """Processes and all that descend from them."""
    for pid in processes:
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(pid)
            yield from (first, *first.children(recursive=True))


def cpu_seconds(processes: Iterable[int]) -> float:
    """CPU time that processes and their descendants have used so far; it grows in steps of 10
    ms.
    """
    total = 0.0
    for process in family(processes):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def resident_mb(processes: Iterable[int]) -> float:
    """Resident memory of processes and their descendants."""
    total = 0
    for process in family(processes):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total / 2**20


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
