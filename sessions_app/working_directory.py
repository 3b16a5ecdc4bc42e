"""Check where an agent may work; find its repository and branch without git.

It follows git's rules, but inside the roots only: a repository with any part outside is refused
(D10, D12).
"""

import os
import re
from dataclasses import dataclass

from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.path_jail import Jail, default_jail, shown

POINTER_MAX_BYTES = 8192
_BRANCH = re.compile(r"ref: refs/heads/(.+)")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_UNFIT = {
    "FILE_INVALID_PATH": "The working directory is missing, is no directory, or has a name that"
    " is not UTF-8.",
    "FILE_ACCESS_DENIED": "The working directory is outside of what agents may use: {roots}.",
    "FILE_NOT_FOUND": "There is no such working directory.",
}


@dataclass(frozen=True, slots=True)
class Repository:
    """Hold the paths of a repository; real, absolute, inside the roots of ``jail``.

    ``top`` is the work tree, ``git_dir`` holds HEAD and the index, ``common_dir`` the rest (the
    same, but in a linked work tree).
    """

    directory: str
    top: str
    git_dir: str
    common_dir: str
    jail: Jail


def inside(directory: str) -> str:
    """Return the real path of a directory where an agent may work (D41).

    Raises the jail's errors, in words about such a directory.
    """
    try:
        with default_jail().open_dir(directory) as opened:
            if shown(opened.path) != opened.path:  # a link led there; no text can say its name
                raise BridgeError("FILE_INVALID_PATH")
            return opened.path
    except BridgeError as error:
        words = _UNFIT.get(error.code, error.message)
        roots = shown(", ".join(conf.allowed_roots))
        raise BridgeError(error.code, words.replace("{roots}", roots)) from None


def find_repository(directory: str, jail: Jail) -> Repository | None:
    """Return the repository around a working directory, or None.

    Raises the jail's errors, also for a repository that leads out of the roots, GIT_ERROR for one
    that is damaged.
    """
    with jail.open_dir(directory) as opened:
        names = opened.names
    for depth in range(len(names), 0, -1):
        if not any(names[:depth][: len(root)] == root for root in jail.roots):
            break
        top = "/" + "/".join(names[:depth])
        try:
            git_dir = git_dir_of(top, jail)
            if git_dir is not None:
                common_dir = git_dir
                with Ignoring("FILE_NOT_FOUND"):
                    common_dir = _directory(_read(f"{git_dir}/commondir", jail), git_dir, jail)
                return Repository("/" + "/".join(names), top, git_dir, common_dir, jail)
        except BridgeError as error:
            if error.code != "FILE_ACCESS_DENIED":
                raise
            outside = "The git directory lies outside the allowed roots."
            raise BridgeError(error.code, outside) from None
    return None


def branch_of(directory: str) -> str:
    """Return the branch's name; where HEAD is detached, a short commit in parentheses.

    Empty outside a repository and outside the roots.
    """
    if not directory.startswith("/"):
        return ""
    jail = default_jail()
    try:
        place = find_repository(directory, jail)
        head = _read(f"{place.git_dir}/HEAD", jail) if place else ""
    except BridgeError:
        return ""
    found = _BRANCH.fullmatch(head)
    if found is not None:
        # .invalid: this repository keeps its references in a form that only git can read
        return "" if found[1] == ".invalid" else shown(found[1])
    return detached(head) if _COMMIT.fullmatch(head) else ""


def detached(commit: str) -> str:
    """Return the text shown for a detached HEAD: 12 digits, which are unique."""
    return f"({commit[:12]})"


def git_dir_of(top: str, jail: Jail) -> str | None:
    """Return the directory that ``.git`` is or names; None without one."""
    try:
        with jail.open_dir(f"{top}/.git") as opened:
            path = opened.path
    except BridgeError as error:
        if error.code == "FILE_NOT_FOUND":
            return None
        if error.code != "FILE_INVALID_PATH":
            raise
        # a file: a linked work tree, or a submodule
        text = _read(f"{top}/.git", jail)
        target = text.removeprefix("gitdir: ")
        if target == text:
            raise _damaged(".git is a file that names no directory.") from None
        return _directory(target, top, jail)

    def has(name: str) -> bool:
        with Ignoring("FILE_NOT_FOUND"):
            jail.resolve(f"{path}/{name}")
            return True
        return False

    return path if (has("objects") or has("commondir")) and has("HEAD") else None


def _directory(target: str, base: str, jail: Jail) -> str:
    try:
        with jail.open_dir(target, base=base) as opened:
            return opened.path
    except BridgeError as error:
        if error.code in ("FILE_NOT_FOUND", "FILE_INVALID_PATH"):
            raise _damaged("the directory that .git names is not there.") from None
        raise


def _damaged(reason: str) -> BridgeError:
    return BridgeError("GIT_ERROR", f"Not a git repository: {reason}")


def _read(path: str, jail: Jail) -> str:
    with jail.open_file(path) as opened:
        return os.fsdecode(os.read(opened.fd, POINTER_MAX_BYTES)).strip()
