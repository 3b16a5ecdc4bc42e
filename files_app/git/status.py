"""Answer git_status_request with the state of a repository (D10)."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import shown
from bridge_project.protocol.repository_messages import GitStatusResponse
from bridge_project.protocol.resources import GitChange, GitCommitSummary
from bridge_project.protocol.types import GitFileStatus
from files_app.git import as_git, untracked
from files_app.git.facts import operation, upstream
from files_app.git.partly import readable
from files_app.git.patch import numstat
from files_app.git.paths import Names
from files_app.git.repository import leads_out, repository_of
from files_app.git.sandbox import mirror
from files_app.git.sandbox.git import Git
from files_app.git.settings import effective, filtered, last
from sessions_app.working_directory import Repository, detached

# no external programs, no submodules, and renames found whatever the configuration says
SAME_CHANGES: Final = ("--ignore-submodules=dirty", "--find-renames")
DIFF_OPTIONS: Final = ("--no-ext-diff", "--no-textconv", *SAME_CHANGES)
Trusted = Callable[[Repository], bool]

_CHANGE_BYTES: Final = 180  # what a change costs besides its name
_COMPARED_MAX: Final = 50  # files that take a git call each


@dataclass(slots=True)
class Entry:
    """Describe a change; ``old``: its earlier name; ``moved``: a submodule's HEAD did.

    ``unlisted``: taken out of the index, and in the work tree all the same. ``filtered``: only its
    filter could say whether the work tree differs. ``changed``: it differs from the index.
    """

    name: str
    status: GitFileStatus
    old: str | None = None
    conflict: bool = False
    submodule: bool = False
    moved: bool = False
    unlisted: bool = False
    staged: bool = False
    filtered: bool = False
    changed: bool = False


@dataclass(slots=True)
class State:
    """Hold what ``git status`` printed.

    ``commit`` is HEAD's, empty before the first; ``cut``: there is more.
    """

    commit: str = ""
    branch: str = ""
    upstream: str = ""
    gone: bool = True  # the upstream, unless git says how far it is
    ahead: int = 0
    behind: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    cut: bool = False


def status(
    place: Repository,
    session_id: str,
    commit: GitCommitSummary | None = None,
    *,
    trusted: Trusted = lambda place: False,
) -> GitStatusResponse:
    """Return a repository's status; lines are counted against the last commit.

    In a ``trusted`` repository filters say what has changed (D63).
    """
    settings = effective(place)
    with mirror.reading(place, settings) as git:
        wanted = last(settings).get("status.showuntrackedfiles")
        state = read(git, untracked_files=wanted if wanted in ("no", "all") else "normal")
        unsure = filtered(git, settings)
        by_filter: dict[str, tuple[int, int]] = {}
        if unsure and trusted(place):
            by_filter = _as_git(place, state, unsure)
            unsure = []
        for name in unsure:
            known = state.entries.setdefault(name, Entry(name, "modified"))
            known.filtered = known.status != "deleted" and not known.conflict
        for name in _dirty_submodules(git, state):
            state.entries[name] = Entry(name, "modified")
        names = Names(place)
        entries = [entry for entry in state.entries.values() if not names.secret(entry.name)]
        entries = [one for one in entries if _may_be_shown(git, one)]
        new = [entry.name for entry in entries if entry.status == "untracked"]
        counts, uncounted = _counts(git, state) if len(new) < len(entries) else ({}, set())
        counts |= by_filter
        counts |= {name: (lines, 0) for name, lines in untracked.count(git, new).items()}
    changes, room = [], conf.max_message_bytes - limits.ENVELOPE_BYTES
    for entry in entries[: limits.GIT_CHANGES_MAX]:
        path = names.to_client_name(entry.name)
        room -= _CHANGE_BYTES + 6 * len(path)  # the longest that JSON makes of a character
        if room < 0:
            break
        additions, deletions = (0, 0) if entry.filtered else counts.get(entry.name, (0, 0))
        changes.append(
            GitChange(
                path=path,
                status=entry.status,
                additions=additions,
                deletions=deletions,
                conflicted=entry.conflict,
                staged=entry.staged,
                counted=entry.name not in uncounted and not entry.filtered,
                filtered=entry.filtered or None,
            )
        )
    return GitStatusResponse(
        session_id=session_id,
        branch=shown(state.branch),
        ahead=state.ahead,
        behind=state.behind,
        repository=shown(place.top),
        head=state.commit or None,
        upstream=upstream(place, state.upstream, state.branch, settings, gone=state.gone),
        state=operation(place),
        is_clean=all(one.filtered and not one.staged for one in entries) and not state.cut,
        changes=changes,
        commit=commit,
        truncated=True if state.cut or len(changes) < len(entries) else None,
    )


def _as_git(place: Repository, state: State, unsure: list[str]) -> dict[str, tuple[int, int]]:
    """Correct the state of filtered files by git's own; return their lines."""
    changed = as_git.changed(place, unsure)
    for name in unsure:
        entry = state.entries.get(name)
        if name in changed:
            state.entries.setdefault(name, Entry(name, "modified", changed=True))
        elif entry is not None and not entry.staged and entry.status == "modified":
            del state.entries[name]
    left = [name for name in unsure if name in state.entries]
    counted = as_git.counts(place, state.commit, left) if left and state.commit else []
    return {one.name: (one.additions, one.deletions) for one in counted}


