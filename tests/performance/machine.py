"""CPU time and memory of processes, and which core does what."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psutil


def cpu_seconds(processes: Iterable[int]) -> float:
    """CPU time that processes have used so far; it grows in steps of 10 ms."""
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in processes)


def resident_mb(processes: Iterable[int]) -> float:
    return sum(psutil.Process(pid).memory_info().rss for pid in processes) / 2**20


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside, and what we do inside, runs on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
