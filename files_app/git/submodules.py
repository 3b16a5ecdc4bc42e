"""Submodules whose own work trees have changed. Git would say so by running itself in them, and
believe what stands there; so each is asked by a mirror of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from files_app.git.repository import repository_of
from files_app.git.sandbox import mirror
from files_app.git.sandbox.git import Git

_GITLINK: Final = b"160000 "


def dirty(git: Git, known: Collection[str]) -> list[str]:
    """The names of those, but for the ``known`` ones, in which something differs from the commit
    checked out there, or is new.

    Of those that lie outside the roots or belong to another user nothing is said, nor of submodules
    in submodules. Only so many are looked into.
    """
    if not os.path.lexists(f"{git.place.top}/.gitmodules"):
        return []  # which saves listing the index
    deadline = time.monotonic() + limits.GIT_READ_SECONDS
    names = [name for name in _names(git)[: limits.GIT_SUBMODULES_MAX] if name not in known]
    return [name for name in names if time.monotonic() < deadline and _is_dirty(git, name)]


def _names(git: Git) -> list[str]:
    listed = git.done("ls-files", "--stage", "-z").out.split(b"\0")[:-1]
    return [
        os.fsdecode(entry.partition(b"\t")[2]) for entry in listed if entry.startswith(_GITLINK)
    ]


def _is_dirty(git: Git, name: str) -> bool:
    path = f"{git.place.top}/{name}"
    try:
        place, jail = repository_of(path, git.jail)
        if place.top != path:
            return False  # it is not checked out, and what was found is a repository around it
        with mirror.reading(place, jail) as inner:
            done = inner.done(
                "status",
                "--porcelain=v2",
                "-z",
                "--untracked-files=normal",
                "--ignore-submodules=dirty",
                "--no-renames",
                max_bytes=1,
            )
    except BridgeError:
        return False
    return done.cut or bool(done.out)