def read(git: Git, *, untracked_files: str = "normal") -> State:
    """Run git status (porcelain v2, which git promises not to change)."""
    options = ("--branch", "--ahead-behind", f"--untracked-files={untracked_files}", *SAME_CHANGES)
    command = ("status", "--porcelain=v2", "-z", *options)
    try:
        done = git.done(*command)
    except BridgeError:  # an object that is not there; without renames git reads no content
        done = git.done(*command, "--no-renames")
    return parse(done.out, cut=done.cut)


def parse(data: bytes, *, cut: bool = False) -> State:
    """Parse ``git status --porcelain=v2 --branch -z``; ``cut``: its end is missing."""
    state = State(cut=cut)
    records = iter(os.fsdecode(data[: data.rfind(b"\0") + 1]).split("\0")[:-1])
    for record in records:
        if record.startswith("# branch."):
            _read_header(state, *record.removeprefix("# branch.").split(" ", 1))
        elif (entry := _entry(record, records)) is not None:
            before = state.entries.get(entry.name)
            # git lists it twice
            if before is not None and {before.status, entry.status} == {"deleted", "untracked"}:
                entry = Entry(entry.name, "modified", unlisted=True, staged=True, changed=True)
            state.entries[entry.name] = entry
    return state


def _read_header(state: State, key: str, value: str = "") -> None:
    if key == "oid":
        state.commit = "" if value == "(initial)" else value
    elif key == "head":
        state.branch = detached(state.commit) if value == "(detached)" else value
    elif key == "upstream":
        state.upstream = value
    elif key == "ab":
        ahead, behind = value.split(" ")
        state.ahead, state.behind, state.gone = int(ahead), -int(behind), False


def _entry(record: str, more: Iterator[str]) -> Entry | None:
    kind = record[:1]
    if kind == "?":
        return Entry(record[2:], "untracked")
    if kind == "u":
        return Entry(record.split(" ", 10)[10], "modified", conflict=True)
    if kind not in ("1", "2"):
        return None
    # the file's state in the index since the last commit, and in the work tree since
    _, letters, submodule, *_, name = record.split(" ", 8 if kind == "1" else 9)
    index, tree = letters[0], letters[1]
    old = next(more, "") if kind == "2" else None
    if index + tree == "DA":  # taken out of the index, and by `git add -N` half in it again
        return Entry(name, "modified", unlisted=True, staged=True, changed=True)
    status: GitFileStatus = "modified"
    if old is not None and tree == "D":  # what it was renamed to is gone
        name, old, status = old, None, "deleted"
    elif old is not None and index != "C":
        status = "renamed"
    elif "D" in (index, tree):
        status = "deleted"
    elif index in "AC" or tree == "A":
        status = "added"
    if status != "renamed":
        old = None
    moved = submodule.startswith("SC") and index == "."
    inner = submodule.startswith("S")
    staged, changed = index != ".", tree != "."
    return Entry(name, status, old, False, inner, moved, staged=staged, changed=changed)


