"""Commit by plain git in the user's own repository (D10, D63).

Git works on a copy of the index, as it does itself when files are named. So a commit that is not
made leaves the index as it was, to the byte, and what somebody stages meanwhile stays staged. When
it is made, the copy takes the index's place, or its changes are added to what stands there now.

Hooks are told where the index is, and everything that they call: with a path from the top, as at
the machine, for it means another one in each repository. A suite of tests that makes repositories
of its own would fill ours by an absolute path, and git would commit that.
"""

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.disk_threads import bounded_otherwise
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import shown
from bridge_project.protocol.resources import GitCommitSummary
from files_app.git import status
from files_app.git.facts import head_of, head_ref, operation
from files_app.git.index import update_index, wait_for_index
from files_app.git.made import ACTION, LOG, Attempt, branches, earlier, parent, wait_for_left
from files_app.git.patch import numstat
from files_app.git.paths import Names
from files_app.git.plain import Plain, batch_ssh
from files_app.git.sandbox import mirror
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from files_app.git.settings import Effective, effective, last
from files_app.git.staging import Chosen, choose, encoded
from files_app.git.status import DIFF_OPTIONS, empty_tree
from sessions_app.working_directory import Repository

log = structlog.get_logger("bridge.git")

_locks: Final[dict[str, threading.Lock]] = {}
_COPY: Final = "index.bridge-"  # in the git directory, then the request's id
MOVED_ON: Final = "The repository has moved on"
# what may stand after a commit → how it goes on; of a patch that is committed nothing is left
_GOES_ON: Final = {
    **dict.fromkeys(("rebase", "cherry-pick", "revert"), "--continue"),
    "am": "--skip",
}
_LISTED_MAX: Final = 200  # names in an answer besides the commit's own


def commit(
    place: Repository,
    message: str,
    files: list[str] | None,
    *,
    begun: datetime | None = None,
    request_id: str = "",
    head: str | None = None,
    check: Callable[[], object] = lambda: None,
) -> GitCommitSummary:
    """Commit ``files`` by plain git; None: what is staged.

    ``begun``: set when this request may already have been committed, which began then; if it was,
    nothing is committed again (D31). ``request_id`` stands in the reflog, and tells this commit
    from any other. ``head``: the commit that the client has seen. ``check`` is called right before
    git; it may refuse.

    Raises BridgeError GIT_ERROR with git's reason or a hook's, FILE_ACCESS_DENIED and
    FILE_INVALID_PATH for names. Only a finished commit changes the index.
    """
    if not message.strip():
        raise git_error("A commit needs a message.")
    if "\0" in message:
        raise git_error("A commit message cannot hold a NUL.")
    # in the form of git's own `commit (merge)`
    request_id = request_id or str(uuid.uuid4())
    action = f"commit (bridge {request_id})"
    with _turn(place.common_dir), mirror.kept_room(request_id) as room:
        if begun is not None:
            wait_for_left(action, begun, limits.GIT_COMMIT_SECONDS)
        wait_for_index(place)
        with mirror.reading(place) as git:
            mirror.check_written(place)
            branch, before, what = head_ref(place), head_of(git), operation(place)
            if begun and (own := earlier(Attempt(place, room, action, message, begun))):
                return _again(git, own, files, room)
            check_head(head, before)
            settings = effective(place)
            chosen = choose(git, files, what, settings)
            seen = _look(git)
        now = datetime.now(UTC)
        attempt = Attempt(place, room, action, message, now, branch, before)
        with _copied_index(place, room, request_id) as index:
            made = _Commit(attempt, settings, index)
            check()
            partial = files is not None and what in (None, "bisect")
            own = made.make(chosen, partial=partial, seen=seen)
            return made.summary(own, chosen)


def check_head(head: str | None, now: str) -> None:
    """Raise GIT_ERROR when the client has seen another last commit."""
    if head is not None and head != now:
        raise git_error(f"{MOVED_ON} since this was shown.")


@contextlib.contextmanager
def _turn(common_dir: str) -> Iterator[None]:
    """Allow one commit at a time in a repository."""
    lock = _locks.setdefault(common_dir, threading.Lock())
    has_turn = False
    try:
        with bounded_otherwise():  # whoever has the turn needs the places of those who wait
            has_turn = lock.acquire(timeout=limits.GIT_COMMIT_SECONDS)
        if not has_turn:
            raise git_error("Another commit in this repository takes too long.")
        yield
    finally:
        if has_turn:
            lock.release()


