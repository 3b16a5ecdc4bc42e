"""Make a work tree for a session, and remove it when nothing would be lost (D64)."""

import os
from pathlib import Path
from typing import Final

import structlog

from bridge_project.kernel.errors import BridgeError, Ignoring
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
from sessions_app.log.outbox import outbox
from sessions_app.working_directory import Repository, inside

log = structlog.get_logger("bridge.git")

_PLACE: Final = ".worktrees"


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
    if again and _is_work_tree(path, branch):
        return path
    _check_place(place, path)
    with Trusted(place, device, session_id, trust):
        mirror.check_written(place)
        plain = Plain(place)
        start = head_of(plain)
        known = ("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
        is_new = plain.done(*known, good=(0, 1)).code == 1
        _exclude(place)
        how = ("--no-track", "-b", branch, "--", path) if is_new else ("--", path, branch)
        try:
            plain("worktree", "add", *how)
        except BridgeError:
            if os.path.lexists(path):
                plain.done("worktree", "remove", "--force", "--", path, good=range(256))
            if is_new and start:
                plain.done("branch", "-D", "--", branch, good=range(256))
            raise
        made = WorkTree(session_id=session_id or "", path=path, start=start)
        if session_id:
            writers.begin(made.save).result()
    return path


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
    if os.path.lexists(path):
        raise git_error(f"{shown(path)} exists already; begin a session in it.")
    above = os.path.dirname(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if place.jail.resolve(above) != above or not os.path.isdir(above):
        raise git_error(f"{shown(above)} is a link or a file: no work tree is made there.")


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
    place = repository_of(row.path)
    if place.top != row.path:
        return "it is no work tree any more"
    if programs.find(place).programs and not holds(place):
        return "it holds programs that are not trusted"
    plain = Plain(place)
    if plain("status", "--porcelain", "-z", "--untracked-files=all", "--ignored"):
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
