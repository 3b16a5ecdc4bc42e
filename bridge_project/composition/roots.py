"""Choose the directories that agents may use (D78)."""

import os
from collections.abc import Sequence
from pathlib import Path

from django.core.management.base import CommandError

from bridge_project.kernel.config import Conf
from bridge_project.kernel.place import IN_CLONE, PROJECT_DIR, short
from bridge_project.kernel.text import terminal_safe


def choose(conf: Conf, named: Sequence[str]) -> None:
    """Allow the directories named, else check the one that is used unasked.

    Raises CommandError. What `BRIDGE_ALLOWED_ROOTS` says was meant, whatever it is.
    """
    if named:
        found = [Path(os.path.realpath(os.path.expanduser(one))) for one in named]
        for one in found:
            if why := _refusal(one):
                text = f"Agents may not use {terminal_safe(str(one))}: it {why}"
                meant = " If that is meant, set BRIDGE_ALLOWED_ROOTS." if one.is_dir() else ""
                raise CommandError(f"{text}.{meant}")
        conf.use_roots(map(str, found))
    elif not conf.bridge_allowed_roots:
        here = Path(conf.allowed_roots[0])
        if IN_CLONE and here == PROJECT_DIR:
            return
        why = _refusal(here)
        if not why and Path(os.path.realpath(conf.bridge_data_dir)).is_relative_to(here):
            why = "holds the bridge's data"
        if why:
            text = f"Agents may not use {terminal_safe(str(here))}, where this started: it {why}"
            raise CommandError(f"{text}. Name one that they may: `{short('run', 'DIR')}`.")


def described(conf: Conf) -> str:
    """Return the directories, and how to change them."""
    change = f"{short('run', 'DIR …')}, or BRIDGE_ALLOWED_ROOTS"
    return f"{', '.join(map(terminal_safe, conf.allowed_roots))}   (others: {change})"


def _refusal(directory: Path) -> str:
    """Return why a directory is not allowed by being named; empty when it is."""
    home = Path.home().resolve()
    if not os.path.isdir(directory):
        return "is not a directory" if os.path.exists(directory) else "does not exist"
    if directory == directory.parent:
        return "is the whole machine"
    if home.is_relative_to(directory):
        return "is your home directory" if directory == home else "holds your home directory"
    return "" if directory.stat().st_uid == os.geteuid() else "belongs to another user"
