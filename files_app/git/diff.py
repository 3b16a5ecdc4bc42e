"""Changes line by line, as git_diff_response says them (SPEC Git resources; D10)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from bridge_project.protocol.repository_messages import GitDiffResponse
from bridge_project.protocol.resources import DiffFile
from bridge_project.protocol.types import GitFileStatus
from files_app.git import patch, untracked
from files_app.git.patch import Budget, Section
from files_app.git.paths import Names, Selection
from files_app.git.repository import leads_out
from files_app.git.sandbox import mirror
from files_app.git.sandbox.git import Git
from files_app.git.status import DIFF_OPTIONS, numstat
from sessions_app.working_directory import Place

_WORDS: Final[dict[str, GitFileStatus]] = {
    "A": "added",
    "C": "added",
    "D": "deleted",
    "R": "renamed",
}
_NONE: Final = "000000"
_SUBMODULE: Final = "160000"
_ENVELOPE_BYTES: Final = 4096
_FILE_BYTES: Final = 300  # what a file costs besides its names


@dataclass(slots=True)
class Change:
    """A changed file as git lists it: ``old`` is its name before, the same but for a renamed
    one.
    """

    name: str
    old: str
    status: GitFileStatus
    old_mode: str
    new_mode: str
    additions: int = 0
    deletions: int = 0
    binary: bool = False


def diff(
    place: Place, jail: Jail, session_id: str, files: list[str] | None, *, cached: bool
) -> GitDiffResponse:
    """The work tree against the index, or ``cached``: the index against the last commit.

    ``files``: only these, with what is in them if they are directories; untracked ones among them
    are shown as new. Raises BridgeError FILE_NOT_FOUND for one that neither git nor the work tree
    knows, and what ``mirror.reading`` and ``Names.asked`` raise.
    """
    names = Names(place, jail)
    chosen = None if files is None else Selection(names, files)
    with mirror.reading(place, jail) as git:
        changes = [
            change
            for change in _listed(git, cached)
            if not names.secret(change.name) and not _reads_outside(git, change, cached)
        ]
        new = untracked.listed(git) if chosen is not None and not cached else []
        if chosen is not None:
            changes, new = _chosen(git, chosen, changes, new)
        budget = Budget(
            min(limits.GIT_DIFF_MAX_BYTES, conf.max_message_bytes) - _ENVELOPE_BYTES,
            limits.GIT_DIFF_MAX_LINES,
        )
        answer = _Answer(names, budget)
        answer.announce(changes, new)
        answer.add_changes(
            changes, _sections(git, changes, budget, cached, all_of_them=chosen is None)
        )
        answer.add_new(git, new)
    return GitDiffResponse(
        session_id=session_id, files=answer.files, truncated=answer.truncated or None
    )


def _listed(git: Git, cached: bool) -> list[Change]:
    """Every changed file, each once."""
    # Of a file in conflict: against our own side, for the answer knows only two.
    fields = git(
        "diff",
        "--raw",
        "--numstat",
        "-z",
        "--no-abbrev",
        *DIFF_OPTIONS,
        "--cached" if cached else "--ours",
    ).split(b"\0")
    found: dict[str, Change] = {}
    at = 0
    while at + 1 < len(fields) and fields[at].startswith(b":"):
        old_mode, new_mode, _, _, letter = fields[at][1:].decode().split(" ")
        renamed = letter[0] in "RC"
        old, name = os.fsdecode(fields[at + 1]), os.fsdecode(fields[at + 1 + renamed])
        at += 2 + renamed
        if letter == "U":
            found.setdefault(name, Change(name, name, "modified", _NONE, _NONE))
        else:
            found[name] = Change(
                name,
                old if letter[0] == "R" else name,
                _WORDS.get(letter[0], "modified"),
                old_mode,
                new_mode,
            )
    for counted in numstat(b"\0".join(fields[at:])):
        if counted.name in found:
            change = found[counted.name]
            change.additions, change.deletions, change.binary = (
                counted.additions,
                counted.deletions,
                counted.binary,
            )
    return list(found.values())


def _reads_outside(git: Git, change: Change, cached: bool) -> bool:
    return (
        not cached and change.new_mode == _SUBMODULE and leads_out(git.place, git.jail, change.name)
    )


def _chosen(
    git: Git, chosen: Selection, changes: list[Change], new: list[str]
) -> tuple[list[Change], list[str]]:
    """Those of the changed and of the new files that a client named."""
    known = {
        name: None for change in changes for name in (change.name, change.old)
    } | dict.fromkeys(new)
    meant = set(chosen.find(known))
    for name in chosen.unknown(known):
        if not untracked.exists(git, name) and not _tracked(git, name):
            raise BridgeError("FILE_NOT_FOUND", "The repository has no such file.")
    return [change for change in changes if change.name in meant or change.old in meant], [
        name for name in new if name in meant
    ]


def _tracked(git: Git, name: str) -> bool:
    """Whether a file that is not there is in the index, or in the last commit."""
    has_commit = git.done("rev-parse", "--verify", "--quiet", "HEAD", good=(0, 1)).code == 0
    return bool(git("ls-files", *(["--with-tree=HEAD"] if has_commit else []), "-z", "--", name))


def _sections(
    git: Git, changes: list[Change], budget: Budget, cached: bool, *, all_of_them: bool
) -> dict[str, Section]:
    """The lines of these changes, as far as the budget goes."""
    if not any(change.additions or change.deletions for change in changes):
        return {}
    # both, or git would not see that one became the other
    paths = {name: None for change in changes for name in (change.old, change.name)}
    asked = [] if all_of_them or len(paths) > limits.GIT_PATHSPECS_MAX else list(paths)
    arguments = (
        "diff",
        "--patch",
        "--no-color",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        *DIFF_OPTIONS,
        "--cached" if cached else "--ours",
        "--",
        *asked,
    )
    done = git.done(*arguments, max_bytes=limits.GIT_PATCH_MAX_BYTES)
    return patch.parse(
        done.out, budget, wanted=None if all_of_them or asked else paths.keys(), cut=done.cut
    )


class _Answer:
    """The files of the answer; those come first that git knows."""

    def __init__(self, names: Names, budget: Budget) -> None:
        self.names = names
        self.budget = budget
        self.files: list[DiffFile] = []
        self.truncated = False

    def announce(self, changes: list[Change], new: list[str]) -> None:
        """Set aside what the files cost without their lines, so that all are named; what does not
        fit is left out.
        """
        del changes[self._fitting((change.name, change.old) for change in changes) :]
        del new[self._fitting((name, name) for name in new) :]

    def _fitting(self, listed: Iterable[tuple[str, str]]) -> int:
        """How many files there is room for."""
        count = 0
        for paths in listed:
            # three names, at worst six bytes a character
            if not self.budget.take(
                _FILE_BYTES + 18 * max(len(self.names.told(path)) for path in paths)
            ):
                self.truncated = True
                break
            count += 1
        return count

    def add_changes(self, changes: list[Change], sections: dict[str, Section]) -> None:
        for change in changes:
            section = sections.get(change.name)
            cut = section.cut if section else bool(change.additions or change.deletions)
            self._add(change, section or Section(), cut)

    def add_new(self, git: Git, new: list[str]) -> None:
        """Untracked files, as if they had been added."""
        for name in new:
            found = untracked.read(git, name, limits.GIT_COUNT_MAX_BYTES)
            if found is None:  # gone meanwhile, or a repository of its own
                continue
            section = Section()
            if found.lines:
                lines = found.content.split(b"\n")[: found.lines]
                hunk, whole = patch.text_hunk(
                    lines, found.lines, self.budget, ends_line=found.content.endswith(b"\n")
                )
                section.hunks.append(hunk)
                section.cut = not whole or found.cut
            self._add(
                Change(name, name, "untracked", _NONE, found.mode, found.lines, 0, found.binary),
                section,
                section.cut,
            )

    def _add(self, change: Change, section: Section, cut: bool) -> None:
        modes = (
            {"old_mode": change.old_mode, "new_mode": change.new_mode}
            if change.old_mode != change.new_mode
            else {}
        )
        self.truncated = self.truncated or cut
        self.files.append(
            DiffFile(
                path=self.names.told(change.name),
                old_path=self.names.told(change.old),
                new_path=self.names.told(change.name),
                status=change.status,
                additions=change.additions,
                deletions=change.deletions,
                hunks=section.hunks,
                binary=change.binary or None,
                truncated=cut or None,
                **{name: mode for name, mode in modes.items() if mode != _NONE},
            )
        )
