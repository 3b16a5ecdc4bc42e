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


def announce(git: Git, names: Names, wanted: Iterable[str]) -> tuple[dict[str, str], set[str]]:
    """Add untracked files to the mirror's index, so git's diffs show their lines.

    They are added as empty files. Returns file → mode, of all that is neither secret, vanished nor
    unreadable, and which of them git now has: no more than it can read soon.
    """
    modes, there, room = dict[str, str](), set[str](), limits.GIT_COUNT_MAX_BYTES
    for name in wanted:
        stat = _look(git, name)
        if stat is None or names.secret(name):
            continue
        executable = "100755" if stat.st_mode & 0o100 else "100644"
        modes[name] = "120000" if st.S_ISLNK(stat.st_mode) else executable
        if stat.st_size <= room and len(there) < limits.GIT_COUNT_MAX_FILES:
            room -= stat.st_size
            there.add(name)
    if there:
        empty = git("hash-object", "-w", "--stdin").decode().strip()
        entries = (f"{modes[name]} {empty}\t{name}\0" for name in there)
        git("update-index", "-z", "--index-info", stdin=os.fsencode("".join(entries)))
    return modes, there


def owners(git: Git, shown: Iterable[str]) -> dict[str, str]:
    """Map each untracked file to the name that git status gives it.

    The name of a directory ends in a slash, and stands for all files in it.
    """
    found = {name: name for name in shown}
    directories = {name for name in found if name.endswith("/")}
    if directories:
        asked = directories if len(directories) <= limits.GIT_PATHSPECS_MAX else ["."]
        for name in listed(git, *asked):
            for parent in parents(name):
                if f"{parent}/" in directories:
                    found[name] = f"{parent}/"
    return found


def _look(git: Git, name: str) -> os.stat_result | None:
    """Return what a file or link is; None for what git cannot read."""
    path = f"{git.place.top}/{name}"
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    is_readable = st.S_ISREG(stat.st_mode) and os.access(path, os.R_OK)
    return stat if is_readable or st.S_ISLNK(stat.st_mode) else None


def exists(git: Git, name: str) -> bool:
    """Return whether there is anything of that name; not behind a link, as for git."""
    directory = f"{git.place.top}/{name}".rpartition("/")[0]
    return os.path.realpath(directory) == directory and os.path.lexists(f"{git.place.top}/{name}")
