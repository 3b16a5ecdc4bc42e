"""A bridge whose clock is off, or is set while it runs; what the kernel stamps stays right."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from tests.conformance.https import parse_time, presented
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge, with_limits
from tests.servers import wait_until

SHIFTED = """
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


class ClockBridge(QuickBridge):
    """`set(seconds)`: its clock is that far ahead of ours; before the start, or while it runs."""

    first = SHIFTED

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._file = directory / "clock"
        super().__init__(directory, **settings, SHIFTED_CLOCK=str(self._file))
        self.set(0.0)

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.running.kill()
        super().__exit__()

    def set(self, seconds: float) -> None:
        """The clock jumps; when this returns, the bridge has it."""
        self.ahead, draft = seconds, self._file.with_suffix(".draft")
        draft.write_text(f"{seconds:+.0f}")
        os.replace(draft, self._file)
        if self.process is not None:
            wait_until(lambda: abs(self.measured() - seconds) < 30, "the clock is set")

    def measured(self) -> float:
        """How far its clock is ahead of ours, by what it says."""
        said = self.health()["timestamp"]
        return (parse_time(said) - datetime.now(UTC)).total_seconds()

    def certificates_are_good(self, ahead: float) -> bool:
        """Its own and its authority's, by a clock that is so far ahead of ours."""
        moment = datetime.now(UTC) + timedelta(seconds=ahead)
        leaf = x509.load_der_x509_certificate(presented(self.port))
        authority = x509.load_pem_x509_certificate(self.get("/ca.crt").body)
        return all(
            one.not_valid_before_utc <= moment <= one.not_valid_after_utc
            for one in (leaf, authority)
        )


OFTEN = """
from bridge_project.composition import chores
assert chores.INTERVAL_SECONDS == 60
chores.INTERVAL_SECONDS = 0.2
chores.CHORES["said"] = lambda: print("chores done") or 0
"""


class BusyClockBridge(ClockBridge):
    """Does its chores five times a second, and looks at its certificates once."""

    first = SHIFTED + OFTEN + with_limits(CERTIFICATE_CHECK_SECONDS=1)

    def do_chores(self, alive: Phone | None = None) -> None:
        """Return when each was done from now on, however long; ``alive`` pings meanwhile."""
        before = self._chores()

        def done() -> bool:
            if alive is not None:
                alive.ping()
            return self._chores() > before + 1

        wait_until(done, "the chores are done")

    def _chores(self) -> int:
        return self.log.read_text(errors="replace").count("chores done")
