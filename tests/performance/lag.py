"""How late an event loop is: `python -m tests.performance.lag FILE [PROGRAM [ARGUMENT …]]`.

Every few milliseconds a timer of the main thread's loop is due; FILE gets when that was and by how
much it was late. Without a program the loop does nothing else: so late the machine alone makes it.
"""

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


def sample(loop: asyncio.AbstractEventLoop, file: BinaryIO) -> None:
    def look(due: float) -> None:
        now = loop.time()
        file.write(RECORD.pack(due, now - due))
        if int(now) != int(due - STEP_SECONDS):
            file.flush()  # once a second
        loop.call_at(now + STEP_SECONDS, look, now + STEP_SECONDS)

    loop.call_soon(look, loop.time())


def read(file: Path, begin: float, end: float) -> list[float]:
    """Milliseconds too late, of what was due in between; all is there a second later."""
    data = file.read_bytes()
    whole = RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size])
    return [late * 1e3 for due, late in whole if begin <= due <= end]


def idle(file: Path) -> subprocess.Popen[bytes]:
    """The yardstick: a process whose loop does nothing else."""
    command = [sys.executable, "-m", "tests.performance.lag", str(file)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL)


def main() -> None:
    file = Path(sys.argv[1]).open("wb")  # noqa: SIM115  as long as the process lives
    if not sys.argv[2:]:
        loop = asyncio.new_event_loop()
        sample(loop, file)
        loop.run_forever()
    run_forever = asyncio.BaseEventLoop.run_forever

    def sampled(loop: asyncio.BaseEventLoop) -> None:
        if threading.current_thread() is threading.main_thread():
            sample(loop, file)
        run_forever(loop)

    setattr(asyncio.BaseEventLoop, "run_forever", sampled)  # noqa: B010  to a type checker no method may be replaced
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
