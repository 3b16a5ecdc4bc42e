"""Look for what git must not meet in a git directory: links out of the roots, and FIFOs, which it
would wait for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, answering, shown
from files_app.git.quoting import unquoted


def look_at(directory: str, jail: Jail, *, but: Collection[str] = ()) -> None:
    """Raise BridgeError FILE_ACCESS_DENIED when a link that lies directly in ``directory``, and is
    not named in ``but``, leads out of the roots.

    GIT_ERROR for what is no file, directory or link.
    """
    links = []
    with answering(), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink() and entry.name not in but:
                links.append(entry.path)
            _check_kind(entry)
    for path in links:
        _target(path, jail)


def look_below(directory: str, jail: Jail) -> None:
    """The same for everything below, also below what links lead to; for a directory of objects, and
    for those that it names as alternates.
    """
    deadline = time.monotonic() + limits.GIT_READ_SECONDS
    waiting, seen = [directory], {directory}
    while waiting:
        others = set(_inside(waiting.pop(), jail)) - seen
        seen |= others
        waiting += others
        if time.monotonic() > deadline:
            raise BridgeError(
                "GIT_ERROR",
                "The repository has more loose objects than the bridge can look through; run git gc.",
            )


def _inside(directory: str, jail: Jail) -> list[str]:
    """The directories in a directory, and those that it leads to; none when it has vanished, as
    they do while git packs objects.
    """
    found, links = _alternates(directory, jail), []
    try:
        with answering(), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink():
                    links.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    found.append(entry.path)
                else:
                    _check_kind(entry)
    except BridgeError as error:
        if error.code != "FILE_NOT_FOUND":
            raise
    return found + [
        real for real in (_target(link, jail) for link in links) if real and os.path.isdir(real)
    ]


def _check_kind(entry: os.DirEntry[str]) -> None:
    known = (
        entry.is_symlink()
        or entry.is_file(follow_symlinks=False)
        or entry.is_dir(follow_symlinks=False)
    )
    if not known and os.path.lexists(entry.path):  # it has not just vanished
        raise BridgeError(
            "GIT_ERROR", f"The git directory holds {shown(entry.name)}, which is no file."
        )


def _alternates(directory: str, jail: Jail) -> list[str]:
    """The places of more objects that a directory of objects names; a directory that is none names
    none.
    """
    path = f"{directory}/info/alternates"
    if not os.path.lexists(path):
        return []
    with jail.open_file(path) as opened:
        data = os.read(opened.fd, limits.GIT_CONFIG_MAX_BYTES + 1)
    if len(data) > limits.GIT_CONFIG_MAX_BYTES:
        raise BridgeError(
            "GIT_ERROR", "The repository has more alternates than any that git writes."
        )
    found = []
    for line in data.split(b"\n"):
        if line and not line.startswith(b"#"):
            try:
                with jail.open_dir(os.fsdecode(unquoted(line)), base=directory) as opened:
                    found.append(opened.path)
            except BridgeError as error:
                if error.code != "FILE_NOT_FOUND":
                    raise BridgeError(
                        "FILE_ACCESS_DENIED",
                        "The repository takes objects from a place outside what may be seen.",
                    ) from None
    return found


def _target(link: str, jail: Jail) -> str:
    """The real path that a link leads to; nothing when nothing is there."""
    try:
        return jail.resolve(link)
    except BridgeError as error:
        if error.code == "FILE_NOT_FOUND":
            return ""
        raise BridgeError(
            "FILE_ACCESS_DENIED", "A link in the git directory leads outside what may be seen."
        ) from None
