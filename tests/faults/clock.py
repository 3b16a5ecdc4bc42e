"""A bridge whose clock is off, or is set while it runs: every time of day that its process reads is
shifted by `time-machine`, monotonic time is not.

What the kernel stamps (the time of a file) and what other processes read (PostgreSQL, the agent's
machine) keeps the right time, as it does on another host.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.conformance.bridge import Bridge
from tests.conformance.https import parse_time
from tests.servers import wait_until

SITE = """
import os, threading, time
import time_machine

path = os.environ["SHIFTED_CLOCK"]

def told():
    with open(path) as file:
        return float(file.read())

shift = told()
clock = time_machine.travel(time.time() + shift, tick=True).start()

def follow():
    global shift
    while True:
        time.sleep(0.02)
        if (now := told()) != shift:
            clock.shift(now - shift)
            shift = now

threading.Thread(target=follow, daemon=True).start()
"""


class ClockBridge(Bridge):
    """`set(seconds)`: its clock is that far ahead of ours; before the start, or while it runs."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        site = directory / "site"
        site.mkdir(parents=True)
        (site / "sitecustomize.py").write_text(SITE)
        self._file, self.ahead = directory / "clock", 0.0
        self._write()
        super().__init__(directory, **settings, PYTHONPATH=str(site), SHIFTED_CLOCK=str(self._file))

    def _write(self) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(str(self.ahead))
        os.replace(draft, self._file)

    def set(self, seconds: float) -> None:
        """The clock jumps; when this returns, the bridge has it."""
        self.ahead = seconds
        self._write()
        if self.process is not None:
            wait_until(lambda: abs(self.measured() - seconds) < 30, 10, "the clock is set")

    def answers(self) -> bool:
        """Whether it serves already."""
        return self._healthy()

    def measured(self) -> float:
        """How far its clock is ahead of ours, by what it says."""
        return (
            parse_time(self.get("/api/v1/health", self.hook_token).json()["timestamp"])
            - datetime.now(UTC)
        ).total_seconds()
