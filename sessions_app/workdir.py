"""What the bridge may know of a session's working directory: its branch, read without running anything."""

from __future__ import annotations

import os
import re

from bridge_project.errors import BridgeError
from bridge_project.jail import default_jail

HEAD_MAX_BYTES = 4096
_REF = re.compile(r"ref: refs/heads/(.+)")


def branch_of(directory: str) -> str:
    """The name of the branch checked out there, a short commit where HEAD is detached; empty outside a repository and outside the roots."""
    while directory.strip("/"):
        head = _head(directory)
        if head is not None:
            found = _REF.fullmatch(head)
            return found[1] if found else head[:12]
        directory = directory.rstrip("/").rpartition("/")[0]
    return ""


def _head(directory: str) -> str | None:
    try:
        git = f"{directory}/.git"
        try:
            return _read(f"{git}/HEAD")
        except BridgeError:
            pointer = _read(git)  # a work tree or submodule: a file that names the real directory
            target = pointer.removeprefix("gitdir: ")
            return _read(f"{target}/HEAD" if target.startswith("/") else f"{directory}/{target}/HEAD")
    except (BridgeError, UnicodeDecodeError):
        return None


def _read(path: str) -> str:
    with default_jail().open_file(path) as opened:
        return os.read(opened.fd, HEAD_MAX_BYTES).decode().strip()
