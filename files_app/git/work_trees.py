"""Make a work tree for a session, and remove it when nothing would be lost (D64)."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.disk_threads import bounded_otherwise
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.mounts import lies_in
from bridge_project.kernel.path_jail import shown
from bridge_project.kernel.threads import git, readers, writers
from bridge_project.protocol.catalogue import encode
from devices_app.models import Device
from files_app.git import programs, settings
from files_app.git.facts import head_of, head_ref
from files_app.git.plain import Plain
from files_app.git.repository import repository_of
from files_app.git.sandbox import mirror
from files_app.git.sandbox.error_text import git_error
from files_app.git.trust import Trusted, holds
from files_app.models import WorkTree
from sessions_app import notifications
from sessions_app.agents.process import groups
from sessions_app.log.outbox import outbox
from sessions_app.working_directory import Repository, inside

log = structlog.get_logger("bridge.git")

_PLACE: Final = ".worktrees"
# git's reason for the lock that a work tree has until it is made: what a crash leaves has it still
_MARK: Final = "the bridge is making this work tree"
_POLL_SECONDS: Final = 0.05


def make(
    device: Device | None,
    session_id: str | None,
    directory: str,
    branch: str,
    trust: str | None,
    *,
    again: bool,
) -> str:
    """Make a work tree of a new or present branch; return its directory.

    ``again``: a crashed process may have made it for this request. Raises BridgeError GIT_ERROR and
    GIT_TRUST_REQUIRED; then nothing is left of it.
    """
    place = repository_of(inside(directory))
    _check_name(place, branch)
    path = f"{place.top}/{_PLACE}/{branch}"
    with _alone(place) as lock:
        _clear_leftovers(place, path)
        if again and _is_work_tree(path, branch):
            return path
        _check_place(place, path)
        with Trusted(place, device, session_id, trust, "work tree", *_own_filters(place, branch)):
            mirror.check_written(place)
            _exclude(place)
            _add(place, session_id, path, branch, lock)
    return path


def _own_filters(place: Repository, branch: str) -> list[str]:
    """Return the branch's commit if filters of its own could run.

    By a relative path those in the new work tree do, and no others.
    """
    found = programs.find(place, "work tree").programs
    if not any(one.kind == "filter" and one.path for one in found):
        return []
    plain = Plain(place)
    named = ("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    done = plain.done(*named, good=(0, 1))
    return [done.out.decode().strip() or head_of(plain)]


def _add(place: Repository, session_id: str | None, path: str, branch: str, lock: int) -> None:
    # if the bridge is killed, its next start ends what is marked so
    plain = Plain(place, more=tuple(groups.mark().items()))
    start = head_of(plain)
    known = ("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
    is_new = plain.done(*known, good=(0, 1)).code == 1
    how = ("--no-track", "-b", branch, "--", path) if is_new else ("--", path, branch)
    # by a relative path git would take the hooks of the branch, as soon as they are there
    hooks = ("-c", f"core.hooksPath={programs.hooks_of(place)}")
    try:
        plain(*hooks, "worktree", "add", "--lock", "--reason", _MARK, *how, pass_fds=[lock])
        if session_id:
            made = {"path": path, "start": start}
            writers.begin(
                WorkTree.objects.update_or_create, session_id=session_id, defaults=made
            ).result()
        plain("worktree", "unlock", "--", path)
    except BridgeError:
        _clear(plain, path)
        if is_new:
            plain.done("branch", "-d", "--", branch, good=range(256))
        raise


@contextlib.contextmanager
def _alone(place: Repository) -> Iterator[int]:
    """Make one work tree at a time; yield the lock, which the kernel frees.

    The git that makes one has it too: when a bridge is killed, another one must not clear what that
    git still fills.
    """
    held = os.open(place.common_dir, os.O_RDONLY)
    deadline = time.monotonic() + limits.GIT_COMMIT_SECONDS
    try:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise git_error("Another work tree takes too long to be made.") from None
                with bounded_otherwise():
                    time.sleep(_POLL_SECONDS)
        yield held
    finally:
        fcntl.flock(held, fcntl.LOCK_UN)  # also for what a hook has left running
        os.close(held)


def _clear_leftovers(place: Repository, path: str) -> None:
    """Remove what a crash left half made, and git's record of a lost directory."""
    plain = Plain(place)
    for entry in os.fsdecode(plain("worktree", "list", "--porcelain")).split("\n\n"):
        lines = entry.split("\n")
        at = lines[0].removeprefix("worktree ")
        # the repository says where it is: links and `..` could lead anywhere
        ours = lies_in(at, f"{place.top}/{_PLACE}") and os.path.realpath(at) == at
        half_made = ours and f"locked {_MARK}" in lines
        locked = any(line.split(" ")[0] == "locked" for line in lines)
        if half_made or (at == path and not locked and not os.path.lexists(path)):
            _clear(plain, at)


