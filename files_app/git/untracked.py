"""Let git count and show untracked files, as if they were about to be added."""

import os
import stat as st
from collections.abc import Iterable

from bridge_project.kernel import limits
from files_app.git.paths import Names, parents
from files_app.git.sandbox.git import Git


def listed(git: Git, *pathspecs: str) -> list[str]:
    """List untracked files that are not ignored; a nested repository ends in a slash."""
    found = git("ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs)
    return [os.fsdecode(name) for name in found.split(b"\0") if name]


def announce(git: Git, names: Iterable[str]) -> None:
    """Put names without content into the mirror's index: git's diffs then have the files."""
    stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
    if stdin:
        names_follow = ("--pathspec-from-file=-", "--pathspec-file-nul")
        # 128: one of them has vanished; then git shows none
        git.done("add", "--intent-to-add", "--sparse", *names_follow, stdin=stdin, good=(0, 128))


def announce_some(git: Git, names: Names, shown: Iterable[str]) -> dict[str, str]:
    """Announce files of a status, and those in its directories, up to the limits.

    Returns file → its name in the status, which ends in a slash for a directory.
    """
    owners = {name: name for name in shown}
    directories = {name for name in owners if name.endswith("/")}
    if directories:
        asked = directories if len(directories) <= limits.GIT_PATHSPECS_MAX else ["."]
        for name in listed(git, *asked):
            for parent in parents(name):
                if f"{parent}/" in directories:
                    owners[name] = f"{parent}/"
    room, found = limits.GIT_COUNT_MAX_BYTES, {}
    for name, owner in list(owners.items())[: limits.GIT_COUNT_MAX_FILES]:
        if (size := _size(git, name)) is not None and size <= room and not names.secret(name):
            room -= size
            found[name] = owner
    announce(git, found)
    return found


def _size(git: Git, name: str) -> int | None:
    """Return a file's or a link's size in bytes; None for what git cannot read."""
    path = f"{git.place.top}/{name}"
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    is_readable = st.S_ISREG(stat.st_mode) and os.access(path, os.R_OK)
    return stat.st_size if is_readable or st.S_ISLNK(stat.st_mode) else None


def exists(git: Git, name: str) -> bool:
    """Return whether there is anything of that name; not behind a link, as for git."""
    directory = f"{git.place.top}/{name}".rpartition("/")[0]
    return os.path.realpath(directory) == directory and os.path.lexists(f"{git.place.top}/{name}")
