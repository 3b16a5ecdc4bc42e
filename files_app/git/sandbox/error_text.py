"""Make errors about git, and clean git's own text; remove paths outside the roots."""

import os
import re
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from bridge_project.kernel.path_walk import names_of
from bridge_project.kernel.terminal_output import shown_output

# An address is no path; what follows a name or a `~` is the middle of one.
_PATHS: Final = re.compile(
    r"""(?P<url>(?!file:)\b[A-Za-z][A-Za-z0-9+.-]*://\S*)|(?<![\w./~-])(?P<path>/[^\s'"`<>|;:,()]*)"""
)
HEAD_DAMAGED: Final = "The repository is damaged: its HEAD names no branch and no commit."
_NOISE: Final = re.compile(r"(?:hint|remote): ?")
_PREFIX: Final = re.compile(r"(?:(?:fatal|error|warning): )?(?:…: )?")


def git_error(text: str) -> BridgeError:
    """Return the error GIT_ERROR with this text for a person."""
    return BridgeError("GIT_ERROR", text)


def reason(text: bytes, jail: Jail, top: str, private: str) -> str:
    """Clean git's error text.

    Paths in the work tree become relative to ``top``, others stay only where they lie inside the
    roots, those in ``private`` never.
    """
    cleaned = shown_output(text.decode("utf-8", "replace"))
    # these two before the others: they may have a space in them
    cleaned = _under(private).sub("…", cleaned)
    cleaned = _under(top).sub(lambda found: found[1] or "the work tree", cleaned)
    lines = [line.rstrip() for line in cleaned.split("\n")]
    useful = (line for line in lines if line.strip() and not _NOISE.match(line))
    kept = "\n".join(_PREFIX.sub("", line, count=1) for line in useful)
    return _cut(_PATHS.sub(lambda found: found["url"] or _place(found["path"], jail), kept))


def _under(place: str) -> re.Pattern[str]:
    """Match a directory's path and everything that certainly belongs to it."""
    return re.compile(re.escape(place) + r"(?:/([^\s'\"`<>|;,():]+)|/?(?![\w~-]|\.\w))")


def _place(path: str, jail: Jail) -> str:
    names = names_of(os.path.normpath(path.rstrip(".:")))
    inside = any(names[: len(root)] == root for root in jail.roots) and not jail.hides(names)
    return path if inside else "…" + path[len(path.rstrip(".:")) :]


def _cut(text: str) -> str:
    """Keep the beginning and the end, where the reasons are."""
    half = limits.GIT_REASON_MAX_CHARS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n…\n{text[-half:]}"
