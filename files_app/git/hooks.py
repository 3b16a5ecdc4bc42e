"""Run a repository's commit hooks with their user's environment (D10).

Only hooks inside the roots are run, each through a script that restores the environment. Two
scripts do more: one sees to it that git moves HEAD from where the bridge has seen it, one notes the
commit.
"""

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from files_app.git.sandbox import config, git
from files_app.git.sandbox.error_text import git_error
from files_app.git.sandbox.mirror import Mirror

NAMES: Final = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")
# there is nobody to answer, and hooks go by that
_KEPT: Final = frozenset({"GIT_TERMINAL_PROMPT", "GIT_EDITOR"})
_MADE: Final = "made"  # the file in the mirror that names the commit


def install(mirror: Mirror, environment: Mapping[str, str], branch: str, before: str) -> None:
    """Write the scripts that git runs as hooks.

    ``environment``: that of the sandboxed git, which the scripts remove. Hooks outside the roots
    and hooks that are not executable are left out. ``branch`` and ``before``: where HEAD was when
    the index was copied. Git has read HEAD by the time of pre-commit, and moves it from there only.
    Had it moved before, git would commit the files of the commit before, and so undo the other.
    """
    directory = f"{mirror.directory}/hooks"
    os.mkdir(directory)
    where, head = _directory(mirror), f"{'' if branch == 'HEAD' else branch}\n{before}".strip()
    run, made = shlex.quote(git.executable()), shlex.quote(f"{mirror.directory}/{_MADE}")
    look = f"{run} symbolic-ref -q HEAD; {run} rev-parse -q --verify HEAD"
    ours = {
        "pre-commit": f'[ "$({look})" = {shlex.quote(head)} ] || exit 1\n',
        "post-commit": f"{run} rev-parse HEAD >{made}\n",
    }
    for name in NAMES:
        text = ours.get(name, "")
        if _may_run(f"{where}/{name}", mirror.place.jail):
            text += _script(f"{where}/{name}", environment)
        elif not text:
            continue
        path = f"{directory}/{name}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as script:
            script.write(os.fsencode(f"#!/bin/sh\n{text}"))
        # git would leave the hook out, and commit what it would have refused
        if not os.access(path, os.X_OK):
            raise git_error(
                "A commit needs hooks, but nothing can be run from where the bridge keeps its data."
            )


def commit_made(directory: str) -> str:
    """Return the commit that git made in this mirror, empty for none."""
    with contextlib.suppress(FileNotFoundError):
        return Path(directory, _MADE).read_text().strip()
    return ""


def _directory(mirror: Mirror) -> str:
    """Return the directory of hooks that the repository, else the user, names."""
    settings = (mirror.settings, mirror.user_settings)
    path = next(filter(None, (config.last(one, "core.hookspath") for one in settings)), "")
    if not path:
        return f"{mirror.place.common_dir}/hooks"
    return config.absolute(path) or f"{mirror.place.top}/{path}"


def _may_run(path: str, jail: Jail) -> bool:
    try:
        real = jail.resolve(path)
    except BridgeError:
        return False
    return os.path.isfile(real) and os.access(real, os.X_OK)


def _script(hook: str, environment: Mapping[str, str]) -> str:
    user = git.user_environment()
    differs = (name for name in environment if environment[name] != user.get(name))
    changed = sorted(name for name in differs if name not in _KEPT)
    unset = " ".join(name for name in changed if name not in user)
    lines = [f"unset GIT_WORK_TREE {unset}"]
    lines += [f"export {name}={shlex.quote(user[name])}" for name in changed if name in user]
    return "\n".join([*lines, f'exec {shlex.quote(hook)} "$@"', ""])
