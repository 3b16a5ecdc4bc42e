"""Refuse links out of the roots, and FIFOs, in a git directory."""

import os
import time
from collections.abc import Collection

from bridge_project.kernel import limits
from bridge_project.kernel.disk_threads import reaches
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.path_jail import Jail, shown
from bridge_project.kernel.path_walk import translate_os_errors
from files_app.git.sandbox.error_text import git_error


def check(directory: str, jail: Jail, *, but: Collection[str] = ()) -> list[str]:
    """Refuse links out of the roots in one directory; return its subdirectories.

    Also those behind links. Raises BridgeError FILE_ACCESS_DENIED when a link leads out of the
    roots and is not named in ``but``, GIT_ERROR for anything but a file, directory or link.
    """
    reaches(directory)
    found, links = [], []
    with translate_os_errors(), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                links += [entry.path] if entry.name not in but else []
            elif entry.is_dir(follow_symlinks=False):
                found.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                raise git_error(f"The git directory holds {shown(entry.name)}, which is no file.")
    return found + [real for link in links if os.path.isdir(real := _target(link, jail))]


def check_below(directory: str, jail: Jail) -> None:
    """Refuse links out of the roots below, behind links, and in alternate objects."""
    deadline = time.monotonic() + limits.GIT_READ_SECONDS
    waiting, seen = [directory], {directory}
    while waiting:
        current = waiting.pop()
        others = set(_alternates(current, jail))
        with Ignoring("FILE_NOT_FOUND"):  # they vanish while git packs objects
            others.update(check(current, jail))
        waiting += others - seen
        seen |= others
        if time.monotonic() > deadline:
            raise git_error(
                "The repository has more loose objects than the bridge can look through; run"
                " git gc."
            )


def _alternates(directory: str, jail: Jail) -> list[str]:
    """Return the alternate object directories that an object directory names."""
    path = f"{directory}/info/alternates"
    if not os.path.lexists(path):
        return []
    with jail.open_file(path) as opened:
        data = os.read(opened.fd, limits.GIT_CONFIG_MAX_BYTES + 1)
    if len(data) > limits.GIT_CONFIG_MAX_BYTES:
        raise git_error("The repository has too many alternates.")
    found = []
    for line in data.split(b"\n"):
        if not line or line.startswith(b"#"):
            continue
        try:
            if line.startswith(b'"'):  # git would take the quotes and escapes away
                raise BridgeError("FILE_ACCESS_DENIED")
            with jail.open_dir(os.fsdecode(line), base=directory) as opened:
                found.append(opened.path)
        except BridgeError as error:
            if error.code != "FILE_NOT_FOUND":
                text = "The repository takes objects from outside the allowed roots."
                raise BridgeError("FILE_ACCESS_DENIED", text) from None
    return found


def _target(link: str, jail: Jail) -> str:
    """Return the real path of a link's target, empty when there is none."""
    try:
        return jail.resolve(link)
    except BridgeError as error:
        if error.code == "FILE_NOT_FOUND":
            return ""
        text = "A link in the git directory leads outside the allowed roots."
        raise BridgeError("FILE_ACCESS_DENIED", text) from None
