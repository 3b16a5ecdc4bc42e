"""What a serving bridge holds; it writes that to the file LOOKS for each SIGUSR1."""

import ctypes
import gc
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path


def watch() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: _look(Path(os.environ["LOOKS"])))


def _look(out: Path) -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the C library has free counts for nothing
    found = gc.get_objects()
    tasks = (one for one in found if type(one).__name__ == "Task" and not one.done())
    links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    look = {
        "memory": {"resident": pages * os.sysconf("SC_PAGE_SIZE")},
        "files": Counter(os.readlink(link) for link in links if link.is_symlink()),
        "threads": Counter(one.name for one in threading.enumerate()),
        "tasks": Counter(one.get_coro().__qualname__ for one in tasks),
        "types": Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in found),
    }
    part = out.with_suffix(".part")
    part.write_text(json.dumps(look))
    part.rename(out)
