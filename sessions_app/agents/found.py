"""Find the agents' programs by looking, and ask one for its version (D75).

A program counts where only the bridge's user and root can put one: not in a relative entry of PATH,
not below a root, where sessions work, and not where others may write.
"""

import grp
import os
import pwd
import re
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from bridge_project.kernel import child_environment, child_process, limits
from bridge_project.kernel.config import conf
from sessions_app.agents.process.launch import IN_SESSION

ABSENT = "is not installed, or not where the bridge looks."  # the end of why, when it is nowhere
_ADMINISTRATORS = {"root", "wheel", "sudo", "admin"}  # groups whose members can become root
_LINKS = 40  # as many as Linux follows
_NUMBER = re.compile(r"\d+(?:\.\d+)+(?:[-+][0-9A-Za-z.-]*[0-9A-Za-z])?")
_NPM_PREFIX = re.compile(r"^\s*prefix\s*=\s*(\S+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """Look for a program by its name; ``product`` is what its users call it."""

    name: str
    product: str

    def path(self) -> str | None:
        """Return where it is, the first of the places that count."""
        return next(filter(_counts, self._places()), None)

    def problem(self) -> str | None:
        """Return why it cannot be used, without naming a path; None when it can."""
        if self.path() is not None:
            return None
        if any(self._places()):
            return (
                f"{self.name} lies where others may write, or where sessions work "
                "(BRIDGE_ALLOWED_ROOTS), and the bridge takes no program from there. "
                "Install it elsewhere."
            )
        return f"{self.product} ({self.name}) {ABSENT}"

    def _places(self) -> Iterator[str]:
        """Yield the executable files of that name."""
        for directory in chain(child_process.search_path().split(os.pathsep), more_directories()):
            path = os.path.join(directory, self.name)
            if directory and os.access(path, os.X_OK) and os.path.isfile(path):
                yield path


def command_of(path: str) -> list[str]:
    """Return the words that run a program from where it was found.

    A directory outside PATH comes first in it: a script there needs the ``node`` beside it.
    """
    path_ = child_process.search_path()
    beside = os.path.dirname(path)
    if beside in path_.split(os.pathsep):
        return [path]
    return ["env", f"PATH={beside}{os.pathsep}{path_}", path]


def more_directories() -> Iterator[str]:
    """Yield where programs are that a service's short PATH lacks."""
    home = Path.home()
    yield str(home / ".local/bin")
    if prefix := os.environ.get("NPM_CONFIG_PREFIX") or _npm_prefix(home):
        yield os.path.join(prefix, "bin")
    yield str(home / ".npm-global/bin")
    versions = [path.parent for path in home.glob(".nvm/versions/node/v*/bin")]
    for version in sorted(versions, key=_numbers, reverse=True):
        yield str(version / "bin")
    yield from ("/usr/local/bin", "/opt/homebrew/bin")


def _npm_prefix(home: Path) -> str:
    try:
        found = _NPM_PREFIX.search((home / ".npmrc").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""
    prefix = os.path.expanduser(found[1].replace("${HOME}", "~")) if found else ""
    return prefix if os.path.isabs(prefix) else ""


def _numbers(version: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version.name)]


# -- which places count ----------------------------------------------------------------------------


def _counts(path: str) -> bool:
    """Return whether only root and this user can have put a program there."""
    try:
        if _is_exposed(os.path.dirname(path)):
            return False
        for _ in range(_LINKS):
            directory = os.path.realpath(os.path.dirname(path))
            path = os.path.join(directory, os.path.basename(path))
            if _is_exposed(directory):
                return False
            if not os.path.islink(path):
                return not _others_write(os.stat(path))
            path = os.path.join(directory, os.readlink(path))
    except OSError:  # it went away meanwhile
        pass
    return False


def is_owners(path: Path) -> bool:
    """Return whether a path is there, and only root and this user can change it."""
    real = os.path.realpath(path)
    try:
        directory = real if os.path.isdir(real) else os.path.dirname(real)
        return not (_others_write(os.stat(real)) or _is_exposed(directory))
    except OSError:
        return False


def _is_exposed(directory: str) -> bool:
    """Return whether sessions or other users may write there, or above it."""
    above = [directory, *map(str, Path(directory).parents)]
    if any(one in conf.allowed_roots for one in above):
        return True
    if _others_write(os.stat(directory)):
        return True
    # further up, who may only add something (as in /tmp) can replace nothing
    statuses = map(os.stat, above[1:])
    return any(_others_write(one) and not one.st_mode & stat.S_ISVTX for one in statuses)


def _others_write(status: os.stat_result) -> bool:
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_own_group(status.st_gid)


@cache
def _is_own_group(gid: int) -> bool:
    """Return whether a group has this user alone, or people who can become root."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name in _ADMINISTRATORS or (
        group.gr_name == user and set(group.gr_mem) <= {user}
    )


# -- the version -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold what a program said to ``--version``, or what was wrong with that."""

    version: str = ""
    trouble: str = ""


_Identity = tuple[int, int, int]  # of a file: another one when the program was installed again
_answers: dict[str, tuple[_Identity, float, Answer]] = {}
_asking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def ask(path: str) -> Answer:
    """Ask a program for its version, once for as long as it is the same file.

    After a trouble it is asked again AGENT_VERSION_AGAIN_SECONDS later. Call this in a thread.
    """
    with _asking[path]:
        try:
            status = os.stat(path)
        except OSError:
            return Answer()
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        known, until, answer = _answers.get(path, (None, 0.0, Answer()))
        if known != identity or time.monotonic() > until:
            answer = _run(path)
            lasts = limits.AGENT_VERSION_AGAIN_SECONDS if answer.trouble else float("inf")
            _answers[path] = (identity, time.monotonic() + lasts, answer)
        return answer


def _run(path: str) -> Answer:
    name, seconds = os.path.basename(path), limits.AGENT_VERSION_SECONDS
    try:
        done = child_process.run(
            [*command_of(path), "--version"],
            cwd="/",
            environment=child_environment.scrubbed(
                PATH=child_process.search_path(),
                **{IN_SESSION: "1"},  # no program at the desk (D67)
            ),
            seconds=seconds,
            max_bytes=limits.TOOL_OUTPUT_BYTES,
        )
    except TimeoutError:
        return Answer(trouble=f"{name} --version did not end within {seconds:g} s.")
    except OSError as error:
        return Answer(trouble=f"{name} --version could not be run: {error.strerror}.")
    number = _NUMBER.search(done.out.decode(errors="replace"))
    if done.code or number is None:
        why = f"ended with code {done.code}" if done.code else "names no version"
        return Answer(trouble=f"{name} --version {why}.")
    return Answer(number[0])