@contextlib.contextmanager
def _copied_index(place: Repository, room: str, request_id: str) -> Iterator[str]:
    """Yield where a copy of the index is to be, as git names it to hooks.

    It is removed at the end. A linked work tree's own index has an absolute path at the desk, too.
    """
    if place.git_dir != f"{place.top}/.git":
        yield f"{room}/index"
        return
    for name in os.listdir(place.git_dir):  # what a killed bridge has left
        path = f"{place.git_dir}/{name}"
        with contextlib.suppress(OSError):
            old = time.time() - os.lstat(path).st_mtime > limits.REQUEST_MEMORY_SECONDS
            if name.startswith(_COPY) and old:
                os.unlink(path)
    name = f"{_COPY}{request_id}"
    try:
        yield f".git/{name}"
    finally:
        with contextlib.suppress(OSError):
            os.unlink(f"{place.git_dir}/{name}")


class _Commit:
    """Make one commit; ``index``: its copy of the index, from the top."""

    def __init__(self, attempt: Attempt, settings: Sequence[Effective], index: str) -> None:
        self.attempt, self.place = attempt, attempt.place
        self.branch, self.before = attempt.branch, attempt.before
        self.snapshot, self.file = f"{attempt.room}/index before", f"{attempt.room}/message"
        self.index = os.path.join(self.place.top, index)
        attempt.keep()
        wait_for_index(self.place)
        self.stat = _identity(self.place)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.index)
        if self.stat is not None:
            shutil.copy2(f"{self.place.git_dir}/index", self.snapshot)
            try:
                shutil.copy2(self.snapshot, self.index)
            except OSError as error:
                text = f"The index cannot be copied: {os.strerror(error.errno or 0)}."
                raise git_error(text) from None
        with open(self.file, "wb") as file:
            file.write(attempt.message.encode())
        self.git = Plain(self.place, index, batch_ssh(last(settings)))

    def make(self, chosen: Chosen, *, partial: bool, seen: dict[str, object]) -> str:
        """Commit, and return the commit that was made, whatever happened after it."""
        command = ("commit", "--quiet", "--cleanup=whitespace", f"--file={self.file}")
        more = (*self.git.more, (ACTION, self.attempt.action))
        git = replace(self.git, more=(*more, ("GIT_TRACE2_EVENT", self.attempt.trace)))
        try:
            self._fill(chosen, partial=partial)
        except BridgeError as error:
            raise self._failed(error.message, seen) from None
        if self._has_moved():
            raise self._failed("", seen)
        try:
            done = git.done(*command, good=range(-64, 256))
            why = git.said(done) if done.code else None
        except BridgeError as error:
            why = error.message
        own = self.attempt.own(succeeded=why is None)
        if not own:
            raise self._failed(why or "git made no commit.", seen)
        if why is not None:
            log.warning("git_commit_ended_late", repository=self.place.top, reason=why)
        self._install(chosen, own, partial=partial)
        return own

    def _fill(self, chosen: Chosen, *, partial: bool) -> None:
        """Put the named files into the index's copy; ``partial``: upon the last commit."""
        names = chosen.added
        if partial:
            names = chosen.meant
            self.git("read-tree", *(("--reset", self.before) if self.before else ("--empty",)))
        gone = [name for name in names if name in chosen.removed]
        self._update(gone, "--force-remove")
        there = [name for name in names if name not in chosen.removed]
        self._update(there, "--add", "--remove", "--replace")

    def _update(self, names: list[str], *how: str) -> None:
        one_sync = ("-c", "core.fsyncMethod=batch")  # for all objects
        if names:
            self.git(*one_sync, "update-index", *how, "-z", "--stdin", stdin=encoded(names))

    def _has_moved(self) -> bool:
        plain = Plain(self.place)
        return (head_ref(self.place), head_of(plain)) != (self.branch, self.before)

    def _failed(self, why: str, seen: dict[str, object]) -> BridgeError:
        """Return the error, which says what else has changed."""
        parts, told = [why] if why else [], list[str]()
        moved = self._has_moved()
        if moved:
            parts.insert(0, MOVED_ON + " meanwhile; this was not committed.")
        elif "was ended" in why:
            parts.append("HEAD has not moved.")
        with contextlib.suppress(BridgeError), mirror.reading(self.place) as git:
            names, after = Names(self.place), _look(git)
            changed = sorted(
                name
                for name in after.keys() | seen.keys()
                if after.get(name) != seen.get(name) and not names.secret(name)
            )
            if changed and not moved:
                told = [names.to_client_name(one) for one in changed[:_LISTED_MAX]]
                parts.append("Changed meanwhile: " + ", ".join(told[:5]) + ".")
        fields: dict[str, Any] = {"details": {"changed": told}} if told else {}
        return BridgeError("GIT_ERROR", "\n".join(parts), **fields)

    def _install(self, chosen: Chosen, own: str, *, partial: bool) -> None:
        """Put the copy of the index in its place; the commit stands whatever comes of it."""
        index, lock = f"{self.place.git_dir}/index", f"{self.place.git_dir}/index.lock"
        try:
            wait_for_index(self.place)
            with open(lock, "xb") as file:
                held = (
                    not partial
                    and _identity(self.place) == self.stat
                    and head_of(Plain(self.place)) == own
                )
                if held:
                    with open(self.index, "rb") as source:
                        shutil.copyfileobj(source, file, limits.MB)
            if held:
                stat = os.stat(self.index)  # git compares the files' times with it
                os.utime(lock, ns=(stat.st_atime_ns, stat.st_mtime_ns))
                os.replace(lock, index)
                return
            os.unlink(lock)
        except (BridgeError, OSError) as error:
            log.warning("git_index_not_updated", repository=self.place.top, reason=str(error))
            return
        with contextlib.suppress(BridgeError), mirror.reading(self.place) as git:
            base = (self.before or empty_tree(git)) if partial else None
            update_index(git, self.snapshot, base, own, set(chosen.meant))

    def summary(self, own: str, chosen: Chosen) -> GitCommitSummary:
        """Sum up the commit, and say what else went in and what still stands."""
        names = Names(self.place)
        notes = self._elsewhere(own)
        if (what := operation(self.place)) in _GOES_ON:
            command = f"git {what} {_GOES_ON[what]}"
            notes.append(f"The {what} still stands; go on with it at the machine: {command}.")
        with contextlib.ExitStack() as stack:
            git: Git | Plain = Plain(self.place)  # where a hook has made it unfit for a mirror
            with contextlib.suppress(BridgeError):
                git = stack.enter_context(mirror.reading(self.place))
            return _summary(git, own).model_copy(
                update={
                    "also": [names.to_client_name(one) for one in chosen.also[:_LISTED_MAX]]
                    or None,
                    "note": " ".join(notes) or None,
                }
            )

    def _elsewhere(self, own: str) -> list[str]:
        """Say on which branch the commit is, where another was checked out meanwhile."""
        plain = Plain(self.place)
        if self.branch:
            there = plain.done("merge-base", "--is-ancestor", own, self.branch, good=range(256))
            if there.code == 0:
                return []
        elif not head_ref(self.place):
            return []
        names = ", ".join(map(shown, branches(plain, own))) or "no branch"
        return [f"Somebody switched branches meanwhile: this was committed on {names}."]


