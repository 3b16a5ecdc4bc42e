"""List this process's mounts, and find where else a path is mounted (D12, D45)."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # a blank, tab, newline or backslash


class Mount(NamedTuple):
    """Hold a mount: `root` is the path inside its file system that is seen at `point`."""

    device: str
    root: str
    point: str


def mounts() -> list[Mount]:
    """Return all mounts in order, a later one above an earlier.

    None where the system has no such list.
    """
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return []
    return [Mount(*map(_unescape, line.split(b" ")[2:5])) for line in lines]


def _unescape(field: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field))


def points() -> frozenset[str]:
    """Return where something is mounted, also where the system has no list of it."""
    return frozenset({"/", *(one.point for one in mounts())})


def mount_of(path: str, known: Iterable[Mount]) -> Mount | None:
    """Return the mount that an absolute path lies in, by its name alone."""
    found = None
    for mount in known:
        if lies_in(path, mount.point) and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def other_places(path: str, known: Iterable[Mount]) -> Iterator[str]:
    """Yield where a real path, or a part of what lies below it, is mounted once more.

    A bind mount shows a part of a file system at a second place: no link, and no step through the
    directories of the first.
    """
    known = list(known)
    if (own := mount_of(path, known)) is None:
        return
    # what is mounted below the path is a part of it, often on a device of its own
    parts = [(own, _moved(path, own.point, own.root))]
    parts += [(mount, mount.root) for mount in mounts_below(path, known)]
    for part, inner in parts:
        for mount in known:
            if mount is part or mount.device != part.device:
                continue
            if lies_in(mount.root, inner):
                yield mount.point
            elif lies_in(inner, mount.root):
                yield _moved(inner, mount.root, mount.point)


def mounts_below(path: str, known: Iterable[Mount]) -> list[Mount]:
    """Return the mounts inside a directory, but not the one that it is itself."""
    return [one for one in known if lies_in(one.point, path) and one.point != path]


def _moved(path: str, directory: str, to: str) -> str:
    return os.path.normpath(os.path.join(to, os.path.relpath(path, directory)))


def lies_in(path: str, directory: str) -> bool:
    """Return whether a path is a directory or below it, by their names."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")
