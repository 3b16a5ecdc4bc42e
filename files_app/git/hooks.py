"""Run a repository's commit hooks with their user's environment (D10)."""

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
# they tell hooks that nobody can answer
_KEPT: Final = frozenset({"GIT_TERMINAL_PROMPT", "GIT_EDITOR"})
_MADE: Final = "made"  # the file in the mirror that names the commit


def install(mirror: Mirror, environment: Mapping[str, str], branch: str, before: str) -> None:
    """Write the scripts that git runs as hooks: the repository's, and a guard of ours.

    ``environment``: that of the sandboxed git, which the scripts remove. Hooks outside the roots
    and hooks that are not executable are left out. ``branch`` and ``before``: what git may move,
    and from which commit, zeros for none.
    """
    directory = f"{mirror.directory}/hooks"
    os.mkdir(directory)
    where = _directory(mirror)
    theirs = [name for name in NAMES if _may_run(f"{where}/{name}", mirror.place.jail)]
    scripts = {name: _script(f"{where}/{name}", environment) for name in theirs}
    scripts["reference-transaction"] = _guard(branch, before, f"{mirror.directory}/{_MADE}")
    for name, text in scripts.items():
        path = f"{directory}/{name}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as script:
            script.write(os.fsencode(text))
        # git would leave the hook out, and commit what it would have refused
        if not os.access(path, os.X_OK):
            raise git_error(
                "git cannot run the commit's hooks: the data directory is mounted noexec."
            )


def commit_made(directory: str) -> str:
    """Return the commit that git made in this mirror, empty for none."""
    with contextlib.suppress(FileNotFoundError):
        return Path(directory, _MADE).read_text().strip()
    return ""


def _guard(branch: str, before: str, made: str) -> str:
    """Return a hook that refuses to move HEAD unless it is where the index was copied.

    Git reads HEAD after that copy: on top of a commit made in between it would commit the files of
    the one before, and so undo it. Git runs this hook when it has locked the branch, with a line
    ``OLD NEW NAME`` for HEAD (OLD is zero in some versions) and one for the branch, and again when
    it has moved it; then the hook writes the commit to the file ``made``.
    """
    alone = '[ -z "$others" ]' if branch == "HEAD" else ":"
    return f"""#!/bin/sh
[ "$1" = prepared ] || [ "$1" = committed ] || exit 0
moved= own= others=
while read -r old new name; do
    case "$old $name" in
    {shlex.quote(f"{before} {branch}")}) own=$new ;;
    *" HEAD") moved=yes ;;
    *" refs/heads/"*) moved=yes others=yes ;;
    esac
done
[ "$moved$own" ] || exit 0
[ "$own" ] && {alone} || exit 1
[ "$1" = prepared ] || echo "$own" >{shlex.quote(made)}
"""


def _directory(mirror: Mirror) -> str:
    """Return the directory of hooks that the repository, else the user, names."""
    settings = (mirror.settings, mirror.user_settings)
    path = next(filter(None, (dict(one).get("core.hookspath") for one in settings)), "")
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
    lines = ["#!/bin/sh", f"unset GIT_WORK_TREE {unset}"]
    lines += [f"export {name}={shlex.quote(user[name])}" for name in changed if name in user]
    return "\n".join([*lines, f'exec {shlex.quote(hook)} "$@"', ""])