def _clear(plain: Plain, path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)  # git removes none that is without its `.git`
    plain.done("worktree", "remove", "--force", "--force", "--", path, good=range(256))


def _check_name(place: Repository, branch: str) -> None:
    """Refuse what git takes for no branch, or for another one (``@{-1}``)."""
    refused = git_error("This is no name for a branch.")
    if "\0" in branch or shown(branch) != branch:
        raise refused
    try:
        named = settings.ask(place, "check-ref-format", "--branch", branch)
    except BridgeError:
        raise refused from None
    if os.fsdecode(named).rstrip("\n") != branch:
        raise refused


def _check_place(place: Repository, path: str) -> None:
    """Refuse a path that exists, or to which a link leads."""
    above = os.path.dirname(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    # first, for nobody is told what exists outside the roots
    if place.jail.resolve(above) != above or not os.path.isdir(above):
        raise git_error(f"{shown(above)} is a link or a file: no work tree is made there.")
    if os.path.lexists(path):
        raise git_error(f"{shown(path)} exists already; begin a session in it.")


def _is_work_tree(path: str, branch: str) -> bool:
    with Ignoring("GIT_ERROR", "FILE_NOT_FOUND", "FILE_ACCESS_DENIED"):
        place = repository_of(path)
        return place.top == path and head_ref(place) == f"refs/heads/{branch}"
    return False


def _exclude(place: Repository) -> None:
    """Name the work trees' directory in ``.git/info/exclude``."""
    line = f"/{_PLACE}/"
    directory = Path(place.common_dir, "info")
    directory.mkdir(exist_ok=True)
    file = directory / "exclude"
    if os.path.lexists(file) and place.jail.resolve(str(file)) != str(file):
        raise git_error("info/exclude of the git directory is a link.")
    text = file.read_bytes() if file.exists() else b""
    if line.encode() not in text.splitlines():
        with file.open("ab") as out:
            out.write((b"" if not text or text.endswith(b"\n") else b"\n") + line.encode() + b"\n")


async def remove(session_id: str) -> None:
    """Remove a session's work tree, or tell the devices why it stays."""
    row = await readers.run(WorkTree.objects.filter(session_id=session_id).first)
    if row is None:
        return
    try:
        why = await git.run(row.path, _why_it_stays, row)
    except BridgeError as error:
        why = error.message
    await writers.run(_told, row, why)


def _why_it_stays(row: WorkTree) -> str:
    """Remove a work tree, or return why that would lose something."""
    if not os.path.lexists(row.path):
        return ""  # somebody has removed it at the machine
    place = repository_of(row.path)
    if place.top != row.path:
        return "it is no work tree any more"
    if programs.find(place, "work tree").programs and not holds(place):
        return "it holds programs that are not trusted"
    plain = Plain(place)
    # git removes none with submodules, whose programs a look into them would run
    files = ("--untracked-files=all", "--ignored", "--ignore-submodules=dirty")
    if plain("status", "--porcelain", "-z", *files):
        return "it holds files that are not committed"
    head = head_of(plain)
    if head != row.start and plain("rev-list", "--max-count=1", head, "--not", "--remotes", "--"):
        return "its commits are not pushed"
    # from the repository itself: git does not remove the directory that it stands in
    plain("-C", place.common_dir, "worktree", "remove", "--", row.path)
    return ""


def _told(row: WorkTree, why: str) -> None:
    title = "The work tree stays" if why else "The work tree was removed"
    body = f"{shown(row.path)}: {why}." if why else f"{shown(row.path)}; its branch stays."
    about = notifications.make("agent_notification", title, body, session_id=row.session_id)
    with outbox() as box:
        box.append_to_all(encode(about))
    row.delete()
