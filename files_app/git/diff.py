"""Answer git_diff with the changes line by line (SPEC Git resources; D10)."""

from collections import Counter
from dataclasses import replace
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.protocol.repository_messages import GitDiffResponse
from bridge_project.protocol.resources import DiffFile
from files_app import charset
from files_app.git import as_git, patch, untracked
from files_app.git.partly import RAW, readable
from files_app.git.patch import Budget, Change, Lists
from files_app.git.paths import Names, Selection, tracked
from files_app.git.repository import leads_out
from files_app.git.sandbox import mirror
from files_app.git.sandbox.git import Git
from files_app.git.settings import effective, filtered
from files_app.git.status import DIFF_OPTIONS, Trusted, empty_tree
from sessions_app.agents.diffs import Change as Compared
from sessions_app.agents.diffs import diff_of_texts
from sessions_app.working_directory import Repository

_SUBMODULE: Final = "160000"
_FILE_BYTES: Final = 300  # what a file costs besides its names
_LISTS: Final = ("diff", "--raw", "--numstat", "-z", "--no-abbrev", *DIFF_OPTIONS)


def diff(
    place: Repository,
    session_id: str,
    files: list[str] | None,
    *,
    cached: bool,
    trusted: Trusted = lambda place: False,
) -> GitDiffResponse:
    """Compare work tree and index, or ``cached``: the index and the last commit.

    ``files``: only these; a directory means all files in it, and untracked files are shown as new.
    Raises BridgeError FILE_NOT_FOUND for a file that neither git nor the work tree has, and the
    errors of ``mirror.reading`` and ``Names.to_git_name``.
    """
    names = Names(place)
    chosen = None if files is None else Selection(names, files)
    # a file in conflict is compared with our side: the answer has only two
    sides = "--cached" if cached else "--ours"
    known: set[str] = set()  # whose lines are read
    settings = effective(place)
    with mirror.reading(place, settings) as git:
        listed = _listed(git, sides)
        unsure = [] if cached else filtered(git, settings)
        answer = _Answer(names)
        if unsure and trusted(place):
            for name in unsure:
                listed.pop(name, None)
            listed |= {one.name: one for one in as_git.lines(place, unsure, answer.budget)}
            known, unsure = set(unsure), []
        for name in unsure:
            change = listed.setdefault(name, Change(name, name, "modified"))
            change.unread = change.filtered = True
            change.additions = change.deletions = 0
        changes = [
            change
            for change in listed.values()
            if not names.secret(change.name)
            and not (not cached and change.new_mode == _SUBMODULE and leads_out(git, change.name))
        ]
        new: list[str] = []
        if chosen is not None:
            new = untracked.listed(git) if not cached else []
            changes, new = _choose(git, chosen, changes, new)
        changes = answer.fitting(changes)
        added = answer.fitting([Change(name, name, "untracked") for name in new])
        unread = [change for change in changes if change.name not in known]
        _read_lines(git, unread, answer.budget, sides, all_of_them=chosen is None and not known)
        binary = [change for change in changes if change.binary and not change.unread]
        for change in binary[: limits.GIT_ENCODED_FILES]:
            _read_encoded(git, change, answer.budget)
        for change in changes:
            answer.add(change)
        for change in added:
            if _read_new(git, change, answer.budget):
                answer.add(change)
    return GitDiffResponse(
        session_id=session_id, files=answer.files, truncated=answer.truncated or None
    )


def _listed(git: Git, sides: str) -> dict[str, Change]:
    """Return the changes by name, those that cannot be read too."""
    try:
        return Lists(git(*_LISTS, sides)).by_name
    except BridgeError:
        raw = ["diff-files"]
        if sides == "--cached":
            head = git.done("rev-parse", "--verify", "--quiet", "HEAD", good=(0, 1)).out.decode()
            raw = ["diff-index", "--cached", head.strip() or empty_tree(git)]
        found = Lists(git(*raw[:1], *RAW, *raw[1:], "--")).by_name
        printed, unread = readable(git, [*_LISTS, "--no-renames", sides], *raw)
        for part in printed:
            found |= Lists(part).by_name
        for name in unread.intersection(found):
            found[name].unread = True
        return found


def _choose(
    git: Git, chosen: Selection, changes: list[Change], new: list[str]
) -> tuple[list[Change], list[str]]:
    """Return the changed and the new files that a client named."""
    known = {name for change in changes for name in (change.name, change.old)}.union(new)
    meant = set(chosen.find(known))
    unknown = [name for name in chosen.unknown(known) if not untracked.exists(git, name)]
    if unknown and not set(chosen.unknown(tracked(git))).isdisjoint(unknown):
        raise BridgeError("FILE_NOT_FOUND", "The repository has no such file.")
    return [change for change in changes if change.name in meant or change.old in meant], [
        name for name in new if name in meant
    ]


