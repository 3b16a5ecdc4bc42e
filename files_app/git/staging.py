"""Make the index that ``git commit -- FILES`` would commit (D10)."""

import os
from collections.abc import Iterable
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from files_app.git import status
from files_app.git.paths import Names, Selection, tracked
from files_app.git.repository import leads_out
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git

_NAMED: Final = 3  # how many names an error repeats


def stage(git: Git, names: Names, files: list[str], before: str, operation: str | None) -> set[str]:
    """Fill the mirror's index from the commit ``before``, if any, and these files.

    ``operation``: a merge or the like that this commit ends: these files go onto what is staged.
    Returns the names of the files that it took from the work tree.

    Untracked and deleted files count too, and a directory means all files in it. A renamed file
    takes its old name with it. Raises BridgeError GIT_ERROR for files that cannot be committed.
    """
    if not files:
        raise git_error("Nothing to commit: no file was named.")
    chosen = Selection(names, files)
    state = status.read(git, untracked_files="all")
    if state.cut:
        raise git_error("More files have changed than the bridge can look through.")
    known = {name: one for name, one in state.entries.items() if not names.hidden(name)}
    for old in [entry.old for entry in known.values() if entry.old is not None]:
        known.setdefault(old, status.Entry(old, "deleted"))
    meant = [known[name] for name in chosen.find(known)]
    if unknown := chosen.unknown(known):
        unknown = sorted(set(unknown).intersection(chosen.unknown(tracked(git))))
    if unknown:
        text = f"Nothing to commit in {_list(names, unknown)}: not there, empty or ignored."
        raise git_error(text)
    _check(git, names, chosen, meant)
    gone = {entry.name for entry in meant if entry.status == "deleted"}
    # a status names them as one change
    gone |= {entry.old for entry in meant if entry.old is not None}
    gone -= {entry.name for entry in meant if entry.status == "untracked"}
    there = [entry.name for entry in meant if entry.name not in gone and entry.name[-1:] != "/"]
    if operation is None:
        git(*(("read-tree", "--reset", before) if before else ("read-tree", "--empty")))
    else:
        head = before or status.empty_tree(git)
        found = git("diff-index", "--cached", "--name-only", "-z", "--no-renames", head, "--")
        staged = set(os.fsdecode(found).split("\0")[:-1])
        if left := staged.difference(gone, there):
            seen = _list(names, sorted(name for name in left if not names.secret(name)))
            text = f"{operation} is committed with all that is staged. Not chosen: "
            raise git_error(text + (seen or "a hidden file") + ".")
        # git stages a submodule's commit and leaves the submodule at the one before
        staged.intersection_update(entry.name for entry in meant if entry.submodule)
        there = [name for name in there if name not in staged]
    _update(git, gone, "--force-remove")
    # outside a sparse checkout nothing is in the work tree, which deletes nothing
    _update(git, there, "--add", "--remove", "--replace", "--ignore-skip-worktree-entries")
    return gone.union(there)


def _update(git: Git, files: Iterable[str], *how: str) -> None:
    stdin = b"".join(os.fsencode(name) + b"\0" for name in files)
    if stdin:
        one_sync = ("-c", "core.fsyncMethod=batch")  # for all objects
        command = (*one_sync, "update-index", *how, "-z", "--stdin")
        git(*command, stdin=stdin, seconds=limits.GIT_COMMIT_SECONDS)


def _check(git: Git, names: Names, chosen: Selection, meant: list[status.Entry]) -> None:
    if conflicts := [entry.name for entry in meant if entry.conflict]:
        raise git_error(f"In conflict: {_list(names, conflicts)}.")
    repositories = [entry.name for entry in meant if entry.name.endswith("/")]
    if inner := [name for name in repositories if name.rstrip("/") in chosen.given]:
        raise git_error(
            f"A repository of its own, which cannot be committed as a file: {_list(names, inner)}."
        )
    if any(names.secret(entry.name) for entry in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A file is a link to a hidden file.")
    if any(entry.submodule and leads_out(git, entry.name) for entry in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A submodule lies outside the allowed roots.")


def _list(names: Names, found: list[str]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(names.to_client_name(name) for name in found[:_NAMED]) + more
