"""Commit all that is staged, or named files of the work tree (D10).

Everything is prepared in a copy of the index. The repository's own index stays as it is until the
commit is made, so a refusal, a failure or a power cut changes nothing. Then git writes the
committed entries into it, and nothing else.
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.resources import GitCommitSummary
from files_app.git import hooks, status
from files_app.git.patch import numstat
from files_app.git.paths import Names, Selection, tracked
from files_app.git.repository import leads_out
from files_app.git.sandbox import mirror
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Repository

log = structlog.get_logger("bridge.git")

_locks: Final[dict[str, threading.Lock]] = {}
# files in the git directory while an operation is in progress
_IN_PROGRESS: Final = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_TRIES: Final = 5  # somebody writes the index in the same moment; again and again is a script
_LOOK_SECONDS: Final = 0.02
_NAMED: Final = 3  # how many names an error repeats
_LOG: Final = ("log", "--max-count=1", "--no-show-signature", "--encoding=UTF-8")


def commit(
    place: Repository, message: str, files: list[str] | None, *, begun: datetime | None = None
) -> GitCommitSummary:
    """Commit with the repository's hooks; ``files`` None: all that is staged.

    ``begun``: set when a crashed process may already have made this commit, which it began then; if
    the last commit is this one, nothing is committed again (D31).

    Raises BridgeError GIT_ERROR with git's reason or a hook's, FILE_ACCESS_DENIED and
    FILE_INVALID_PATH for names; whatever is raised, the index is as it was.
    """
    if not message.strip():
        raise git_error("A commit needs a message.")
    if "\0" in message:
        raise git_error("A commit message cannot hold a NUL.")
    with _turn(place.common_dir), mirror.committing(place) as (git, made):
        _wait_for_index(place)
        branch, before = _head(git)
        _wait_for_index(place)  # again: another commit moves HEAD before it writes the index
        made.copy_index()
        snapshot = f"{git.directory}/index.before"
        if os.path.exists(git.index):
            shutil.copy2(git.index, snapshot)
        base: str | None
        if before and begun is not None and _is_last(git, before, message, begun):
            own, base = before, _commit_at(git, f"{before}^") or status.empty_tree(git)
        else:
            base = None if files is None else before or status.empty_tree(git)
            if files is not None:
                if any(os.path.lexists(f"{place.git_dir}/{name}") for name in _IN_PROGRESS):
                    raise git_error(
                        "During a merge, cherry-pick or revert some files alone cannot be"
                        " committed: commit all that is staged."
                    )
                _stage(git, Names(place), files, before)
            _check_staged(git, files)
            hooks.install(made, git.environment, branch, before)
            own = _make(git, message, branch, before)
        _update_index(git, snapshot, base, own)
        return _summary(git, own)


@contextlib.contextmanager
def _turn(common_dir: str) -> Iterator[None]:
    """Allow one commit at a time in a repository."""
    lock = _locks.setdefault(common_dir, threading.Lock())
    if not lock.acquire(timeout=limits.GIT_COMMIT_SECONDS):
        raise git_error("Another commit in this repository takes too long.")
    try:
        yield
    finally:
        lock.release()


def _wait_for_index(place: Repository) -> None:
    """Wait for another git that writes the index; GIT_ERROR if it takes long."""
    deadline = time.monotonic() + limits.GIT_LOCK_SECONDS
    while os.path.lexists(f"{place.git_dir}/index.lock"):
        if time.monotonic() > deadline:
            raise git_error(
                "Another git seems to work in this repository: .git/index.lock is there. If"
                " nothing runs, remove it."
            )
        time.sleep(_LOOK_SECONDS)


def _head(git: Git) -> tuple[str, str]:
    """Return the branch of HEAD, "HEAD" where it is detached, and the last commit."""
    branch = git.done("symbolic-ref", "--quiet", "HEAD", good=(0, 1)).out
    return os.fsdecode(branch).strip() or "HEAD", _commit_at(git, "HEAD")


def _commit_at(git: Git, name: str) -> str:
    done = git.done("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", good=(0, 1))
    return done.out.decode().strip()


def _stage(git: Git, names: Names, files: list[str], before: str) -> None:
    """Fill the mirror's index from the commit ``before``, empty for none, and these files.

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
    _check_files(git, names, chosen, meant)
    gone = {entry.name for entry in meant if entry.status == "deleted"}
    # a status names them as one change
    gone |= {entry.old for entry in meant if entry.old is not None}
    gone -= {entry.name for entry in meant if entry.status == "untracked"}
    there = [entry.name for entry in meant if entry.name not in gone and entry.name[-1:] != "/"]
    git(*(("read-tree", "--reset", before) if before else ("read-tree", "--empty")))
    _add_to_index(git, gone, "--force-remove")
    _add_to_index(git, there, "--add", "--remove", "--replace")


def _add_to_index(git: Git, files: Iterable[str], *how: str) -> None:
    stdin = b"".join(os.fsencode(name) + b"\0" for name in files)
    if stdin:
        one_sync = ("-c", "core.fsyncMethod=batch")  # for all objects
        command = (*one_sync, "update-index", *how, "-z", "--stdin")
        git(*command, stdin=stdin, seconds=limits.GIT_COMMIT_SECONDS)


