"""Make errors about git, and clean git's own text; remove paths outside the roots."""

import os
import re
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail
from bridge_project.kernel.path_walk import names_of

# An address is no path; what follows a name or a `~` is the middle of one.
_PATHS: Final = re.compile(
    r"""(?P<url>(?!file:)\b[A-Za-z][A-Za-z0-9+.-]*://\S*)|(?<![\w./~-])(?P<path>/[^\s'"`<>|;:,()]*)"""
)
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
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
    cleaned = _ESCAPES.sub("", text.decode("utf-8", "replace"))
    # these two before the others: they may have a space in them
    cleaned = _under(private).sub("…", cleaned)
    cleaned = _under(top).sub(lambda found: found[1] or "the work tree", cleaned)
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in cleaned.split("\n"))
    lines = [_CONTROLS.sub("", line).rstrip() for line in shown]
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
