"""`python -m tests.performance [part …] [--rounds N] [--seconds S] [--json FILE]`: measures, says
which goals are met; 1 when one is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path

from tests.performance import machine
from tests.performance.report import Report, say

# Part → (rounds, seconds of one measurement); each is a module of this package with
# `measure(rounds, seconds)`.
PARTS: dict[str, tuple[int, float]] = {
    "events": (5, 2.0),
    "hookwait": (300, 0.0),
    "hookway": (3, 30.0),
    "backlog": (7, 3.0),
    "sessions": (5, 0.0),
    "fanout": (3, 10.0),
    "streams": (5, 8.0),
    "scale": (5, 2.0),
    "idle": (1, 30.0),
    "growth": (1, 60.0),
    "processes": (5, 2.0),
    "client": (5, 5.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.performance",
        description="Measures the bridge; see docs/performance.md.",
    )
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, help="how often each measurement is repeated")
    parser.add_argument("--seconds", type=float, help="how long one measurement takes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    chosen = parser.parse_args()
    if unknown := set(chosen.part) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    about = {
        "machine": machine.describe(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    say(
        f"{about['machine']}; load {machine.load():.1f} before we began. Only ratios within one run mean anything on another machine."
    )
    reports = []
    for name in chosen.part or PARTS:
        rounds, seconds = PARTS[name]
        before = machine.load()
        report: Report = importlib.import_module(f"tests.performance.{name}").measure(
            chosen.rounds or rounds, chosen.seconds or seconds
        )
        say(report.text())
        reports.append(report.as_json() | {"load_before": before})
        if chosen.json:
            chosen.json.write_text(json.dumps(about | {"parts": reports}, indent=1) + "\n")
    missed = [goal["text"] for report in reports for goal in report["goals"] if not goal["met"]]
    say("\nAll goals met." if not missed else f"\nMissed: {'; '.join(missed)}.")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