def _identity(place: Repository) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(f"{place.git_dir}/index")
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _look(git: Git) -> dict[str, object]:
    """Return what has changed in the work tree, and how each file looks."""
    found: dict[str, object] = {}
    for name in status.read(git).entries:
        with contextlib.suppress(OSError):
            stat = os.lstat(f"{git.place.top}/{name}")
            found[name] = (stat.st_mtime_ns, stat.st_size, stat.st_mode)
    return found


def _again(git: Git, own: str, files: list[str] | None, room: str) -> GitCommitSummary:
    """Finish a commit that a crashed process had made."""
    snapshot, index = f"{room}/index before", f"{git.place.git_dir}/index"
    if os.path.exists(index):
        shutil.copy2(index, snapshot)
    base = parent(git, own) or empty_tree(git)
    listed = git("diff-tree", "-r", "--name-only", "-z", "--no-renames", base, own, "--")
    named = set(os.fsdecode(listed).split("\0")[:-1])
    update_index(git, snapshot, base if files is not None else None, own, named)
    return _summary(git, own)


def _summary(git: Git | Plain, own: str) -> GitCommitSummary:
    """Sum up the commit; a merge is compared with its first parent."""
    logged = git(*LOG, "--format=%H %s", own, "--").decode("utf-8", "replace")
    commit, _, subject = logged.partition(" ")
    shown = ("show", "--format=", "--numstat", "-z", "-m", "--first-parent", "--no-show-signature")
    try:
        counted = numstat(git(*shown, *DIFF_OPTIONS, own, "--"))
        changed = len(counted)
    except BridgeError:  # an object that is not there
        names = ("diff-tree", "-r", "--root", "--no-commit-id", "--name-only", "-z", "--no-renames")
        counted, changed = [], git(*names, own, "--").count(b"\0")
    return GitCommitSummary(
        hash=commit,
        summary=subject.rstrip("\n"),
        files_changed=changed,
        additions=sum(file.additions for file in counted),
        deletions=sum(file.deletions for file in counted),
    )
