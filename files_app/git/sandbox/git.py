"""Run git with an environment and a configuration of our own (D10)."""

import os
import pwd
import shutil
import stat
import time
from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from bridge_project.kernel import child_environment, child_process, limits
from bridge_project.kernel.child_process import Done
from bridge_project.kernel.disk_threads import reaches
from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.path_jail import shown
from files_app.git.sandbox.error_text import git_error, reason
from sessions_app.working_directory import Repository, git_dir_of

# Neither the machine's nor anybody's configuration, no lock, no question, no pager, no network; a
# name is a name and no pattern.
_FIXED: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_ADVICE": "0",
    "LC_ALL": "C",
}
_READ_BY_GIT: Final = frozenset({".gitignore", ".gitattributes", ".gitmodules", ".mailmap"})
# variables meant for another git, or for the bridge's own Python
_FOREIGN: Final = ("GIT_", "PYTHON")


def home() -> str:
    return os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir


def settings_base() -> str:
    """Return where the user's programs have their settings."""
    return os.environ.get("XDG_CONFIG_HOME") or f"{home()}/.config"


def user_environment() -> dict[str, str]:
    """Return the part of the bridge's environment that the user's programs may see."""
    found = child_environment.scrubbed()
    kept = {name: found[name] for name in found if not name.startswith(_FOREIGN)}
    return kept | {"PATH": child_process.search_path(), "HOME": home()}


def own_environment(place: Repository) -> dict[str, str]:
    """Return the user's environment in which git works with this repository (D63).

    It runs at the top. Whoever asks for its settings must ask the git that obeys them: another
    repository may lie there (``core.worktree``), and settings may be included by how git has found
    its directory.
    """
    with Ignoring("FILE_NOT_FOUND", "FILE_ACCESS_DENIED", "FILE_INVALID_PATH", "GIT_ERROR"):
        if git_dir_of(place.top, place.jail) == place.git_dir:
            return user_environment()
    return user_environment() | {"GIT_DIR": place.git_dir, "GIT_WORK_TREE": place.top}


def reading_environment(directory: str) -> dict[str, str]:
    """Return the environment of a git that only reads the mirror ``directory``."""
    ours = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "TMPDIR", "GIT_DIR"), directory)
    return _FIXED | {"PATH": child_process.search_path()} | ours


@cache
def executable() -> str:
    """Return git's absolute path."""
    found = shutil.which("git", path=child_process.search_path())
    if found is None:
        raise git_error("git is not installed on the bridge's machine.")
    return found


def run(arguments: Sequence[str], *, seconds: float = limits.GIT_READ_SECONDS, **how: Any) -> Done:
    """Run git by ``child_process.run``; raise GIT_ERROR when it takes too long."""
    try:
        return child_process.run([executable(), *arguments], seconds=seconds, **how)
    except TimeoutError as error:
        raise git_error(f"git took longer than {error} and was ended.") from None
    except (FileNotFoundError, NotADirectoryError):  # git exists, so the directory does not
        raise BridgeError("FILE_NOT_FOUND") from None
    except PermissionError:
        raise BridgeError("FILE_ACCESS_DENIED") from None


@dataclass(frozen=True, slots=True)
class Git:
    """Run git on one repository; ``directory`` is its mirror."""

    place: Repository
    directory: str
    environment: Mapping[str, str]

    @property
    def index(self) -> str:
        return f"{self.directory}/index"

    def __call__(self, *arguments: str, **how: Any) -> bytes:
        """Return git's output, as ``done``; GIT_ERROR when it fails or is too long."""
        done = self.done(*arguments, **how)
        if done.cut:
            raise git_error(
                f"git printed more than the {limits.GIT_LIST_MAX_BYTES // limits.MB} MB that"
                " the bridge reads."
            )
        return done.out

    def done(
        self,
        *arguments: str,
        index: str = "",
        good: Container[int] = (0,),
        max_bytes: int = limits.GIT_LIST_MAX_BYTES,
        **how: Any,
    ) -> Done:
        """Return how git ended; raise GIT_ERROR with its reason when it failed.

        ``good`` are the exit codes that are no failure, ``index`` another index than the
        mirror's. ``seconds`` and ``max_bytes`` are by default those of a call that lists.
        """
        places = {"GIT_WORK_TREE": self.place.top, "GIT_INDEX_FILE": index or self.index}
        done = run(
            ["--no-pager", *arguments],
            cwd=self.place.top,
            environment={**self.environment, **places},
            max_bytes=max_bytes,
            check=partial(_check_settings_files, self.place.top),
            **how,
        )
        if not done.cut and done.code not in good:
            raise git_error(self._reason(done))
        return done

    def _reason(self, done: Done) -> str:
        """Return why git failed, in its words or a hook's."""
        for output in (done.err, done.out):
            if said := reason(output, self.place.jail, self.place.top, self.directory):
                return said
        if done.code < 0:
            return f"git was ended by signal {-done.code}."
        return f"git failed and said nothing (exit code {done.code})."


def _check_settings_files(top: str) -> None:
    """Raise GIT_ERROR when git waits for a FIFO named .gitignore or the like; slow."""
    deadline = time.monotonic() + limits.GIT_READ_SECONDS
    waiting = deque([top])
    while waiting and time.monotonic() < deadline:
        directory = waiting.popleft()
        reaches(directory)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name in _READ_BY_GIT and _is_special(entry.path):
                        name = shown(os.path.relpath(entry.path, top))
                        raise git_error(f"{name} is no file, and git would wait for it.")
                    if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:  # vanished, or not to be read: nor by git
            continue


def _is_special(path: str) -> bool:
    """Return whether a path leads to neither file nor directory; /dev/null is fine."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    usual = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return not usual and not os.path.samestat(found, os.stat(os.devnull))