def _dirty_submodules(git: Git, state: State) -> list[str]:
    """Return submodules that are not in ``state`` and have changes.

    Git would run itself in them and obey their git directories, so each gets a mirror of its own.
    Submodules outside the roots or of another user are left out, and submodules in submodules. Only
    a limited number is looked into.
    """
    if not os.path.lexists(f"{git.place.top}/.gitmodules"):
        return []  # which saves listing the index
    listed = git.done("ls-files", "--stage", "-z").out.split(b"\0")[:-1]
    modules = [entry.partition(b"\t")[2] for entry in listed if entry.startswith(b"160000 ")]
    names = [os.fsdecode(name) for name in modules[: limits.GIT_SUBMODULES_MAX]]
    deadline = time.monotonic() + limits.GIT_READ_SECONDS
    return [
        name
        for name in names
        if name not in state.entries and time.monotonic() < deadline and _is_dirty(git, name)
    ]


def _may_be_shown(git: Git, entry: Entry) -> bool:
    """Return whether a change is shown: not that of a submodule outside the roots."""
    return not (entry.moved and leads_out(git, entry.name))


def _is_dirty(git: Git, name: str) -> bool:
    path = f"{git.place.top}/{name}"
    try:
        place = repository_of(path, git.place.jail)
        if place.top != path:
            return False  # it is not checked out, and what was found is a repository around it
        with mirror.reading(place) as inner:
            return any(_may_be_shown(inner, one) for one in read(inner).entries.values())
    except BridgeError:
        return False


def _counts(git: Git, state: State) -> tuple[dict[str, tuple[int, int]], set[str]]:
    """Return lines added and removed since the last commit, and what is unread."""
    base = state.commit or empty_tree(git)
    command = ("diff", "--numstat", "-z", *DIFF_OPTIONS)
    found: dict[str, tuple[int, int]] = {}
    printed, unread = readable(git, [*command, "--no-renames", base], "diff-index", base)
    for counted in (one for part in printed for one in numstat(part)):
        before = found.get(counted.name, (0, 0))
        found[counted.name] = (before[0] + counted.additions, before[1] + counted.deletions)
    unlisted = [entry for entry in state.entries.values() if entry.unlisted]
    for entry in unlisted[:_COMPARED_MAX]:  # of which git counts the removal only
        try:
            counts = numstat(git(*command, f"{base}:{entry.name}", f"./{entry.name}"))
        except BridgeError:
            unread.add(entry.name)
            continue
        if counts:
            found[entry.name] = counts[0].additions, counts[0].deletions
        else:
            entry.status = "deleted"  # by the next commit of what is staged, if by nothing else
    renamed = [(entry.old, entry.name) for entry in state.entries.values() if entry.old is not None]
    if renamed and not unread:
        # Git may find other renames in the work tree than in the index; only those count that the
        # status names too.
        names = [name for pair in renamed for name in pair]
        asked = names if len(names) <= limits.GIT_PATHSPECS_MAX else []
        together = {
            (one.old, one.name): (one.additions, one.deletions)
            for one in numstat(git(*command, base, "--", *asked))
        }
        for old, name in renamed:
            gone, new = found.pop(old, (0, 0)), found.get(name, (0, 0))
            found[name] = together.get((old, name), (gone[0] + new[0], gone[1] + new[1]))
    return found, unread


def empty_tree(git: Git) -> str:
    """Return the id of the empty tree, which a first commit is compared with."""
    return git("hash-object", "-t", "tree", "--stdin").decode().strip()
