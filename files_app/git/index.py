"""Bring a commit into an index that somebody else has changed meanwhile."""

import os
import time
from typing import Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.disk_threads import bounded_otherwise
from bridge_project.kernel.errors import BridgeError
from files_app.git.plain import Plain
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Repository

log = structlog.get_logger("bridge.git")

_TRIES: Final = 5  # another git may write the index at the same moment
_LOCK_POLL_SECONDS: Final = 0.02


def wait_for_index(place: Repository) -> None:
    """Wait for another git that writes the index; GIT_ERROR if it takes long."""
    deadline = time.monotonic() + limits.GIT_LOCK_SECONDS
    while os.path.lexists(f"{place.git_dir}/index.lock"):
        if time.monotonic() > deadline:
            raise git_error(
                "Another git seems to work in this repository: .git/index.lock is there. If"
                " nothing runs, remove it."
            )
        with bounded_otherwise():
            time.sleep(_LOCK_POLL_SECONDS)


def update_index(git: Git, snapshot: str, base: str | None, own: str, named: set[str]) -> None:
    """Write what the commit ``own`` changed into the repository's own index.

    ``snapshot`` is the index as it was before; ``base``: the commit under the ``named`` files, None
    when the whole index was committed. What was staged of a named file does not stay staged, also
    where the commit left the file as it was. Changes that others staged meanwhile stay staged. The
    commit is made, so a failure here is logged and does not undo it.
    """
    raw = ("--raw", "-z", "--no-abbrev", "--no-renames")
    plain = Plain(git.place)
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
            wait_for_index(git.place)
            command = ("update-index", "--replace", "-z", "--index-info")
            # 128: another git was faster
            done = plain.done(*command, stdin=entries, good=(0, 128) if tries_left else (0,))
            if done.code == 0:
                break
        # so that the next status need not read these files again
        plain.done("update-index", "-q", "--unmerged", "--refresh", good=(0, 1, 128))
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
