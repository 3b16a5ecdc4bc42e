"""An index that holds the last commit and, besides, named files as they are in the work tree: what
``git commit -- FILES`` would commit (D10).
"""

from __future__ import annotations

import os
import stat as st
from collections.abc import Iterable
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from files_app.git import untracked
from files_app.git.paths import Names, Selection
from files_app.git.repository import leads_out
from files_app.git.sandbox.git import Git

_SUBMODULE: Final = b"160000"
# from this many on, the disk is asked once for all objects, and not for each
_SYNC_FILES: Final = 100
_NAMED: Final = 3  # how many names an error repeats


def stage(git: Git, names: Names, files: list[str], before: str) -> None:
    """Make the mirror's index that of the last commit with these files; untracked and deleted ones
    too, directories with what is in them.

    A file that was renamed takes its old name with it. Raises BridgeError GIT_ERROR for files that
    cannot be committed.
    """
    if not files:
        raise BridgeError("GIT_ERROR", "Nothing to commit: no file was named.")
    known = _known(git, names, before)
    chosen = Selection(names, files)
    meant = chosen.find(known)
    if unknown := chosen.unknown(known):
        raise BridgeError(
            "GIT_ERROR",
            f"Nothing to commit in {_list(names, unknown)}: not there, empty or ignored.",
        )
    _check(git, names, chosen, meant, known)
    # a status names them as one change
    meant += [old for old, new in _renamed(git, before) if new in chosen and old not in chosen]
    git("read-tree", "--reset", before) if before else git("read-tree", "--empty")
    there, gone = _sort(git, (name for name in meant if not name.endswith("/")))
    if gone:
        git("update-index", "--force-remove", "-z", "--stdin", stdin=_joined(gone))
    if there:
        _add(git, there)


def _add(git: Git, files: list[str]) -> None:
    at_once = len(files) > _SYNC_FILES
    settings = ("-c", "core.fsyncMethod=writeout-only") if at_once else ()
    git(
        *settings,
        "update-index",
        "--add",
        "--replace",
        "-z",
        "--stdin",
        stdin=_joined(files),
        seconds=limits.GIT_COMMIT_SECONDS,
    )
    if at_once:
        os.sync()


def _known(git: Git, names: Names, before: str) -> dict[str, bytes]:
    """Name → mode of everything that can be committed: in the last commit, in the index, or new. A
    new repository ends in a slash, in conflict: ``U``.
    """
    known: dict[str, bytes] = {}
    for record in (
        git("ls-tree", "-r", "-z", "--full-tree", before).split(b"\0")[:-1] if before else []
    ):
        head, _, name = record.partition(b"\t")
        known[os.fsdecode(name)] = head[:6]
    for record in git("ls-files", "--stage", "-t", "-z").split(b"\0")[:-1]:
        head, _, name = record.partition(b"\t")
        letter, mode, _, stage_number = head.split(b" ")
        if letter == b"S":
            known.pop(os.fsdecode(name), None)  # a sparse work tree: not there on purpose
        else:
            known[os.fsdecode(name)] = b"U" if stage_number != b"0" else mode
    known |= dict.fromkeys(untracked.listed(git), b"")
    return {name: mode for name, mode in known.items() if not names.hidden(name)}


def _check(
    git: Git, names: Names, chosen: Selection, meant: list[str], known: dict[str, bytes]
) -> None:
    if conflicts := [name for name in meant if known[name] == b"U"]:
        raise BridgeError("GIT_ERROR", f"In conflict: {_list(names, conflicts)}.")
    if inner := [name for name in meant if name.endswith("/") and name.rstrip("/") in chosen.given]:
        raise BridgeError(
            "GIT_ERROR",
            f"A repository of its own, which cannot be committed as a file: {_list(names, inner)}.",
        )
    if any(names.secret(name) for name in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A file is a link to what is not to be seen.")
    if any(known[name] == _SUBMODULE and leads_out(git.place, git.jail, name) for name in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A submodule lies outside what may be seen.")


def _renamed(git: Git, before: str) -> list[tuple[str, str]]:
    """(old name, new name) of the files that are renamed in the index."""
    if not before:
        return []
    found = git(
        "diff",
        "--cached",
        "--name-status",
        "-z",
        "--find-renames",
        "--diff-filter=R",
        "--ignore-submodules=dirty",
        before,
    ).split(b"\0")[:-1]
    return [
        (os.fsdecode(old), os.fsdecode(new))
        for old, new in zip(found[1::3], found[2::3], strict=True)
    ]


def _sort(git: Git, meant: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those that are there, and those that are gone: what now lies behind a link, or has become a
    directory, is gone too.
    """
    real: dict[str, bool] = {}
    there: list[str] = []
    gone: list[str] = []
    for name in meant:
        path = f"{git.place.top}/{name}"
        parent = os.path.dirname(path)
        if parent not in real:
            real[parent] = os.path.realpath(parent) == parent
        (there if real[parent] and _is_file(path) else gone).append(name)
    return there, gone


def _is_file(path: str) -> bool:
    """Whether there is something that git can commit: a file, a link, a submodule."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not st.S_ISDIR(mode) or os.path.lexists(f"{path}/.git")


def _list(names: Names, found: list[str]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(names.told(name) for name in found[:_NAMED]) + more


def _joined(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)
