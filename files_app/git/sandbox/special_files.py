"""Find FIFOs named .gitignore and the like, at which git would wait for ever."""

import os
import stat as st
import time
from collections import deque
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.path_jail import shown
from files_app.git.sandbox.error_text import git_error

_READ_BY_GIT: Final = frozenset({".gitignore", ".gitattributes", ".gitmodules", ".mailmap"})


def check(top: str) -> None:
    """Raise GIT_ERROR when a settings file below ``top`` is no regular file; slow."""
    deadline = time.monotonic() + limits.GIT_READ_SECONDS
    waiting = deque([top])
    while waiting and time.monotonic() < deadline:
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    if entry.name in _READ_BY_GIT and _is_special(entry.path):
                        name = shown(os.path.relpath(entry.path, top))
                        raise git_error(f"{name} is no file, and git would wait for it.")
                    if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:  # vanished, or not to be read: nor by git
            continue


def _is_special(path: str) -> bool:
    """Tell whether a path leads to neither file nor directory; /dev/null is fine."""
    try:
        stat = os.stat(path)
    except OSError:
        return False
    return not (st.S_ISREG(stat.st_mode) or st.S_ISDIR(stat.st_mode)) and not os.path.samestat(
        stat, os.stat(os.devnull)
    )
