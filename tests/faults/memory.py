"""Say what a serving bridge holds: memory, objects by type, handles, threads and tasks.

`python -m tests.faults.memory` is `manage.py serve` with a thread that answers whoever writes a
file's name to the pipe that LOOKS names.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.conformance.bridge import Bridge, eventually
from tests.servers import Running

MB = 2**20


@dataclass
class Look:
    """What the process held at one moment, after a garbage collection."""

    resident: int  # bytes
    trimmed: int  # the same once the C library has given back what it had free
    files: dict[str, int]
    threads: dict[str, int]
    tasks: dict[str, int]  # coroutine → how many wait
    types: dict[str, int]

    def __str__(self) -> str:
        names = ("types", "files", "threads", "tasks")
        counts = [f"{sum(getattr(self, name).values())} {name}" for name in names]
        sizes = f"resident {self.resident / MB:.1f} MB, trimmed {self.trimmed / MB:.1f} MB"
        return "; ".join([sizes, *counts])

    def more_than(self, before: Look) -> str:
        names = ("types", "files", "threads", "tasks")
        kinds = ((name, getattr(before, name), getattr(self, name)) for name in names)
        return "\n".join(f"more {name}: {Counter(b) - Counter(a)}" for name, a, b in kinds)


class WatchedBridge(Bridge):
    """A bridge that says on request what it holds."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.pipe, self.looks = directory / "looks", 0
        directory.mkdir(exist_ok=True)
        os.mkfifo(self.pipe)
        super().__init__(directory, **settings)

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        assert arguments == ["manage.py", "serve"]
        self.settings["LOOKS"] = str(self.pipe)
        return super().popen(["-m", "tests.faults.memory"], log)

    def look(self) -> Look:
        self.looks += 1
        out = self.directory / f"look-{self.looks}"
        with self.pipe.open("w") as pipe:
            pipe.write(f"{out}\n")
        eventually(out.exists, 120)
        return Look(**json.loads(out.read_text()))


# -- in the server ---------------------------------------------------------------------------------


def main() -> None:
    threading.Thread(target=_answer, args=(os.environ.pop("LOOKS"),), daemon=True).start()
    sys.argv = ["manage.py", "serve"]
    runpy.run_path("manage.py", run_name="__main__")


def _answer(pipe: str) -> None:
    while True:
        with open(pipe) as asked:
            for line in asked:
                part = Path(f"{line.strip()}.part")
                part.write_text(json.dumps(vars(_look())))
                part.rename(line.strip())


def _look() -> Look:
    gc.collect()
    resident = _resident()
    ctypes.CDLL(None).malloc_trim(0)
    found = gc.get_objects()
    tasks = (one for one in found if type(one).__name__ == "Task" and not one.done())
    links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return Look(
        resident,
        _resident(),
        files=Counter(os.readlink(link) for link in links if link.is_symlink()),
        threads=Counter(one.name for one in threading.enumerate()),
        tasks=Counter(one.get_coro().__qualname__ for one in tasks),
        types=Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in found),
    )


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
