"""Run a command and print the processor time of its processes by kind: a table for people.

    python -m tests.cost python -m tests.checks test

All that is started inherits a mark in its environment, by which it is found five times a second,
also when its parent has died; what lives for a shorter time may be missed.
"""

import os
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass

import psutil

MARK = "TESTS_COST"
PAUSE = 0.2  # seconds between two looks
SETTLED = 1.0  # seconds, after which a process has become what it is to be
LONG = 10.0  # seconds that a bridge lives which several tests share
SERVERS = ("postgres", "redis-server")
OTHERS = "agents, git, shells and other programs"


@dataclass
class Seen:
    kind: str
    began: float
    ended: float
    used: float = 0.0  # seconds of a processor, its own and not its children's


def kind_of(process: psutil.Process) -> str:
    """What it is of: the workers, servers, what they are forked from, bridges, or the rest."""
    name, words = process.name(), " ".join(process.cmdline())
    if name.startswith(SERVERS):
        return "PostgreSQL, Redis"
    if "tests.faults.nursery" in words:
        parent = process.parent()
        forked = parent is not None and "tests.faults.nursery" in " ".join(parent.cmdline())
        return "bridge" if forked else "what bridges are forked from"
    if "manage.py" in words:
        return "bridge"
    if "sys.stdin.readline()" in words or "-m pytest" in words:
        return "pytest and its workers"
    return OTHERS


def look(seen: dict[tuple[int, float], Seen], mark: str, others: set[tuple[int, float]]) -> None:
    pids = {pid for pid, _ in seen}  # agents are given another environment, but have a parent
    for process in psutil.process_iter():
        key = (process.pid, process.create_time())
        if key in others:
            continue
        try:
            now = time.monotonic()
            if key not in seen:
                ours = process.environ().get(MARK) == mark or process.ppid() in pids
                if not ours:
                    others.add(key)
                    continue
                seen[key] = Seen(OTHERS, now, now)
                pids.add(process.pid)
            one, used = seen[key], process.cpu_times()
            if now - one.began < SETTLED:
                one.kind = kind_of(process)
            one.ended, one.used = now, used.user + used.system
        except psutil.Error:
            continue


def main(command: list[str]) -> int:
    seen: dict[tuple[int, float], Seen] = {}
    others: set[tuple[int, float]] = set()
    mark, began = uuid.uuid4().hex, time.monotonic()
    run = subprocess.Popen(command, env=os.environ | {MARK: mark})
    while run.poll() is None:
        look(seen, mark, others)
        time.sleep(PAUSE)
    kinds: dict[str, list[float]] = defaultdict(list)
    for one in seen.values():
        kind = one.kind
        if kind == "bridge":
            shared = one.ended - one.began >= LONG
            kind = "bridges of ten seconds and more" if shared else "other bridges, and commands"
        kinds[kind].append(one.used)
    rows = [*sorted(kinds.items()), ("all", [one.used for one in seen.values()])]
    sys.stdout.write("\n| Kind | Processes | CPU, s |\n| --- | --- | --- |\n")
    for kind, each in rows:
        sys.stdout.write(f"| {kind} | {len(each)} | {sum(each):.0f} |\n")
    sys.stdout.write(f"\n{time.monotonic() - began:.0f} s\n")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
