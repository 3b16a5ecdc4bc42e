"""Choose the files of a commit, as ``git commit -- FILES`` would (D63)."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from files_app.git import status, untracked
from files_app.git.paths import REPLACED, Names, Selection, tracked
from files_app.git.repository import leads_out
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from files_app.git.settings import Effective, filtered
from files_app.git.status import Entry

_NAMED: Final = 3  # how many names an error repeats
_MARKER_SIZE: Final = 7  # unless the attribute of that name says otherwise
_MARKER_MOST: Final = 1000  # what is longer is no number that a person has meant


@dataclass(frozen=True, slots=True)
class Chosen:
    """Hold git's names of chosen files, those to add, and what else is staged.

    ``removed``: those that are no file any more, for something else may be in their place.
    """

    meant: list[str]
    added: list[str]
    also: list[str]
    removed: frozenset[str] = frozenset()


def choose(
    git: Git, files: list[str] | None, operation: str | None, settings: Sequence[Effective]
) -> Chosen:
    """Return what a commit of these files takes; ``files`` None: all that is staged.

    ``operation``: git commits all that is staged. Untracked and deleted files count too, and a
    directory means all files in it. A renamed file takes its old name with it. Raises BridgeError
    GIT_ERROR for files that cannot be committed.
    """
    names = Names(git.place)
    if files is None:
        state = status.read(git, untracked_files="no")
        _check_conflicts(names, [], state.entries)
        if operation != "merge" and not any(one.staged for one in state.entries.values()):
            raise git_error("Nothing to commit: nothing is staged.")
        return Chosen([], [], [])
    if not files:
        raise git_error("Nothing to commit: no file was named.")
    chosen = Selection(names, files)
    entries = _entries(git, chosen, settings)
    known = {name: one for name, one in entries.items() if not names.hidden(name)}
    for old in [entry.old for entry in known.values() if entry.old is not None]:
        known.setdefault(old, Entry(old, "deleted"))
    meant = [known[name] for name in chosen.find(known)]
    if unknown := chosen.unknown(known):
        unknown = sorted(set(unknown).intersection(chosen.unknown(tracked(git))))
    if unknown:
        text = f"Nothing to commit in {_list(names, unknown)}: not there, empty or ignored."
        raise git_error(text)
    _check(git, names, chosen, meant)
    if operation is not None:
        _check_conflicts(names, meant, known)
    taken = {one.name for one in meant} | {one.old for one in meant if one.old is not None}
    taken = {name for name in taken if not name.endswith("/")}
    new = [one for one in meant if one.status == "untracked" or (operation and _differs(one))]
    staged = [one for one in entries.values() if one.staged and one.name not in taken]
    if not (taken or (operation and staged) or operation == "merge"):
        raise git_error("Nothing to commit: these files have no changes.")
    return Chosen(
        sorted(taken),
        [one.name for one in new if one.name in taken],
        [one.name for one in staged if not names.secret(one.name)] if operation else [],
        frozenset(
            name
            for name in taken
            if known[name].status == "deleted" or _is_replaced(git, known[name])
        ),
    )


def _differs(entry: Entry) -> bool:
    """Return whether the work tree differs from the index, in what git would add."""
    # git stages a submodule's commit and leaves the submodule at the one before
    return entry.conflict or (entry.changed and not (entry.submodule and entry.staged))


def _is_replaced(git: Git, entry: Entry) -> bool:
    """Return whether a directory is in a file's place, which is no submodule."""
    path = f"{git.place.top}/{entry.name}"
    return not entry.submodule and os.path.isdir(path) and not os.path.islink(path)


def _entries(git: Git, chosen: Selection, settings: Sequence[Effective]) -> dict[str, Entry]:
    """Return all changes of tracked files, and the untracked ones among those chosen."""
    entries = status.read(git, untracked_files="no").entries
    for name in filtered(git, settings):
        entries.setdefault(name, Entry(name, "modified", changed=True))
    few = not chosen.everything and len(chosen.given) <= limits.GIT_PATHSPECS_MAX
    few = few and not any(REPLACED in name for name in chosen.given)
    found = untracked.listed(git, *(sorted(chosen.given) if few else ()))
    for name in found:
        before = entries.get(name)
        if before is not None and before.status == "deleted":  # in the work tree all the same
            entries[name] = Entry(name, "modified", unlisted=True, staged=True, changed=True)
        else:
            entries[name] = Entry(name, "untracked")
    return entries


def _check_conflicts(names: Names, meant: list[Entry], entries: dict[str, Entry]) -> None:
    left = {one.name for one in entries.values() if one.conflict}
    left.difference_update(one.name for one in meant)
    if left:
        raise git_error(f"Still in conflict: {_list(names, sorted(left))}.")


def _check(git: Git, names: Names, chosen: Selection, meant: list[Entry]) -> None:
    repositories = [entry.name for entry in meant if entry.name.endswith("/")]
    if inner := [name for name in repositories if name.rstrip("/") in chosen.given]:
        raise git_error(
            f"A repository of its own, which cannot be committed as a file: {_list(names, inner)}."
        )
    if any(names.secret(entry.name) for entry in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A file is a link to a hidden file.")
    if any(entry.submodule and leads_out(git, entry.name) for entry in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A submodule lies outside the allowed roots.")
    conflicts = [one.name for one in meant if one.conflict]
    unresolved = [name for name, size in _sizes(git, conflicts) if _has_markers(git, name, size)]
    if unresolved:
        text = f"In conflict, with the conflict's markers in it: {_list(names, unresolved)}."
        raise git_error(text)


def _sizes(git: Git, found: list[str]) -> Iterator[tuple[str, int]]:
    """Yield each name with the length of a conflict's markers in its file."""
    command = ("check-attr", "-z", "--stdin", "conflict-marker-size")
    said = git(*command, stdin=encoded(found)).split(b"\0")[:-1] if found else []
    for name, value in zip(said[::3], said[2::3], strict=True):
        size = int(value) if value.isdigit() else 0
        yield os.fsdecode(name), size if 0 < size <= _MARKER_MOST else _MARKER_SIZE


def _has_markers(git: Git, name: str, size: int) -> bool:
    found = untracked.read(git, name)
    markers = rb"^(?:<{%d}|>{%d})(?: |\r?$)" % (size, size)
    return found is not None and re.search(markers, found.content, re.MULTILINE) is not None


def _list(names: Names, found: list[str]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(names.to_client_name(name) for name in found[:_NAMED]) + more


def encoded(found: list[str]) -> bytes:
    """Return names as git reads them with ``-z``."""
    return b"".join(os.fsencode(name) + b"\0" for name in found)
