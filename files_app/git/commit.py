"""A commit (D10): of all that is staged, or of named files as they are in the work tree.

Everything is prepared in a copy of the index: until the commit is made, nothing in the repository's
own index changes, so that a refusal, a failure or a power cut leaves staged what was staged. Then
the index takes over what was committed, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from bridge_project.protocol.resources import GitCommitSummary
from files_app.git import hooks, index
from files_app.git.paths import Names
from files_app.git.sandbox import mirror
from files_app.git.sandbox.git import Git
from files_app.git.staging import stage
from files_app.git.status import DIFF_OPTIONS, empty_tree, numstat
from sessions_app.working_directory import Place

log = structlog.get_logger("bridge.git")

_locks: Final[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)
_guard: Final = threading.Lock()
# What is in progress while these are there, as git names it.
_IN_PROGRESS: Final = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
}


def commit(
    place: Place,
    jail: Jail,
    message: str,
    files: list[str] | None,
    *,
    begun: datetime | None = None,
) -> GitCommitSummary:
    """Commit, with the repository's commit hooks; ``files`` null: all that is staged.

    ``begun``: a process that died had begun with this commit then; if the last commit is it,
    nothing more is committed (D31).

    Raises BridgeError GIT_ERROR with git's reason or a hook's, FILE_ACCESS_DENIED and
    FILE_INVALID_PATH for names; whatever is raised, the index is as it was.
    """
    if not message.strip() or "\0" in message:
        raise BridgeError(
            "GIT_ERROR",
            "A commit needs a message."
            if not message.strip()
            else "A commit message cannot hold a NUL.",
        )
    with _turn(place.common_dir), mirror.committing(place, jail) as (git, made):
        index.wait_until_free(place)
        before = _head(git)
        snapshot = f"{git.directory}/index.before"
        if os.path.exists(git.index):
            shutil.copy2(git.index, snapshot)
        if begun is not None and _is_last(git, message, begun):
            index.adopt(git, snapshot, None if files is None else _parent(git))
            return _summary(git)
        base = None
        if files is not None:
            _check_alone(place)
            base = before or empty_tree(git)
            stage(git, Names(place, jail), files, before)
        _check_staged(git, files)
        hooks.install(made, git.environment)
        _make(git, message, before)
        index.adopt(git, snapshot, base)
        return _summary(git)


@contextlib.contextmanager
def _turn(common_dir: str) -> Iterator[None]:
    """One commit at a time in a repository."""
    with _guard:
        lock = _locks[common_dir]
    if not lock.acquire(timeout=limits.GIT_COMMIT_SECONDS):
        raise BridgeError("GIT_ERROR", "Another commit in this repository takes too long.")
    try:
        yield
    finally:
        lock.release()


def _head(git: Git) -> str:
    """The commit that HEAD is at; empty before the first."""
    return (
        git.done("rev-parse", "--verify", "--quiet", "HEAD^{commit}", good=(0, 1))
        .out.decode()
        .strip()
    )


def _check_alone(place: Place) -> None:
    """Named files cannot conclude what was begun with all of them."""
    for name, what in _IN_PROGRESS.items():
        if os.path.lexists(f"{place.git_dir}/{name}"):
            raise BridgeError(
                "GIT_ERROR",
                f"Some files alone cannot be committed during {what}: commit all that is staged.",
            )


def _check_staged(git: Git, files: list[str] | None) -> None:
    """Whether there is anything to commit. Asked first, because git would look into submodules to
    say so, and hooks would run for nothing.
    """
    if os.path.lexists(f"{git.place.git_dir}/MERGE_HEAD"):
        return  # a merge is committed even if it changes nothing
    if (
        git.done(
            "diff", "--cached", "--quiet", "--ignore-submodules=dirty", "--no-ext-diff", good=(0, 1)
        ).code
        == 0
    ):
        raise BridgeError(
            "GIT_ERROR",
            "Nothing to commit: nothing is staged."
            if files is None
            else "Nothing to commit: these files have no changes.",
        )


def _make(git: Git, message: str, before: str) -> None:
    """Have git commit what is in the index. One that was made is made, even if what came after it
    failed or took too long.
    """
    try:
        git(
            "commit",
            "--quiet",
            "--no-gpg-sign",
            "--cleanup=whitespace",
            "--file=-",
            stdin=message.encode(),
            seconds=limits.GIT_COMMIT_SECONDS,
        )
    except BridgeError as error:
        if not _was_made(git, before):
            raise
        log.warning("git_commit_ended_late", repository=git.place.top, reason=error.message)


def _is_last(git: Git, message: str, begun: datetime) -> bool:
    """Whether the last commit was made since then, with this message."""
    done = git.done(
        "log",
        "--max-count=1",
        "--no-show-signature",
        "--encoding=UTF-8",
        "--format=%ct %B",
        "HEAD",
        good=(0, 128),
    )
    made, _, body = done.out.decode("utf-8", "replace").partition(" ")
    cleaned = git("stripspace", stdin=message.encode()).decode("utf-8", "replace")
    return (
        made.isdigit() and int(made) >= int(begun.timestamp()) and body.strip() == cleaned.strip()
    )


def _parent(git: Git) -> str:
    return git.done(
        "rev-parse", "--verify", "--quiet", "HEAD^", good=(0, 1)
    ).out.decode().strip() or empty_tree(git)


def _was_made(git: Git, before: str) -> bool:
    parents = (
        git.done("rev-list", "--parents", "--max-count=1", "HEAD", good=(0, 128))
        .out.decode()
        .split()
    )
    return (
        bool(parents)
        and parents[0] != before
        and (before in parents[1:] if before else len(parents) == 1)
    )


def _summary(git: Git) -> GitCommitSummary:
    """What has been committed; for a merge, compared with what was there before."""
    commit, _, subject = (
        git(
            "log",
            "--max-count=1",
            "--no-show-signature",
            "--encoding=UTF-8",
            "--format=%H %s",
            "HEAD",
        )
        .decode("utf-8", "replace")
        .partition(" ")
    )
    counted = numstat(
        git(
            "show",
            "--format=",
            "--numstat",
            "-z",
            "-m",
            "--first-parent",
            "--no-show-signature",
            *DIFF_OPTIONS,
            "HEAD",
        )
    )
    return GitCommitSummary(
        hash=commit,
        summary=subject.rstrip("\n"),
        files_changed=len(counted),
        additions=sum(file.additions for file in counted),
        deletions=sum(file.deletions for file in counted),
    )
