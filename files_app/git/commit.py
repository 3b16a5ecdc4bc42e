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
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.resources import GitCommitSummary
from files_app.git import hooks
from files_app.git.patch import numstat
from files_app.git.paths import Names
from files_app.git.sandbox import mirror
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from files_app.git.staging import stage
from files_app.git.status import DIFF_OPTIONS, empty_tree
from sessions_app.working_directory import Repository

log = structlog.get_logger("bridge.git")

_locks: Final[dict[str, threading.Lock]] = {}
# file in the git directory → the operation in progress while it exists, as git names it
_IN_PROGRESS: Final = {
    "MERGE_HEAD": "A merge",
    "CHERRY_PICK_HEAD": "A cherry-pick",
    "REVERT_HEAD": "A revert",
}
_TRIES: Final = 5  # another git may write the index at the same moment
_LOCK_POLL_SECONDS: Final = 0.02
_LOG: Final = ("log", "--max-count=1", "--no-show-signature", "--encoding=UTF-8")


def commit(
    place: Repository, message: str, files: list[str] | None, *, begun: datetime | None = None
) -> GitCommitSummary:
    """Commit with the repository's hooks; ``files`` None: all that is staged.

    ``begun``: set when a crashed process may already have made this commit, which it began then; if
    the last commit is this one, nothing is committed again (D31).

    Raises BridgeError GIT_ERROR with git's reason or a hook's, FILE_ACCESS_DENIED and
    FILE_INVALID_PATH for names. Only a finished commit changes the index.
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
        named: set[str] = set()
        if before and begun is not None and _is_last(git, before, message, begun):
            own, base = before, _commit_at(git, f"{before}^") or empty_tree(git)
        else:
            found = (
                what
                for name, what in _IN_PROGRESS.items()
                if os.path.lexists(f"{place.git_dir}/{name}")
            )
            operation = next(found, None)
            base = None if files is None or operation else before or empty_tree(git)
            if files is not None:
                named = stage(git, Names(place), files, before, operation)
            _check_staged(git, files)
            expected = before or "0" * len(empty_tree(git))
            hooks.install(made, git.environment, branch, expected)
            own = _make(git, message, branch, before)
        _update_index(git, snapshot, base, own, named)
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
        time.sleep(_LOCK_POLL_SECONDS)


def _head(git: Git) -> tuple[str, str]:
    """Return the branch of HEAD, "HEAD" where it is detached, and the last commit."""
    branch = git.done("symbolic-ref", "--quiet", "HEAD", good=(0, 1)).out
    return os.fsdecode(branch).strip() or "HEAD", _commit_at(git, "HEAD")


def _commit_at(git: Git, name: str) -> str:
    done = git.done("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", good=(0, 1))
    return done.out.decode().strip()


def _check_staged(git: Git, files: list[str] | None) -> None:
    """Raise GIT_ERROR when there is nothing to commit.

    Checked first, because git would look into submodules to say so, and hooks would run for
    nothing.
    """
    if os.path.lexists(f"{git.place.git_dir}/MERGE_HEAD"):
        return  # a merge is committed even if it changes nothing
    if git.done("diff", "--cached", "--quiet", *DIFF_OPTIONS, good=(0, 1)).code == 0:
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


def _update_index(git: Git, snapshot: str, base: str | None, own: str, named: set[str]) -> None:
    """Write what the commit ``own`` changed into the repository's own index.

    ``snapshot`` is the index as it was before; ``base``: the commit under the ``named`` files, None
    when the whole index was committed. What was staged of a named file does not stay staged, also
    where the commit left the file as it was. Changes that others staged meanwhile stay staged. The
    commit is made, so a failure here is logged and does not undo it.
    """
    index = f"{git.place.git_dir}/index"
    raw = ("--raw", "-z", "--no-abbrev", "--no-renames")
    try:
        staged = git("diff-index", "--cached", "-R", *raw, own, "--", index=snapshot)
        changed = _by_name(staged)
        if base is not None:
            changed = {name: one for name, one in changed.items() if os.fsdecode(name) in named}
            changed |= _by_name(git("diff-tree", "-r", *raw, base, own, "--"))
        on_top = git.done("merge-base", "--is-ancestor", own, "HEAD", good=(0, 1, 128)).code == 0
        later = _by_name(git("diff-tree", "-r", *raw, own, "HEAD", "--")) if on_top else {}
        # what others have committed on top must not look like a staged revert
        changed |= {name: head for name, head in later.items() if name in changed}
        entries = b"".join(_entry(head, name) for name, head in changed.items())
        for tries_left in reversed(range(_TRIES if entries else 0)):
            _wait_for_index(git.place)
            done = git.done(
                *("update-index", "--replace", "-z", "--index-info"),
                stdin=entries,
                index=index,
                good=(0, 128) if tries_left else (0,),  # 128: another git was faster
                seconds=limits.GIT_COMMIT_SECONDS,
            )
            if done.code == 0:
                break
        # so that the next status need not read these files again
        refresh = ("update-index", "-q", "--unmerged", "--refresh")
        git.done(*refresh, index=index, good=(0, 1, 128), seconds=limits.GIT_COMMIT_SECONDS)
    except (BridgeError, OSError) as error:
        log.warning("git_index_not_updated", repository=git.place.top, reason=str(error))


def _by_name(listed: bytes) -> dict[bytes, bytes]:
    """Return the records of ``--raw`` by the file's name."""
    fields = listed.split(b"\0")[:-1]
    return dict(zip(fields[1::2], fields[::2], strict=True))


def _entry(head: bytes, name: bytes) -> bytes:
    """Turn a record of ``--raw`` into one of ``--index-info``."""
    _, mode, _, commit, _ = head.split(b" ")
    return b"%s %s\t%s\0" % (mode.lstrip(b"0") or b"0", commit, name)


def _summary(git: Git, own: str) -> GitCommitSummary:
    """Sum up the commit; a merge is compared with its first parent."""
    logged = git(*_LOG, "--format=%H %s", own, "--").decode("utf-8", "replace")
    commit, _, subject = logged.partition(" ")
    shown = ("show", "--format=", "--numstat", "-z", "-m", "--first-parent", "--no-show-signature")
    counted = numstat(git(*shown, *DIFF_OPTIONS, own, "--"))
    return GitCommitSummary(
        hash=commit,
        summary=subject.rstrip("\n"),
        files_changed=len(counted),
        additions=sum(file.additions for file in counted),
        deletions=sum(file.deletions for file in counted),
    )
