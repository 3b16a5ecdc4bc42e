"""Measure the parts that are named, say which goals are met; 1 when one is missed."""

import argparse
import importlib
import os
import platform
import sys
from contextlib import ExitStack

from tests.performance import servers
from tests.performance.report import Report
from tests.servers import Postgres, running

# Part → the module with a function of its name, rounds, seconds of one measurement.
PARTS: dict[str, tuple[str, int, float]] = {
    "events": ("events", 5, 2.0),
    "hookwait": ("hooks", 300, 0.0),
    "hookway": ("hooks", 3, 30.0),
    "backlog": ("returning", 7, 3.0),
    "scale": ("scale", 5, 2.0),
    "search": ("searching", 5, 0.0),
    "idle": ("idle", 1, 30.0),
    "agents": ("agents", 3, 0.0),
    "client": ("client", 5, 5.0),
}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    about = "Measures the bridge; see docs/performance.md."
    parser = argparse.ArgumentParser("python -m tests.performance", description=about)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, help="how often each measurement is repeated")
    parser.add_argument("--seconds", type=float, help="how long one measurement takes")
    what = "with a database of the tests' PostgreSQL for each bridge, not SQLite"
    parser.add_argument("--postgresql", action="store_true", help=what)
    chosen = parser.parse_args()
    if unknown := set(chosen.part) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    machine = f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
    say(f"{machine}; load {os.getloadavg()[0]:.1f} before we began.")
    missed = []
    with ExitStack() as stack:
        if chosen.postgresql:
            servers.databases.append(stack.enter_context(running(Postgres)))
        for name in chosen.part or PARTS:
            module, rounds, seconds = PARTS[name]
            measure = getattr(importlib.import_module(f"tests.performance.{module}"), name)
            report: Report = measure(chosen.rounds or rounds, chosen.seconds or seconds)
            say(report.text())
            missed += [f"{name}: {text}" for met, text in report.goals if not met]
    say("\nAll goals met." if not missed else f"\nMissed: {'; '.join(missed)}.")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
