"""Find the paths of a call that lead out of the allowed roots."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from bridge_project.kernel import limits, threads
from bridge_project.kernel.config import conf
from bridge_project.protocol.risk import PATH_MAX_CHARS


def outside(directory: Path, paths: Iterable[str]) -> list[str]:
    """Return the paths that lead out of the roots, or may do so."""
    # however many there are, everything waits for one moment
    until = time.monotonic() + limits.REAL_PATH_SECONDS
    return [path for path in paths if not _is_inside(directory, path, until)]


def _is_inside(directory: Path, path: str, until: float) -> bool:
    seconds = until - time.monotonic()
    if "\0" in path or len(path) > PATH_MAX_CHARS or seconds <= 0:
        return False
    found = threads.paths.begin(os.path.realpath, directory / path)
    try:
        real = Path(found.result(seconds))
    except (TimeoutError, ValueError):  # or it has characters of no path
        found.cancel()
        return False
    return any(real.is_relative_to(root) for root in conf.allowed_roots)
