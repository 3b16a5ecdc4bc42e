"""Run plain git in the user's repository, without a terminal (D63)."""

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.kernel.child_process import Done
from bridge_project.kernel.config import conf
from files_app.git.sandbox import git
from files_app.git.sandbox.error_text import git_error, reason
from sessions_app.working_directory import Repository

# nobody can answer a question, neither at a terminal nor at the machine's screen
NO_PAGER: Final = "--no-pager"
_UNASKED: Final = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "SSH_ASKPASS": ""}


@dataclass(frozen=True, slots=True)
class Plain:
    """Run git with its user's configuration; ``index``: another than the usual.

    It is named from the top of the work tree. ``more`` is added to the environment.
    """

    place: Repository
    index: str = ""
    more: tuple[tuple[str, str], ...] = ()

    def __call__(self, *arguments: str, **how: Any) -> bytes:
        """Return git's output; GIT_ERROR when it fails."""
        return self.done(*arguments, **how).out

    def done(
        self,
        *arguments: str,
        good: Container[int] = (0,),
        seconds: float | None = None,
        stdin: bytes = b"",
        pass_fds: Sequence[int] = (),
    ) -> Done:
        """Return how git ended; GIT_ERROR with what it or a hook said."""
        done = git.run(
            [NO_PAGER, *arguments],
            cwd=self.place.top,
            environment=self.environment(),
            seconds=limits.GIT_COMMIT_SECONDS if seconds is None else seconds,
            stdin=stdin,
            pass_fds=pass_fds,
            max_bytes=limits.GIT_LIST_MAX_BYTES,
        )
        if done.code not in good:
            raise git_error(self.said(done))
        return done

    def environment(self) -> dict[str, str]:
        found = git.own_environment(self.place) | _UNASKED | dict(self.more)
        if self.index:
            found["GIT_INDEX_FILE"] = self.index
        return found

    def said(self, done: Done) -> str:
        """Return why git failed, in its words or a hook's."""
        private = str(conf.bridge_data_dir)
        for output in (done.err, done.out):
            if words := reason(output, self.place.jail, self.place.top, private):
                return words
        if done.code < 0:
            return f"git was ended by signal {-done.code}."
        return f"Nothing changed, or a hook refused and said nothing (exit code {done.code})."


def batch_ssh(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the environment in which the user's ssh asks nothing."""
    command = values.get("core.sshcommand", "ssh")
    words = command.split()
    if not words or os.path.basename(words[0]) != "ssh":  # another program has other options
        return ()
    return (("GIT_SSH_COMMAND", f"{command} -o BatchMode=yes"),)
