"""Ask plain git about filtered files of a trusted repository (D63)."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bridge_project.kernel import limits
from files_app.git.patch import Budget, Change, Counts, Lists, numstat, read_lines
from files_app.git.plain import Plain
from sessions_app.working_directory import Repository

_SAME: Final = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--no-renames")
_FORM: Final = ("--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--unified=3")


def _plain(place: Repository) -> Plain:
    return replace(Plain(place), more=(("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1")))


def _paths(names: Sequence[str]) -> list[str]:
    few = len(names) <= limits.GIT_PATHSPECS_MAX
    return [f":(top,literal){name}" for name in names] if few else []


def changed(place: Repository, names: Sequence[str]) -> set[str]:
    """Return those of these tracked files that git calls changed in the work tree."""
    seconds = limits.GIT_READ_SECONDS
    listed = _plain(place)(
        *("diff", "--name-only", "-z", *_SAME, "--", *_paths(names)), seconds=seconds
    )
    return {os.fsdecode(name) for name in listed.split(b"\0")[:-1]}.intersection(names)


def counts(place: Repository, base: str, names: Sequence[str]) -> list[Counts]:
    """Return the lines of these files that differ from a commit."""
    command = ("diff", "--numstat", "-z", *_SAME, base, "--", *_paths(names))
    return [
        one
        for one in numstat(_plain(place)(*command, seconds=limits.GIT_READ_SECONDS))
        if one.name in names
    ]


def lines(place: Repository, names: Sequence[str], budget: Budget) -> list[Change]:
    """Return these files' changes since the index, with their lines."""
    command = ("diff", "--raw", "--numstat", "-z", "--no-abbrev", *_SAME, "--patch", *_FORM)
    done = _plain(place).done(*command, "--", *_paths(names), seconds=limits.GIT_READ_SECONDS)
    found = Lists(done.out, cut=done.cut)
    read_lines(found, names, budget, cut=done.cut)
    return [one for one in found.by_name.values() if one.name in names]
