"""The repository's own index: it changes only when a commit has been made, at once, under git's own
lock.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from files_app.git.sandbox.git import Git
from files_app.git.sandbox.mirror import copy_file
from sessions_app.working_directory import Place

log = structlog.get_logger("bridge.git")

_TRIES: Final = 5  # somebody stages something in the same moment; again and again is a script
_LOOK_SECONDS: Final = 0.02
_MODE: Final = 0o644


def wait_until_free(place: Place) -> None:
    """Wait for another git that writes the index. Raises BridgeError GIT_ERROR when it takes too
    long.
    """
    deadline = time.monotonic() + limits.GIT_LOCK_SECONDS
    while os.path.lexists(f"{place.git_dir}/index.lock"):
        if time.monotonic() > deadline:
            raise BridgeError(
                "GIT_ERROR",
                "Another git seems to work in this repository: .git/index.lock is there. If nothing runs, remove it.",
            )
        time.sleep(_LOOK_SECONDS)


def adopt(git: Git, snapshot: str, base: str | None) -> None:
    """Let the index take over what was committed.

    ``snapshot`` is the index as it was before; ``base``: the tree that named files were committed
    on, None where all of the index was committed. What others have staged meanwhile stays. The
    commit is made, so a failure here is logged and does not undo it.
    """
    try:
        for _ in range(_TRIES):
            draft = f"{git.directory}/index.draft"
            now = _copy(git, f"{git.directory}/index.now")
            if base is None and _same(now, snapshot):
                shutil.copy2(git.index, draft)
            else:
                _take_over(git, now, draft, _committed(git, snapshot, base))
            if _replace(git.place, git.jail, draft, now):
                return
        log.warning(
            "git_index_not_updated", repository=git.place.top, reason="it changes all the time"
        )
    except (BridgeError, OSError) as error:
        log.warning("git_index_not_updated", repository=git.place.top, reason=str(error))


def _copy(git: Git, to: str) -> str:
    """The index as it is now; no file when there is none."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(to)
    try:
        copy_file(git.jail, f"{git.place.git_dir}/index", to)
    except BridgeError as error:
        if error.code != "FILE_NOT_FOUND":
            raise
    return to


def _same(one: str, other: str) -> bool:
    if not os.path.exists(one) or not os.path.exists(other):
        return os.path.exists(one) == os.path.exists(other)
    return filecmp.cmp(one, other, shallow=False)


def _committed(git: Git, snapshot: str, base: str | None) -> bytes:
    """The entries that the commit has and the index before it had not, as ``git update-index
    --index-info`` reads them.
    """
    if base is None:
        raw = git(
            "diff-index",
            "--cached",
            "-R",
            "--raw",
            "-z",
            "--no-abbrev",
            "--no-renames",
            "HEAD",
            index=snapshot,
        )
    else:
        raw = git(
            "diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", base, "HEAD^{tree}"
        )
    fields = raw.split(b"\0")[:-1]
    return b"".join(
        _entry(head, name) for head, name in zip(fields[::2], fields[1::2], strict=True)
    )


def _entry(head: bytes, name: bytes) -> bytes:
    _, mode, _, commit, _ = head.split(b" ")
    return b"%s %s\t%s\0" % (mode.lstrip(b"0") or b"0", commit, name)


def _take_over(git: Git, now: str, draft: str, entries: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    if os.path.exists(now):
        shutil.copy2(now, draft)
    git(
        "update-index",
        "--replace",
        "-z",
        "--index-info",
        stdin=entries,
        index=draft,
        seconds=limits.GIT_COMMIT_SECONDS,
    )
    git.done(
        "update-index",
        "-q",
        "--unmerged",
        "--refresh",
        index=draft,
        good=(0, 1),
        seconds=limits.GIT_COMMIT_SECONDS,
    )  # so that the next status need not read these files again


def _replace(place: Place, jail: Jail, draft: str, now: str) -> bool:
    """Put the draft in the index's place, unless the index is no longer what the draft was made
    from.
    """
    with _locked(place, jail) as path:
        current = f"{now}.again"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(current)
        mode = _MODE
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(path).st_mode & 0o777
            shutil.copy2(path, current)
        if not _same(current, now):
            return False
        # Not by renaming the lock itself: that must stay until it is given up, or another git could
        # take it in between.
        handle, ready = tempfile.mkstemp(prefix="index.", dir=os.path.dirname(path))
        os.close(handle)
        try:
            # with its time, by which git knows what it must look at again
            shutil.copy2(draft, ready)
            os.chmod(ready, mode)
            os.replace(ready, path)
        except BaseException:
            os.unlink(ready)
            raise
        return True


@contextlib.contextmanager
def _locked(place: Place, jail: Jail) -> Iterator[str]:
    """Hold git's lock on the index; the index's real path."""
    path = f"{place.git_dir}/index"
    if os.path.lexists(path):
        path = jail.resolve(path)
    lock, deadline = f"{path}.lock", time.monotonic() + limits.GIT_LOCK_SECONDS
    while True:
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                raise BridgeError("GIT_ERROR", "Another git holds the index.") from None
            time.sleep(_LOOK_SECONDS)
    try:
        yield path
    finally:
        os.unlink(lock)
