"""Make a temporary git directory without a repository's hooks and programs (D10).

Git obeys its git directory: it runs the filters, monitors, drivers and hooks named there, and reads
files and objects wherever it says. So the bridge gives git another one, the *mirror*, in its own
data directory: a configuration of harmless keys, copies of HEAD and of the index, and links to the
repository's objects and references, which are checked first. A git that reads sees only the mirror,
and could write only there. Commits are plain git's (``commit``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import Ignoring
from bridge_project.kernel.path_jail import Jail
from bridge_project.kernel.path_walk import translate_os_errors
from bridge_project.kernel.private_files import make_private_dir
from files_app.git.sandbox import config, git
from files_app.git.sandbox.config import Setting
from files_app.git.sandbox.error_text import HEAD_DAMAGED, git_error
from files_app.git.sandbox.git import Git
from files_app.git.sandbox.links import check, check_below
from files_app.git.settings import Effective, effective
from sessions_app.working_directory import Repository

_SHARED: Final = ("packed-refs", "shallow", "reftable", "info/exclude", "info/attributes")
_COMMITS: Final = "commits"
_NOT_WRITTEN: Final = frozenset({"hooks", "modules", "worktrees", "annex"})
_OURS: Final = [
    ("core.bare", "false"),
    ("core.fsmonitor", "false"),
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("protocol.allow", "never"),
    ("commit.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
]
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
# What git takes for a HEAD; with any other it fails in words about its own command line. It would
# also write to a reference outside of its directory, if the name has `..`.
_HEAD: Final = re.compile(
    rb"ref:[ \t]*(?P<name>refs(?:/(?!\.{0,2}(?:/|\s*\Z))[^/\x00-\x20\x7f]+)+)\s*\Z|[0-9a-fA-F]{40}"
)
_OWN: Final = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")  # of each work tree
_REFERENCES_MAX: Final = 5  # symbolic ones in a row; git's limit


@contextlib.contextmanager
def reading(place: Repository, found: list[Effective] | None = None) -> Iterator[Git]:
    """Yield a Git that can only read. Raises GIT_ERROR and the jail's errors.

    ``found``: the settings in force, where the caller has them.
    """
    with _made(place) as mirror:
        mirror.copy_index()
        mirror.configure(
            effective(place) if found is None else found,
            [("core.bigFileThreshold", str(limits.GIT_BIG_FILE_BYTES))],
        )
        yield Git(place, mirror.directory, git.reading_environment(mirror.directory))


def check_written(place: Repository) -> None:
    """Refuse links out of the roots where a commit writes."""
    for directory in {place.git_dir, place.common_dir}:
        check(directory, place.jail, but=_NOT_WRITTEN)
        if os.path.isdir(f"{directory}/logs"):
            check_below(f"{directory}/logs", place.jail)


def forget_leftovers() -> None:
    """Delete mirrors that a killed process left; the git of a commit may still run."""
    for path in (conf.bridge_data_dir / "git").glob("*"):
        if path.name != _COMMITS:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def room() -> Iterator[str]:
    """Make a private directory for one call.

    `forget_leftovers` removes what a crash leaves.
    """
    made = tempfile.mkdtemp(prefix="", dir=make_private_dir(conf.bridge_data_dir, "git"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def kept_room(name: str) -> Iterator[str]:
    """Make a directory for a commit, or return the one that a killed process left.

    Its small files are kept for as long as the request may come again.
    """
    above = make_private_dir(conf.bridge_data_dir, "git", _COMMITS)
    for old in above.iterdir():
        if time.time() - old.stat().st_mtime > limits.REQUEST_MEMORY_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    made = above / name
    made.mkdir(exist_ok=True)
    try:
        yield str(made)
    finally:
        for path in made.iterdir():
            if path.name not in ("head", "trace"):
                path.unlink()


@contextlib.contextmanager
def _made(place: Repository) -> Iterator[Mirror]:
    with room() as directory:
        mirror = Mirror(place, directory)
        mirror.link_references()
        yield mirror


@dataclass(slots=True)
class Mirror:
    """Fill the temporary git directory."""

    place: Repository
    directory: str

    def link_references(self) -> None:
        """Link to objects and references."""
        for name in ("objects", "refs"):
            if not (real := self._link(name)):
                raise git_error("Not a git repository: it has no objects or no references.")
            check_below(real, self.place.jail)
        os.mkdir(f"{self.directory}/info")
        for name in _SHARED:
            if os.path.isdir(real := self._link(name)):
                check_below(real, self.place.jail)
        self._link("info/sparse-checkout", self.place.git_dir)
        head = self._read(f"{self.place.git_dir}/HEAD", limits.FILE_PATH_MAX_BYTES)
        self._check_head(head)
        self._write("HEAD", head)

    def _check_head(self, head: bytes) -> None:
        """Raise GIT_ERROR unless HEAD leads, by references alone, to a branch or a commit."""
        for _ in range(_REFERENCES_MAX):
            if not (found := _HEAD.match(head)):
                break
            if found["name"] is None:
                return
            name = os.fsdecode(found["name"])
            base = self.place.git_dir if name.startswith(_OWN) else self.place.common_dir
            head = b""
            with Ignoring("FILE_INVALID_PATH"):  # a directory
                head = self._read(f"{base}/{name}", limits.FILE_PATH_MAX_BYTES)
            if not head:
                return  # the branch is packed, or yet to come
        raise git_error(HEAD_DAMAGED)

    def configure(self, found: list[Effective], more: list[Setting]) -> None:
        """Write the allowed configuration."""
        settings = self._listed(f"{self.place.common_dir}/config")
        # here and below the last of several values counts
        if dict(settings).get("extensions.worktreeconfig", "").lower() in _TRUE:
            settings += self._listed(f"{self.place.git_dir}/config.worktree")
        harmless = config.of_repository(settings)
        # where git looks for the user's own files by default
        names = (("core.excludesFile", "ignore"), ("core.attributesFile", "attributes"))
        files = [(key, f"{git.settings_base()}/git/{name}") for key, name in names]
        mine = [(key, path) for key, path in files if path[:1] == "/" and os.path.isfile(path)]
        mine += config.of_user((one.key, one.value) for one in found if not one.own)
        self._write("config", config.text([*mine, *harmless, *_OURS, *more]))

    def copy_index(self) -> None:
        """Copy the index with its time, and the shared ones it refers to.

        Git compares the index's time to know which files it must read again.
        """
        with translate_os_errors():
            names = os.listdir(self.place.git_dir)
        room = limits.GIT_INDEX_MAX_BYTES  # for all: a file with holes takes none in the repository
        for name in ("index", *(name for name in names if name.startswith("sharedindex."))):
            path, to = f"{self.place.git_dir}/{name}", f"{self.directory}/{name}"
            with Ignoring("FILE_NOT_FOUND"):
                room -= _copy(self.place.jail, path, to, room)

    def _link(self, name: str, base: str = "") -> str:
        """Link to the real path of something; return it, empty when there is nothing."""
        with Ignoring("FILE_NOT_FOUND", "FILE_INVALID_PATH"):
            real = self.place.jail.resolve(f"{base or self.place.common_dir}/{name}")
            os.symlink(real, f"{self.directory}/{name}")
            return real
        return ""

    def _listed(self, path: str) -> list[Setting]:
        data = self._read(path, limits.GIT_CONFIG_MAX_BYTES)
        return config.read_file(os.path.basename(path), data, self.directory)

    def _read(self, path: str, most: int) -> bytes:
        data = b""
        with Ignoring("FILE_NOT_FOUND"), self.place.jail.open_file(path) as opened:
            data = os.read(opened.fd, most + 1)
        if len(data) > most:
            text = f"The repository's {os.path.basename(path)} is too large."
            raise git_error(text)
        return data

    def _write(self, name: str, data: bytes) -> None:
        Path(self.directory, name).write_bytes(data)


def _copy(jail: Jail, path: str, to: str, most: int) -> int:
    """Copy a file of a repository with its time; return its size."""
    with jail.open_file(path) as opened:
        if opened.stat.st_size > most:
            text = f"The repository's {os.path.basename(path)} is larger than the bridge copies."
            raise git_error(text)
        with open(opened.fd, "rb", closefd=False) as source, open(to, "wb") as copy:
            shutil.copyfileobj(source, copy, limits.MB)
        os.utime(to, ns=(opened.stat.st_atime_ns, opened.stat.st_mtime_ns))
        return opened.stat.st_size