def _check_files(git: Git, names: Names, chosen: Selection, meant: list[status.Entry]) -> None:
    if conflicts := [entry.name for entry in meant if entry.conflict]:
        raise git_error(f"In conflict: {_list(names, conflicts)}.")
    repositories = [entry.name for entry in meant if entry.name.endswith("/")]
    if inner := [name for name in repositories if name.rstrip("/") in chosen.given]:
        raise git_error(
            f"A repository of its own, which cannot be committed as a file: {_list(names, inner)}."
        )
    if any(names.secret(entry.name) for entry in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A file is a link to what is not to be seen.")
    if any(entry.submodule and leads_out(git, entry.name) for entry in meant):
        raise BridgeError("FILE_ACCESS_DENIED", "A submodule lies outside the allowed roots.")


def _list(names: Names, found: list[str]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(names.to_client_name(name) for name in found[:_NAMED]) + more


def _check_staged(git: Git, files: list[str] | None) -> None:
    """Raise GIT_ERROR when there is nothing to commit.

    Checked first, because git would look into submodules to say so, and hooks would run for
    nothing.
    """
    if os.path.lexists(f"{git.place.git_dir}/MERGE_HEAD"):
        return  # a merge is committed even if it changes nothing
    if git.done("diff", "--cached", "--quiet", *status.DIFF_OPTIONS, good=(0, 1)).code == 0:
        why = "nothing is staged" if files is None else "these files have no changes"
        raise git_error(f"Nothing to commit: {why}.")


def _make(git: Git, message: str, branch: str, before: str) -> str:
    """Commit the index; return the commit, whatever happens after it."""
    try:
        command = ("commit", "--quiet", "--no-gpg-sign", "--cleanup=whitespace", "--file=-")
        git(*command, stdin=message.encode(), seconds=limits.GIT_COMMIT_SECONDS)
    except BridgeError as error:
        if not hooks.commit_made(git.directory):
            if _head(git) == (branch, before):
                raise
            text = "Somebody else committed or switched branches meanwhile; this was not committed."
            raise git_error(f"{text}\n{error.message}") from None
        log.warning("git_commit_ended_late", repository=git.place.top, reason=error.message)
    # a hook may have amended it, and somebody may have committed on top of it
    listed = git.done("rev-list", "--parents", "--max-count=1", "HEAD", "--", good=(0, 128))
    head, *parents = listed.out.decode().split() or [""]
    is_own = before in parents if before else not parents
    return head if head and is_own else hooks.commit_made(git.directory)


def _is_last(git: Git, last: str, message: str, begun: datetime) -> bool:
    """Return whether the last commit was made since then, with this message."""
    # Not by its files: others may have staged more since, which must not be committed for that.
    logged = git(*_LOG, "--format=%ct %B", last, "--").decode("utf-8", "replace")
    made, _, body = logged.partition(" ")
    cleaned = git("stripspace", stdin=message.encode()).decode("utf-8", "replace")
    return (
        made.isdigit() and int(made) >= int(begun.timestamp()) and body.strip() == cleaned.strip()
    )


def _update_index(git: Git, snapshot: str, base: str | None, own: str) -> None:
    """Bring what the commit ``own`` changed into the repository's own index, as HEAD has it.

    ``snapshot`` is the index as it was before; ``base``: the commit under the named files, None
    when the whole index was committed. Changes that others staged meanwhile stay staged. The commit
    is made, so a failure here is logged and does not undo it.
    """
    names_only = ("--name-only", "-z", "--no-renames")
    try:
        if base is None:
            changed = git("diff-index", "--cached", *names_only, own, "--", index=snapshot)
        else:
            changed = git("diff-tree", "-r", *names_only, base, own, "--")
        for tries_left in reversed(range(_TRIES if changed else 0)):
            _wait_for_index(git.place)
            done = git.done(
                *("reset", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul"),
                stdin=changed,
                index=f"{git.place.git_dir}/index",
                good=(0, 128) if tries_left else (0,),  # 128: another git was faster
                seconds=limits.GIT_COMMIT_SECONDS,
            )
            if done.code == 0:
                break
    except (BridgeError, OSError) as error:
        log.warning("git_index_not_updated", repository=git.place.top, reason=str(error))


def _summary(git: Git, own: str) -> GitCommitSummary:
    """Sum up the commit; a merge is compared with its first parent."""
    logged = git(*_LOG, "--format=%H %s", own, "--").decode("utf-8", "replace")
    commit, _, subject = logged.partition(" ")
    shown = ("show", "--format=", "--numstat", "-z", "-m", "--first-parent", "--no-show-signature")
    counted = numstat(git(*shown, *status.DIFF_OPTIONS, own, "--"))
    return GitCommitSummary(
        hash=commit,
        summary=subject.rstrip("\n"),
        files_changed=len(counted),
        additions=sum(file.additions for file in counted),
        deletions=sum(file.deletions for file in counted),
    )
