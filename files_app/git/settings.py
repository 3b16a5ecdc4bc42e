"""Ask plain git for the settings in force in a repository (D63)."""

import os
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.mounts import lies_in
from files_app.git.sandbox import git
from files_app.git.sandbox.error_text import HEAD_DAMAGED, git_error, reason
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Repository

_FILTER: Final = re.compile(r"filter\.(.*)\.(?:clean|process)", re.DOTALL)
_NO_FILTER: Final = frozenset({b"unspecified", b"unset", b"set"})


class Effective(NamedTuple):
    """Hold a setting in force.

    ``own``: a file of the repository makes it, whoever includes that.
    """

    own: bool
    key: str
    value: str


def ask(place: Repository, *arguments: str) -> bytes:
    """Return what plain git prints in the user's repository; GIT_ERROR when it fails."""
    done = git.run(
        ["--no-pager", *arguments],
        cwd=place.top,
        environment=git.own_environment(place),
        max_bytes=4 * limits.GIT_CONFIG_MAX_BYTES,
    )
    if done.code and b"not a git repository" in done.err:  # its directory was found
        raise git_error(HEAD_DAMAGED)
    if done.code or done.cut:
        why = reason(done.err, place.jail, place.top, str(conf.bridge_data_dir))
        raise git_error(why or "git cannot read the repository's configuration.")
    return done.out


def effective(place: Repository) -> list[Effective]:
    """Return all settings in force, the ones that count last."""
    how = ("-z", "--show-scope", "--show-origin", "--includes")
    parts = ask(place, "config", "--list", *how).split(b"\0")[:-1]
    # also where a home directory is under git
    users = (f"{git.home()}/.gitconfig", f"{git.settings_base()}/git/config")
    found = []
    for scope, origin, record in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        key, equals, value = os.fsdecode(record).partition("\n")
        file = os.path.join(place.top, os.fsdecode(origin).removeprefix("file:"))
        own = scope in (b"local", b"worktree") or (file not in users and is_inside(place, file))
        found.append(Effective(own, key, value if equals else "true"))
    return found


def is_inside(place: Repository, path: str) -> bool:
    """Return whether a path, or what its links lead to, lies in the repository."""
    around = {*(place.top, place.git_dir, place.common_dir)}
    around |= {os.path.realpath(one) for one in around}
    ways = (os.path.normpath(path), os.path.realpath(path))
    return any(lies_in(way, one) for way in ways for one in around)


def last(settings: Iterable[Effective]) -> dict[str, str]:
    """Return the value of each key."""
    return {one.key: one.value for one in settings}


def drivers(settings: Iterable[Effective]) -> set[str]:
    """Return the names of filters that a program stands for."""
    return {found[1] for one in settings if (found := _FILTER.fullmatch(one.key)) and one.value}


def filtered(git: Git, settings: Iterable[Effective]) -> list[str]:
    """Return tracked files whose filter must say whether they have changed."""
    names = drivers(settings)
    if not names:
        return []
    touched = git("diff-files", "--name-only", "-z", "--ignore-submodules=all", "--diff-filter=d")
    said = git("check-attr", "-z", "--stdin", "filter", stdin=touched) if touched else b""
    fields = said.split(b"\0")[:-1]
    return [
        os.fsdecode(name)
        for name, value in zip(fields[::3], fields[2::3], strict=True)
        if value not in _NO_FILTER and os.fsdecode(value) in names
    ]
