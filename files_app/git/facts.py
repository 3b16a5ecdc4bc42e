"""Say where a repository stands: its upstream, and its state (D63)."""

import os
import re
from collections.abc import Mapping
from typing import Final

from bridge_project.kernel.errors import Ignoring
from bridge_project.kernel.path_jail import shown
from bridge_project.protocol.resources import GitUpstream
from bridge_project.protocol.types import GitState
from files_app.git import settings
from files_app.git.plain import Plain
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from files_app.git.settings import Effective
from sessions_app.working_directory import Repository

# file of the git directory → what git does while it is there; the first one counts
_OPERATIONS: Final[dict[str, GitState]] = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "am",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}
# first word of the list of commits that git still has to take → likewise
_LISTED: Final[dict[str, GitState]] = {
    **dict.fromkeys(("pick", "p"), "cherry-pick"),
    "revert": "revert",
}
_WORD_BYTES: Final = 16
_TODO: Final = "sequencer/todo"
_UNNAMED: Final = "bridge/unnamed"
_PUSH: Final = " (push)"
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@]*@")


def head_of(git: Git | Plain) -> str:
    """Return the last commit, empty before the first."""
    done = git.done("rev-parse", "--verify", "--quiet", "HEAD^{commit}", good=(0, 1))
    return done.out.decode().strip()


def head_ref(place: Repository) -> str:
    """Return the full name of the branch that is checked out, empty for none."""
    found = Plain(place).done("symbolic-ref", "--quiet", "HEAD", good=(0, 1)).out
    return os.fsdecode(found).rstrip("\n")


def operation(place: Repository) -> GitState | None:
    """Return what git is in the middle of, as ``git status`` says it."""
    for name, what in _OPERATIONS.items():
        if os.path.lexists(f"{place.git_dir}/{name}"):
            return what
    with Ignoring("FILE_NOT_FOUND"), place.jail.open_file(f"{place.git_dir}/{_TODO}") as todo:
        word = os.fsdecode(os.read(todo.fd, _WORD_BYTES).split(b" ")[0])
        if word in _LISTED:
            return _LISTED[word]
    return "bisect" if os.path.lexists(f"{place.git_dir}/BISECT_LOG") else None


def upstream(
    place: Repository, name: str, branch: str, all_settings: list[Effective], *, gone: bool
) -> GitUpstream | None:
    """Return the branch's upstream, without credentials in its address."""
    if not name:
        return None
    values = settings.last(all_settings)
    remote = values.get(f"branch.{branch}.remote", "")
    merged = values.get(f"branch.{branch}.merge", "").removeprefix("refs/heads/")
    urls: tuple[str, ...] = ()
    with Ignoring("GIT_ERROR"):
        urls = push_urls(place, remote, values)
    where = ", ".join(map(public, urls))
    about = {"remote": shown(remote), "branch": shown(merged), "url": where}
    return GitUpstream(**about, gone=(gone and remote != ".") or None)


def push_urls(place: Repository, remote: str, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses to which a push goes; the remote may be one itself."""
    named = any(f"remote.{remote}.{key}" in values for key in ("url", "pushurl"))
    if not named and not {"/", ":"}.intersection(remote):
        raise git_error(f"There is no remote {shown(remote)}.")
    # git tells what a named one becomes (`pushInsteadOf`)
    name, add = (remote, ()) if named else (_UNNAMED, ("-c", f"remote.{_UNNAMED}.url={remote}"))
    lines = os.fsdecode(settings.ask(place, *add, "remote", "--verbose")).split("\n")
    ours = (line.removeprefix(f"{name}\t") for line in lines if line.startswith(f"{name}\t"))
    return tuple(line.removesuffix(_PUSH) for line in ours if line.endswith(_PUSH))


def public(url: str) -> str:
    """Remove name and password from an address."""
    return shown(_CREDENTIALS.sub("", url))
