"""How long an agent waits for its hook: the command that install_hooks wrote, run as an agent runs
it, beside a process that does nothing.

Interleaved, one at a time; the event on standard input. `fork+exec` is a shell that becomes `true`:
less cannot be asked of a hook.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.conformance.bridge import REPOSITORY
from tests.performance.load import quantile
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, directory, installed_hook

FIXTURE = REPOSITORY / "tests" / "fixtures" / "hooks" / "PreToolUse-Bash.json"
LARGE = 200_000  # bytes
MEDIAN, P90 = 2.0, 3.0  # times fork+exec
WARM_UP = 5
COLUMNS = (
    *("what", "runs", "p50 ms", "p90 ms", "max ms", "p50 ratio", "p90 ratio"),
    *("non-zero exits", "bytes printed"),
)


@dataclass
class Runs:
    """What became of one command's runs; times in milliseconds."""

    times: list[float] = field(default_factory=list)
    failed: int = 0
    printed: int = 0


def run_once(command: str, stdin: Path, runs: Runs, *, counted: bool) -> None:
    """From the spawn to the exit, with nothing of Python's subprocess in between."""
    given = os.open(stdin, os.O_RDONLY)
    said = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, *ends) for ends in ((given, 0), (said, 1), (said, 2))]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    words = ["/bin/sh", "-c", command]
    try:
        start = time.perf_counter()
        process = os.posix_spawn(words[0], words, environment, file_actions=actions)
        status = os.waitpid(process, 0)[1]
        took = time.perf_counter() - start
        runs.failed += status != 0
        runs.printed += os.fstat(said).st_size
    finally:
        os.close(given)
        os.close(said)
    if counted:
        runs.times.append(took * 1e3)


def measure(rounds: int, seconds: float) -> Report:
    """``rounds`` runs of each command; ``seconds`` is not used."""
    report = Report("hookwait", "the installed hook command beside fork+exec, interleaved", COLUMNS)
    with directory() as path, bridge(path / "bridge") as ours:
        command = installed_hook(ours)
        small, large = path / "small.json", path / "large.json"
        event = json.loads(FIXTURE.read_text())
        small.write_text(json.dumps(event))
        large.write_text(json.dumps(event | {"tool_input": {"command": "x" * LARGE}}))
        events = {"hook": small, "hook, 200 kB": large}
        _compare(report, "bridge up", command, events, rounds)
        ours.stop()
        _compare(report, "bridge down", command, events, rounds)
    return report


def _compare(
    report: Report, state: str, command: str, events: dict[str, Path], rounds: int
) -> None:
    nothing = Runs()
    hooks = {name: Runs() for name in events}
    for number in range(rounds + WARM_UP):
        run_once("exec true", next(iter(events.values())), nothing, counted=number >= WARM_UP)
        for name, stdin in events.items():
            run_once(command, stdin, hooks[name], counted=number >= WARM_UP)
    progress(f"hookwait: {state}")
    p50, p90 = median(nothing.times), quantile(nothing.times, 0.9)

    def ratio(runs: Runs) -> tuple[float, float]:
        return median(runs.times) / p50, quantile(runs.times, 0.9) / p90

    for name, runs in {"fork+exec": nothing, **hooks}.items():
        times = (median(runs.times), quantile(runs.times, 0.9), max(runs.times))
        report.add(
            f"{name}, {state}", len(runs.times), *times, *ratio(runs), runs.failed, runs.printed
        )
    for name, runs in hooks.items():
        at_median, at_p90 = ratio(runs)
        report.goal(f"{name}, {state}, at the median", at_median, MEDIAN, "times fork+exec")
        report.goal(f"{name}, {state}, at p90", at_p90, P90, "times fork+exec")
        wrong = runs.failed + runs.printed
        report.goal(f"{name}, {state}, runs that failed or printed", wrong, 0)
