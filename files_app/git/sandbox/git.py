"""Git as the bridge calls it: an environment in which nothing but the mirror decides (D10)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from bridge_project.kernel import child_environment, limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from files_app.git.sandbox import process, special_files
from files_app.git.sandbox.error_text import reason
from files_app.git.sandbox.process import Done
from sessions_app.working_directory import Place

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
# what was meant for another git, or for the bridge's own Python
_FOREIGN: Final = ("GIT_", "PYTHON")


def home() -> str:
    """The home directory of the bridge's user."""
    return os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir


def user_environment() -> dict[str, str]:
    """The bridge's environment without its secrets and settings: what the user's own programs may
    see.
    """
    kept = {
        name: value
        for name, value in child_environment.scrubbed().items()
        if not name.startswith(_FOREIGN)
    }
    return kept | {"PATH": process.search_path(), "HOME": home()}


def reading_environment(directory: str) -> dict[str, str]:
    """For a git that is given everything in ``directory``, its git directory and home."""
    return _FIXED | {
        "PATH": process.search_path(),
        "HOME": directory,
        "XDG_CONFIG_HOME": directory,
        "TMPDIR": directory,
        "GIT_DIR": directory,
    }


def committing_environment(directory: str, git_dir: str) -> dict[str, str]:
    """For a git that writes to ``git_dir`` and takes configuration and hooks from ``directory``."""
    return (
        user_environment()
        | _FIXED
        | {
            "HOME": directory,
            "XDG_CONFIG_HOME": directory,
            "GIT_DIR": git_dir,
            "GIT_COMMON_DIR": directory,
        }
    )


@dataclass(frozen=True, slots=True)
class Git:
    """Git on one repository: ``directory`` is its mirror, ``environment`` what it sees, ``index``
    the copy of the index that it works with.
    """

    place: Place
    jail: Jail
    directory: str
    environment: Mapping[str, str]

    @property
    def index(self) -> str:
        return f"{self.directory}/index"

    def __call__(
        self, *arguments: str, stdin: bytes = b"", seconds: float | None = None, index: str = ""
    ) -> bytes:
        """What it prints. Raises BridgeError GIT_ERROR with git's reason when it fails, and when it
        prints more than a list may be long.
        """
        done = self.done(*arguments, stdin=stdin, seconds=seconds, index=index)
        if done.cut:
            raise BridgeError(
                "GIT_ERROR",
                f"git has more to say than the {limits.GIT_LIST_MAX_BYTES // limits.MB} MB that the bridge reads.",
            )
        return done.out

    def done(
        self,
        *arguments: str,
        stdin: bytes = b"",
        seconds: float | None = None,
        max_bytes: int | None = None,
        index: str = "",
        good: Container[int] = (0,),
    ) -> Done:
        """How it ended; ``good`` are the exit codes that are no failure, ``index`` another index
        than the mirror's.

        ``seconds`` and ``max_bytes``: by default those of a call that reads, and of a list.
        """
        environment = {
            **self.environment,
            "GIT_WORK_TREE": self.place.top,
            "GIT_INDEX_FILE": index or self.index,
        }
        done = process.run(
            ["--no-pager", *arguments],
            cwd=self.place.top,
            environment=environment,
            stdin=stdin,
            seconds=limits.GIT_READ_SECONDS if seconds is None else seconds,
            max_bytes=limits.GIT_LIST_MAX_BYTES if max_bytes is None else max_bytes,
            check=partial(special_files.check, self.place.top),
        )
        if not done.cut and done.code not in good:
            raise BridgeError("GIT_ERROR", self.reason(done))
        return done

    def reason(self, done: Done) -> str:
        """Why it failed, in git's words, or a hook's."""
        said = reason(done.err, self.jail, self.place.top, self.directory) or reason(
            done.out, self.jail, self.place.top, self.directory
        )
        if said:
            return said
        return (
            f"git was ended by signal {-done.code}."
            if done.code < 0
            else f"git failed without a word (exit code {done.code})."
        )
