"""The state of a repository, as git_status_response says it (SPEC Git resources; D10)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.path_jail import Jail, shown
from bridge_project.protocol.repository_messages import GitStatusResponse
from bridge_project.protocol.resources import GitChange, GitCommitSummary
from bridge_project.protocol.types import GitFileStatus
from files_app.git import submodules, untracked
from files_app.git.paths import Names
from files_app.git.sandbox import mirror
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Place, detached

# The tree without files, which every repository knows, by the length of its names: what a first
# commit is compared with.
_EMPTY_TREE: Final = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
# No program of anybody's, no look into submodules; renames are found whatever was configured.
DIFF_OPTIONS: Final = (
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=dirty",
    "--find-renames",
)
_ENVELOPE_BYTES: Final = 4096


@dataclass(slots=True)
class Entry:
    """A change as git lists it, by its name; ``old`` is a renamed file's other one."""

    name: str
    status: GitFileStatus
    old: str | None = None


@dataclass(slots=True)
class State:
    """What ``git status`` says. ``commit`` is HEAD's, empty before the first; ``cut``: there is
    more.
    """

    commit: str = ""
    branch: str = ""
    ahead: int = 0
    behind: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    cut: bool = False


def status(
    place: Place, jail: Jail, session_id: str, commit: GitCommitSummary | None = None
) -> GitStatusResponse:
    """The status of the whole repository; additions and deletions are those between the last commit
    and the work tree.
    """
    with mirror.reading(place, jail) as git:
        state = read(git)
        state.entries |= {
            name: Entry(name, "modified") for name in submodules.dirty(git, state.entries)
        }
        names = Names(place, jail)
        entries = [entry for entry in state.entries.values() if not names.secret(entry.name)]
        counts = (
            _counts(git, state) if any(entry.status != "untracked" for entry in entries) else {}
        )
        new = [entry.name for entry in entries if entry.status == "untracked"]
        counts |= untracked.count(git, new)
    return _response(state, entries, counts, names, session_id, commit)


def _response(
    state: State,
    entries: list[Entry],
    counts: dict[str, tuple[int, int]],
    names: Names,
    session_id: str,
    commit: GitCommitSummary | None,
) -> GitStatusResponse:
    changes, room = [], conf.max_message_bytes - _ENVELOPE_BYTES
    for entry in entries[: limits.GIT_CHANGES_MAX]:
        path = names.told(entry.name)
        room -= 100 + 6 * len(path)  # the longest that JSON makes of a character
        if room < 0:
            break
        additions, deletions = counts.get(entry.name, (0, 0))
        changes.append(
            GitChange(path=path, status=entry.status, additions=additions, deletions=deletions)
        )
    return GitStatusResponse(
        session_id=session_id,
        branch=shown(state.branch),
        ahead=state.ahead,
        behind=state.behind,
        is_clean=not entries and not state.cut,
        changes=changes,
        commit=commit,
        truncated=True if state.cut or len(changes) < len(entries) else None,
    )


def read(git: Git) -> State:
    """Ask git, and understand what it says (porcelain v2, which git promises not to change)."""
    done = git.done(
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=dirty",
        "--find-renames",
        "--ahead-behind",
    )
    return parse(done.out, cut=done.cut)


def parse(data: bytes, *, cut: bool = False) -> State:
    """The state that the output of ``git status --porcelain=v2 --branch -z`` describes; ``cut``:
    its end is missing.
    """
    state = State(cut=cut)
    records = iter(os.fsdecode(data[: data.rfind(b"\0") + 1]).split("\0")[:-1])
    for record in records:
        if record.startswith("# branch."):
            _header(state, *record.removeprefix("# branch.").split(" ", 1))
        elif (entry := _entry(record, records)) is not None:
            _add(state.entries, entry)
    return state


def _header(state: State, key: str, value: str = "") -> None:
    if key == "oid":
        state.commit = "" if value == "(initial)" else value
    elif key == "head":
        state.branch = detached(state.commit) if value == "(detached)" else value
    elif key == "ab":
        ahead, behind = value.split(" ")
        state.ahead, state.behind = int(ahead), -int(behind)


def _entry(record: str, more: Iterator[str]) -> Entry | None:
    kind = record[:1]
    if kind == "?":
        return Entry(record[2:], "untracked")
    if kind == "u":
        return Entry(record.split(" ", 10)[10], "modified")
    if kind == "1":
        return Entry(record.split(" ", 8)[8], _word(record[2:4]))
    if kind == "2":
        name, old = record.split(" ", 9)[9], next(more, "")
        if record[3] == "D":
            return Entry(old, "deleted")  # what it was renamed to is gone
        return Entry(name, "added") if record[2] == "C" else Entry(name, "renamed", old)
    return None


def _word(states: str) -> GitFileStatus:
    """The letters of index and work tree as one word: what has become of the file since the last
    commit.
    """
    if "D" in states:
        return "deleted"
    return "added" if "A" in states else "modified"


def _add(entries: dict[str, Entry], entry: Entry) -> None:
    """A file that was taken out of the index and is there all the same is listed twice by git:
    deleted and untracked.
    """
    before = entries.get(entry.name)
    if before is not None and {before.status, entry.status} == {"deleted", "untracked"}:
        entry = Entry(entry.name, "modified")
    entries[entry.name] = entry


def _counts(git: Git, state: State) -> dict[str, tuple[int, int]]:
    """Name → lines added and removed since the last commit, of what git knows."""
    base = state.commit or empty_tree(git)
    found: dict[str, tuple[int, int]] = {}
    for counted in numstat(git("diff", "--numstat", "-z", *DIFF_OPTIONS, "--no-renames", base)):
        before = found.get(counted.name, (0, 0))
        found[counted.name] = (before[0] + counted.additions, before[1] + counted.deletions)
    renamed = [(entry.old, entry.name) for entry in state.entries.values() if entry.old is not None]
    if renamed:
        # Against the work tree git may see other renames than in the index, so only those are taken
        # that the status names too.
        names = [name for pair in renamed for name in pair]
        asked = names if len(names) <= limits.GIT_PATHSPECS_MAX else []
        together = {
            (one.old, one.name): one
            for one in numstat(git("diff", "--numstat", "-z", *DIFF_OPTIONS, base, "--", *asked))
        }
        for old, name in renamed:
            gone, new, one = (
                found.pop(old, (0, 0)),
                found.get(name, (0, 0)),
                together.get((old, name)),
            )
            found[name] = (
                (one.additions, one.deletions) if one else (gone[0] + new[0], gone[1] + new[1])
            )
    return found


def empty_tree(git: Git) -> str:
    """What the first commit is compared with."""
    return _EMPTY_TREE[len(git("hash-object", "--stdin").strip())]


@dataclass(frozen=True, slots=True)
class Counted:
    """Lines added and removed in a file, which was called ``old`` before; a binary one has no
    lines.
    """

    name: str
    old: str
    additions: int
    deletions: int
    binary: bool


def numstat(data: bytes) -> list[Counted]:
    """What ``--numstat -z`` says of each file."""
    fields, found = iter(data.split(b"\0")[:-1]), []
    for record in fields:
        additions, deletions, name = record.split(b"\t", 2)
        old = name
        if not name:  # renamed: two names follow
            old, name = next(fields, b""), next(fields, b"")
        binary = additions == b"-"
        found.append(
            Counted(
                os.fsdecode(name),
                os.fsdecode(old),
                0 if binary else int(additions),
                0 if binary else int(deletions),
                binary,
            )
        )
    return found
