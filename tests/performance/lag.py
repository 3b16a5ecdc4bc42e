"""How late an event loop is: `python -m tests.performance.lag FILE [PROGRAM [ARGUMENT …]]` runs the
program, or nothing, and writes down what its loop misses.

Every few milliseconds a timer of the main thread's loop is due; FILE gets when that was and by how
much it was late. A loop that does nothing else, beside the one that is measured, tells what of it
is the machine's: the system's turns, and the millisecond to which asyncio rounds its waits up.
"""

from __future__ import annotations

import asyncio
import runpy
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from tests.conformance.bridge import REPOSITORY

STEP_SECONDS = 0.005
RECORD = struct.Struct("dd")  # when it was due (time.monotonic), and seconds too late


class Sampler:
    """One for each loop that the main thread runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: BinaryIO) -> None:
        self._loop, self._file = loop, file
        self._wait()

    def _wait(self) -> None:
        self._due = self._loop.time() + STEP_SECONDS
        self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self._file.write(RECORD.pack(self._due, now - self._due))
        if int(now) != int(self._due - STEP_SECONDS):
            self._file.flush()  # once a second
        self._wait()


def read(file: Path, begin: float, end: float) -> list[float]:
    """Milliseconds too late, of what was due between these two times; a second after the end all of
    it is there.
    """
    data = file.read_bytes()
    return [
        late * 1e3
        for due, late in RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size])
        if begin <= due <= end
    ]


def idle(file: Path) -> subprocess.Popen[bytes]:
    """The yardstick: a process whose loop does nothing else."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.performance.lag", str(file)],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
    )


def main() -> None:
    file = Path(sys.argv[1]).open("wb")  # noqa: SIM115  as long as the process lives
    if not sys.argv[2:]:
        loop = asyncio.new_event_loop()
        Sampler(loop, file)
        loop.run_forever()
    run_forever = asyncio.BaseEventLoop.run_forever

    def sampled(loop: asyncio.BaseEventLoop) -> None:
        if threading.current_thread() is threading.main_thread():
            Sampler(loop, file)
        run_forever(loop)

    setattr(asyncio.BaseEventLoop, "run_forever", sampled)  # noqa: B010  to a type checker no method may be replaced
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