def _read_lines(
    git: Git, changes: list[Change], budget: Budget, sides: str, *, all_of_them: bool
) -> None:
    """Read these changes' lines, as far as the budget goes."""
    with_lines = [change for change in changes if change.has_lines and not change.unread]
    if not with_lines:
        return
    # both names, or git would not see that one became the other
    paths = {name: None for change in changes for name in (change.old, change.name)}
    asked = [] if all_of_them or len(paths) > limits.GIT_PATHSPECS_MAX else list(paths)
    if any(change.unread for change in changes):  # git would stop at those
        asked = [change.name for change in with_lines][: limits.GIT_PATHSPECS_MAX]
    command = (*_LISTS, "--patch", "--no-color", sides, "--", *asked)
    done = git.done(*command, max_bytes=limits.GIT_PATCH_MAX_BYTES)
    lists = Lists(done.out, cut=done.cut)
    patch.read_lines(lists, paths, budget, cut=done.cut)
    found = lists.by_name
    for change in with_lines:
        if (same := found.get(change.name)) is not None:
            change.hunks, change.cut, change.charset = same.hunks, same.cut, same.charset
        else:
            change.cut = change.has_lines


def _read_new(git: Git, change: Change, budget: Budget) -> bool:
    """Read an untracked file as if it were added; False if it is not one any more."""
    found = untracked.read(git, change.name)
    if found is None:
        return False
    if found.binary and not found.cut and (known := charset.decode(found.content)):
        found, change.charset = replace(found, content=known.text.encode()), known.charset
    change.new_mode, change.binary, change.additions = found.mode, found.binary, found.lines
    if found.lines:
        change.hunks, whole, encoding = patch.read_hunks([*found.hunk()], budget)
        change.cut, change.charset = found.cut or not whole, change.charset or encoding
    return True


def _read_encoded(git: Git, change: Change, budget: Budget) -> None:
    """Compare a file that git takes for binary, if it is text of UTF-16 or UTF-32."""
    content = _new_content(git, change)
    new = None if content is None else charset.decode(content)
    old = None if new is None else charset.decode(_stored(git, change.old_id))
    if new is None or old is None or not (old.charset or new.charset):
        return
    lines = diff_of_texts([Compared(change.name, old.text, new.text)])
    if lines is None:
        return
    change.hunks, whole, _ = patch.read_hunks(lines.encode().split(b"\n")[:-1], budget)
    change.binary, change.cut, change.charset = False, not whole, new.charset or old.charset
    kinds = Counter(line.type for hunk in change.hunks for line in hunk.lines)
    change.additions, change.deletions = kinds["added"], kinds["removed"]


def _new_content(git: Git, change: Change) -> bytes | None:
    if change.new_id.strip("0") or change.status == "deleted":
        return _stored(git, change.new_id)
    found = untracked.read(git, change.name, limits.GIT_ENCODED_BYTES)
    return None if found is None or found.cut else found.content


def _stored(git: Git, id_: str) -> bytes:
    """Return what git has stored; a NUL, which is no text, for what it does not give."""
    if not id_.strip("0"):
        return b""
    with Ignoring("GIT_ERROR"):
        done = git.done("cat-file", "blob", id_, max_bytes=limits.GIT_ENCODED_BYTES)
        if not done.cut:
            return done.out
    return b"\0"


class _Answer:
    """Collect the files of the answer, within its budget."""

    def __init__(self, names: Names) -> None:
        self.names = names
        most = min(limits.GIT_DIFF_MAX_BYTES, conf.max_message_bytes)
        self.budget = Budget(most - limits.ENVELOPE_BYTES, limits.GIT_DIFF_MAX_LINES)
        self.files: list[DiffFile] = []
        self.truncated = False

    def fitting(self, changes: list[Change]) -> list[Change]:
        """Return the first changes whose names fit; deduct those from the budget."""
        for at, change in enumerate(changes):
            longest = max(map(len, map(self.names.to_client_name, (change.name, change.old))))
            # three names, at worst six bytes a character
            if not self.budget.take(_FILE_BYTES + 18 * longest):
                self.truncated = True
                return changes[:at]
        return changes

    def add(self, change: Change) -> None:
        modes: dict[str, str] = {}
        if change.old_mode != change.new_mode:
            modes = {"old_mode": change.old_mode, "new_mode": change.new_mode}
        modes = {name: mode for name, mode in modes.items() if mode != patch.NO_MODE}
        self.truncated = self.truncated or change.cut
        self.files.append(
            DiffFile(
                path=self.names.to_client_name(change.name),
                old_path=self.names.to_client_name(change.old),
                new_path=self.names.to_client_name(change.name),
                status=change.status,
                additions=change.additions,
                deletions=change.deletions,
                hunks=change.hunks,
                binary=change.binary or None,
                truncated=change.cut or None,
                counted=False if change.unread else None,
                filtered=change.filtered or None,
                charset=change.charset or None,
                **modes,
            )
        )
