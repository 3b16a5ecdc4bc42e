"""Find a session's repository; refuse another user's, or hidden mounts (D10, D12)."""

import dataclasses
import os
from pathlib import Path

from bridge_project.kernel import limits, mounts
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.path_jail import Jail, default_jail
from bridge_project.kernel.path_walk import split, translate_os_errors
from files_app.git.sandbox import config, git
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.git import Git
from sessions_app.working_directory import Repository, find_repository


def repository_of(working_directory: str, jail: Jail | None = None) -> Repository:
    """Return the repository around a session's working directory.

    Errors: GIT_ERROR where there is none or it is not the user's, FILE_ACCESS_DENIED where any part
    of it lies outside the roots, and the jail's for the directory itself.
    """
    if not working_directory.startswith("/"):
        text = "The session has no working directory on this machine, so there is no repository."
        raise git_error(text)
    place = find_repository(working_directory, jail or default_jail())
    if place is None:
        raise git_error(
            "Not a git repository: the directory is in none that lies inside the allowed roots."
        )
    if mounts.lies_in(place.directory, place.git_dir):
        text = "Not a work tree: the session's working directory is inside the git directory."
        raise git_error(text)
    _check_owner(place)
    _check_files(place)
    place = _as_git_says(place)
    _check_mounts(place)
    return place


def _as_git_says(place: Repository) -> Repository:
    """Return the repository with the work tree in which git would work here (D63).

    Raises GIT_ERROR where git says that there is none (``core.bare``), FILE_ACCESS_DENIED where
    ``core.worktree`` leads out of the roots.
    """
    done = git.run(
        ["rev-parse", "--show-toplevel"],
        cwd=place.directory,
        environment={**git.user_environment(), "LC_ALL": "C"},
        max_bytes=limits.FILE_PATH_MAX_BYTES,
    )
    if done.code == 0:
        top = place.jail.resolve(os.fsdecode(done.out).removesuffix("\n"))
        return dataclasses.replace(place, top=top)
    if b"work tree" in done.err:
        raise git_error("Not a work tree: git says that this operation must be run in a work tree.")
    return place  # damaged in some way, which is said where it is read


def _check_files(place: Repository) -> None:
    """Refuse a repository whose configuration is a FIFO: plain git would wait for it."""
    for path in (f"{place.common_dir}/config", f"{place.git_dir}/config.worktree"):
        with Ignoring("FILE_NOT_FOUND"):
            place.jail.open_file(path).close()


def _check_owner(place: Repository) -> None:
    """Refuse another user's repository, as git does, unless `safe.directory` names it.

    It may name all below a directory, as ``/srv/*``.
    """
    parts = (place.top, place.git_dir, place.common_dir)
    with translate_os_errors():
        foreign = any(os.stat(path).st_uid != os.geteuid() for path in parts)
    named = {"*", place.top, *(f"{above}/*" for above in map(str, Path(place.top).parents))}
    if foreign and not named.intersection(_safe_directories()):
        raise git_error(
            "The repository belongs to another user. To trust it: git config --global --add"
            f" safe.directory {place.top}"
        )


def _check_mounts(place: Repository) -> None:
    """Refuse a repository into which a hidden file system is mounted."""
    denied = BridgeError(
        "FILE_ACCESS_DENIED", "A hidden file or directory is mounted into the repository."
    )
    known, parts = mounts.mounts(), (place.top, place.git_dir, place.common_dir)
    for point in {one.point for part in parts for one in mounts.mounts_below(part, known)}:
        names = split(point)
        if names in place.jail.mounted:
            raise denied
        # files hidden by their path are removed from git's output
        if not place.jail.hides(names):
            try:
                place.jail.resolve(point)
            except BridgeError as error:
                if error.code == "FILE_ACCESS_DENIED":
                    raise denied from None


def _safe_directories() -> list[str]:
    names: list[str] = []
    for key, value in config.read_user({"GIT_DIR": os.devnull}):
        if key == "safe.directory":
            # an empty value removes those before it
            names = [*names, value.rstrip("/") if value != "/" else value] if value else []
    return names


def leads_out(git: Git, name: str) -> bool:
    """Return whether a submodule's git directory is outside the roots."""
    try:
        find_repository(f"{git.place.top}/{name}", git.place.jail)
    except BridgeError as error:
        return error.code == "FILE_ACCESS_DENIED"
    return False
