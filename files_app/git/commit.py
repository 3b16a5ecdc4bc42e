"""Commit by plain git in the user's own repository (D10, D63).

Git works on a copy of the index, as it does itself when files are named. So a commit that is not
made leaves the index as it was, to the byte, and what somebody stages meanwhile stays staged. When
it is made, the copy takes the index's place, or its changes are added to what stands there now.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.resources import GitCommitSummary
from files_app.git import status
from files_app.git.facts import operation
from files_app.git.index import update_index, wait_for_index
from files_app.git.patch import numstat
from files_app.git.paths import Names
from files_app.git.plain import Plain, batch_ssh, paths
from files_app.git.sandbox import mirror
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from files_app.git.settings import Effective, effective, last
from files_app.git.staging import Chosen, choose, encoded
from files_app.git.status import DIFF_OPTIONS, empty_tree
from sessions_app.working_directory import Repository

log = structlog.get_logger("bridge.git")

_locks: Final[dict[str, threading.Lock]] = {}
_LOG: Final = ("log", "--max-count=1", "--no-show-signature", "--encoding=UTF-8")
_LISTED_MAX: Final = 200  # names in an answer besides the commit's own


def commit(
    place: Repository,
    message: str,
    files: list[str] | None,
    *,
    begun: datetime | None = None,
    head: str | None = None,
    check: Callable[[], object] = lambda: None,
) -> GitCommitSummary:
    """Commit ``files`` by plain git; None: what is staged.

    ``begun``: set when a crashed process may already have made this commit, which it began then; if
    the last commit is this one, nothing is committed again (D31). ``head``: the commit that the
    client has seen. ``check`` is called right before git; it may refuse.

    Raises BridgeError GIT_ERROR with git's reason or a hook's, FILE_ACCESS_DENIED and
    FILE_INVALID_PATH for names. Only a finished commit changes the index.
    """
    if not message.strip():
        raise git_error("A commit needs a message.")
    if "\0" in message:
        raise git_error("A commit message cannot hold a NUL.")
    with _turn(place.common_dir), mirror.room() as room:
        wait_for_index(place)
        with mirror.reading(place) as git:
            mirror.check_written(place)
            before, what = head_of(git), operation(place)
            if begun is not None and _is_last(git, before, message, begun):
                return _again(git, before, files, room)
            check_head(head, before)
            settings = effective(place)
            chosen = choose(git, files, what, settings)
            seen = _look(git)
        made = _Commit(place, room, message, before, settings)
        check()
        own = made.make(chosen, partial=files is not None and what in (None, "bisect"), seen=seen)
        return made.summary(own, chosen, what)


def head_of(git: Git | Plain) -> str:
    """Return the last commit, empty before the first."""
    done = git.done("rev-parse", "--verify", "--quiet", "HEAD^{commit}", good=(0, 1))
    return done.out.decode().strip()


def check_head(head: str | None, now: str) -> None:
    """Raise GIT_ERROR when the client has seen another last commit."""
    if head is not None and head != now:
        raise git_error("The repository has moved on since this was shown.")


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


class _Commit:
    """Make one commit on top of ``before``."""

    def __init__(
        self,
        place: Repository,
        room: str,
        message: str,
        before: str,
        settings: Sequence[Effective],
    ) -> None:
        self.place, self.message, self.before = place, message, before
        self.begun = datetime.now(UTC)
        self.snapshot, self.index, self.file = (
            f"{room}/{name}" for name in ("before", "index", "message")
        )
        wait_for_index(place)
        self.stat = _identity(place)
        if self.stat is not None:
            shutil.copy2(f"{place.git_dir}/index", self.snapshot)
            shutil.copy2(self.snapshot, self.index)
        with open(self.file, "wb") as file:
            file.write(message.encode())
        self.git = Plain(place, self.index, batch_ssh(last(settings)))

    def make(self, chosen: Chosen, *, partial: bool, seen: dict[str, object]) -> str:
        """Commit, and return the commit that was made, whatever happened after it."""
        command = ["commit", "--quiet", "--cleanup=whitespace", f"--file={self.file}"]
        named = b""
        if partial and not chosen.replaced:
            command += ["--only", "--pathspec-from-file=-", "--pathspec-file-nul"]
            named = paths(chosen.meant)
        why = None
        try:
            if chosen.replaced and partial:
                self._only(chosen)
            elif chosen.added:
                self._update(chosen.added, "--add", "--remove", "--replace")
            if head_of(self.git) != self.before:
                raise git_error("")
            done = self.git.done(*command, stdin=named, good=range(-64, 256))
            if done.code:
                why = self.git.said(done)
        except BridgeError as error:
            why = error.message
        own = self._own(failed=why is not None)
        if not own:
            raise self._failed(why or "git made no commit.", seen)
        if why is not None:
            log.warning("git_commit_ended_late", repository=self.place.top, reason=why)
        self._install(chosen, own, partial=partial)
        return own

    def _only(self, chosen: Chosen) -> None:
        """Fill the index's copy from the last commit and the named files."""
        self.git("read-tree", *(("--reset", self.before) if self.before else ("--empty",)))
        top = self.place.top
        there = [
            name
            for name in chosen.meant
            if os.path.islink(f"{top}/{name}") or not os.path.isdir(f"{top}/{name}")
        ]
        self._update(sorted(set(chosen.meant).difference(there)), "--force-remove")
        self._update(there, "--add", "--remove", "--replace")

    def _update(self, names: list[str], *how: str) -> None:
        one_sync = ("-c", "core.fsyncMethod=batch")  # for all objects
        if names:
            self.git(*one_sync, "update-index", *how, "-z", "--stdin", stdin=encoded(names))

    def _own(self, *, failed: bool) -> str:
        """Return the commit that git made, empty for none; somebody may have added to it."""
        plain = Plain(self.place)
        since = [f"^{self.before}"] if self.before else []
        listed = plain.done(
            *("rev-list", "--first-parent", "--reverse", "HEAD", *since, "--"), good=(0, 128)
        )
        made = listed.out.decode().split()
        # a hook may have changed the message, or amended the commit
        same = [one for one in made if _is_last(plain, one, self.message, self.begun, whole=False)]
        return (same or ([] if failed else made) or [""])[0]

    def _failed(self, why: str, seen: dict[str, object]) -> BridgeError:
        """Return the error, which says what else has changed."""
        parts, shown = [why] if why else [], list[str]()
        now = head_of(Plain(self.place))
        if now != self.before:
            moved = (
                "Somebody else committed or switched branches meanwhile; this was not committed."
            )
            parts.insert(0, moved)
        elif "was ended" in why:
            parts.append("HEAD has not moved.")
        with contextlib.suppress(BridgeError), mirror.reading(self.place) as git:
            names, after = Names(self.place), _look(git)
            changed = sorted(
                name
                for name in after.keys() | seen.keys()
                if after.get(name) != seen.get(name) and not names.secret(name)
            )
            if changed and now == self.before:
                shown = [names.to_client_name(one) for one in changed[:_LISTED_MAX]]
                parts.append("Changed meanwhile: " + ", ".join(shown[:5]) + ".")
        fields: dict[str, Any] = {"details": {"changed": shown}} if shown else {}
        return BridgeError("GIT_ERROR", "\n".join(parts), **fields)

    def _install(self, chosen: Chosen, own: str, *, partial: bool) -> None:
        """Put the copy of the index in its place; the commit stands whatever comes of it."""
        index, lock = f"{self.place.git_dir}/index", f"{self.place.git_dir}/index.lock"
        try:
            wait_for_index(self.place)
            with open(lock, "xb") as file:
                held = (
                    not (partial and chosen.replaced)
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

    def summary(self, own: str, chosen: Chosen, what: str | None) -> GitCommitSummary:
        """Sum up the commit, and say what else went in and what still stands."""
        names = Names(self.place)
        notes = None
        if what == "rebase":
            notes = "The rebase still stands; go on with it at the machine: git rebase --continue."
        with contextlib.ExitStack() as stack:
            git: Git | Plain = Plain(self.place)  # where a hook has made it unfit for a mirror
            with contextlib.suppress(BridgeError):
                git = stack.enter_context(mirror.reading(self.place))
            return _summary(git, own).model_copy(
                update={
                    "also": [names.to_client_name(one) for one in chosen.also[:_LISTED_MAX]]
                    or None,
                    "note": notes,
                }
            )


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
    snapshot, index = f"{room}/before", f"{git.place.git_dir}/index"
    if os.path.exists(index):
        shutil.copy2(index, snapshot)
    base = _parent(git, own) or empty_tree(git)
    listed = git("diff-tree", "-r", "--name-only", "-z", "--no-renames", base, own, "--")
    named = set(os.fsdecode(listed).split("\0")[:-1])
    update_index(git, snapshot, base if files is not None else None, own, named)
    return _summary(git, own)


def _parent(git: Git, own: str) -> str:
    done = git.done("rev-parse", "--verify", "--quiet", f"{own}^", good=(0, 1))
    return done.out.decode().strip()


def _is_last(
    git: Git | Plain, last: str, message: str, begun: datetime, *, whole: bool = True
) -> bool:
    """Return whether a commit with this message was made since then."""
    if not last:
        return False
    # Not by its files: others may have staged more since, which must not be committed for that.
    logged = git(*_LOG, "--format=%ct %B", last, "--").decode("utf-8", "replace")
    made, _, body = logged.partition(" ")
    cleaned = git("stripspace", stdin=message.encode()).decode("utf-8", "replace").strip()
    if not made.isdigit() or int(made) < int(begun.timestamp()):
        return False
    return body.strip() == cleaned if whole else cleaned in body


def _summary(git: Git | Plain, own: str) -> GitCommitSummary:
    """Sum up the commit; a merge is compared with its first parent."""
    logged = git(*_LOG, "--format=%H %s", own, "--").decode("utf-8", "replace")
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
