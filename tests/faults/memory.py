"""Say what a serving bridge holds: memory by the lines that allocated it, objects by type, handles,
threads and tasks.

`python -m tests.faults.memory` is `manage.py serve` with a thread that answers whoever writes a
file's name to the pipe that LOOKS names. FRAMES says how many calls name an allocation; with 0 none
is traced, and the process is as large as without us.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tests.conformance.bridge import REPOSITORY, Bridge, eventually
from tests.servers import wait_until

MB = 2**20
Sizes = dict[str, tuple[int, int]]  # line and its callers → bytes, blocks


@dataclass
class Look:
    """What the process held at one moment, after a garbage collection."""

    resident: int  # bytes, without what tracing takes
    trimmed: int  # the same once the C library has given back what it had free
    files: list[str]
    threads: list[str]
    tasks: dict[str, int]  # coroutine → how many wait
    types: dict[str, int]
    lines: Sizes

    @property
    def traced(self) -> int:
        return sum(size for size, _ in self.lines.values())

    def __str__(self) -> str:
        return (
            f"resident {self.resident / MB:.1f} MB, trimmed {self.trimmed / MB:.1f} MB, traced of"
            f" Python's {self.traced} bytes; {sum(self.types.values())} objects,"
            f" {len(self.files)} files, {len(self.threads)} threads,"
            f" {sum(self.tasks.values())} tasks"
        )


class WatchedBridge(Bridge):
    """A bridge that says on request what it holds."""

    def __init__(self, directory: Path, frames: int, **settings: Any) -> None:
        self.pipe, self.looks = directory / "looks", 0
        self.watching = {"LOOKS": str(self.pipe), "FRAMES": str(frames)}
        directory.mkdir(exist_ok=True)
        os.mkfifo(self.pipe)
        super().__init__(directory, **settings)

    def popen(self, arguments: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        assert arguments == ["manage.py", "serve"]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.memory"],
            cwd=REPOSITORY,
            env=self.environment | self.watching,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )

    def look(self) -> Look:
        self.looks += 1
        out = self.directory / f"look-{self.looks}"
        with self.pipe.open("w") as pipe:
            pipe.write(f"{out}\n")
        eventually(out.exists, 120)
        found = json.loads(out.read_text())
        found["lines"] = {where: tuple(size) for where, size in found["lines"].items()}
        return Look(**found)


def growth(before: Sizes, after: Sizes) -> Sizes:
    """By how many bytes and blocks each line has grown, the most first."""
    grown = {
        where: (after.get(where, (0, 0))[0] - size, after.get(where, (0, 0))[1] - count)
        for where in before.keys() | after.keys()
        for size, count in [before.get(where, (0, 0))]
    }
    return dict(sorted(grown.items(), key=lambda item: -abs(item[1][0])))


def more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Of what there is more than before, and how many, the most first."""
    return dict((Counter(after) - Counter(before)).most_common())


def what_is_left(before: Look, after: Look) -> str:
    """Name by type and line what there is more than before, and what less, the most first."""
    lines = [
        f"more tasks {more(before.tasks, after.tasks)}",
        f"more threads {more(Counter(before.threads), Counter(after.threads))}",
        f"more files {more(Counter(before.files), Counter(after.files))}",
        f"more objects {dict(list(more(before.types, after.types).items())[:20])}",
    ]
    for where, (size, count) in list(growth(before.lines, after.lines).items())[:25]:
        short = where.replace(f"{REPOSITORY}/", "").replace("/site-packages/", "/…/")
        lines.append(f"{size:+} bytes {count:+} blocks {short}")
    return "\n".join(lines)


# -- in the server ---------------------------------------------------------------------------------


def main() -> None:
    asked = os.environ.pop("LOOKS"), int(os.environ.pop("FRAMES"))
    threading.Thread(target=_answer, args=asked, daemon=True).start()
    sys.argv = ["manage.py", "serve"]
    runpy.run_path("manage.py", run_name="__main__")


def _answer(pipe: str, frames: int) -> None:
    while True:
        with open(pipe) as asked:
            for line in asked:
                part = Path(f"{line.strip()}.part")
                part.write_text(json.dumps(asdict(_look())))
                part.rename(line.strip())
                if frames and not tracemalloc.is_tracing():
                    tracemalloc.start(frames)  # earlier, a start would take minutes


def _idle() -> bool:
    """Tell whether no thread of a pool is at work: what one has read for a phone that has gone is
    still there.
    """
    frames = sys._current_frames()
    names = {one.ident: one.name for one in threading.enumerate()}
    return all(
        frame.f_code.co_name == "_worker"
        for ident, frame in frames.items()
        if names.get(ident, "").startswith(("db-", "http", "files", "git", "health"))
    )


def _look() -> Look:
    wait_until(_idle, "no thread of a pool is at work")
    gc.collect()
    lines = _lines() if tracemalloc.is_tracing() else {}
    resident = _resident()
    ctypes.CDLL(None).malloc_trim(0)
    found = gc.get_objects()
    types = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in found)
    tasks = Counter(
        one.get_coro().__qualname__
        for one in found
        if type(one).__name__ == "Task" and not one.done()
    )
    links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return Look(
        resident=resident,
        trimmed=_resident(),
        files=sorted(os.readlink(link) for link in links if link.is_symlink()),
        threads=sorted(one.name for one in threading.enumerate()),
        tasks=dict(tasks),
        types=dict(types),
        lines=lines,
    )


def _lines() -> Sizes:
    ours = [tracemalloc.Filter(False, name) for name in (tracemalloc.__file__, __file__)]
    snapshot = tracemalloc.take_snapshot().filter_traces(ours)
    return {
        " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(one.traceback)): (
            one.size,
            one.count,
        )
        for one in snapshot.statistics("traceback")
    }


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") - tracemalloc.get_tracemalloc_memory()


if __name__ == "__main__":
    main()
