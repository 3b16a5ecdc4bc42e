"""Look at the files that a call names, for what rules cover (D68)."""

import os
import re
import stat
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge_project.protocol.risk import PATH_MAX_CHARS, SECRET_PATH, SENSITIVE_PATH
from sessions_app.approvals.rules import tables

MOST_FILES_LOOKED_AT: Final = 20_000  # for secrets among what a call would read, or links
# How tools take what looks like a name for another: a home directory, a mark before a path or a
# file of arguments, a URL, an escape, spaces that are cut off
_OTHER_NAME: Final = re.compile(r"[~@\s]|[\w+-]+:/|.*\\|.*\s\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Answer for the words of a command that runs in ``here``, below ``top``.

    ``top``: the session's directory, resolved. Words are looked up as the files are now, links
    followed.
    """

    top: Path
    here: Path
    # below directories that this call would read, and whether through links; each but once
    looked_at: set[tuple[str, bool]] = field(default_factory=set, compare=False, repr=False)

    def moved(self, word: str) -> "Place | None":
        found = self._real(word)
        if found is None or not found.is_dir() or self._is_sensitive(found):
            return None
        return Place(self.top, found, self.looked_at)

    def is_covered(self, word: str, *, contents: bool = False, follows: bool = False) -> bool:
        found = self._real(word)
        if found is None or self._is_sensitive(found):
            return False
        below = found.is_dir() and (contents or follows)
        return not below or self._covers_below(found, follows=follows)

    def is_editable(self, word: str) -> bool:
        """Return whether a file, which may not exist yet, is one that *edits* covers."""
        folder = self._real(os.path.dirname(word) or ".", new=True)
        name = os.path.basename(word)
        if folder is None or name in ("", ".", "..") or not _is_plain(word):
            return False
        at = folder / name
        try:
            about = os.lstat(at)
        except FileNotFoundError:
            about = None
        except (OSError, ValueError):
            return False
        if about is not None and (not stat.S_ISREG(about.st_mode) or about.st_nlink > 1):
            return False  # a link, also a hard one, is another file
        if about is not None and about.st_mode & 0o111:
            return False  # a program
        below = at.relative_to(self.top)
        return not (is_sensitive(below.as_posix()) or tables.is_run_by_tools(below.parts))

    def has_program(self, name: str) -> bool:
        return "/" not in name and os.path.lexists(self.here / "node_modules/.bin" / name)

    def is_top_of_repository(self) -> bool:
        """Return whether git finds no repository on its way up to that of ``top``.

        A directory with a file HEAD may be one, whose configuration names programs.
        """
        way = [self.here, *self.here.parents]
        way = way[: way.index(self.top) + 1]
        found = [one for one in way if os.path.lexists(one / ".git")]
        return found == [self.top] and not any(os.path.lexists(one / "HEAD") for one in way)

    def _is_sensitive(self, found: Path) -> bool:
        return is_sensitive(found.relative_to(self.top).as_posix())

    def _covers_below(self, folder: Path, *, follows: bool) -> bool:
        """Return whether a directory holds no sensitive files, nor such links.

        Where links are followed, a link to a directory is one. False when there are more than one
        can look at, with all that the call has named before.
        """
        for path, folders, files in os.walk(folder):
            if (path, follows) in self.looked_at:
                folders.clear()
                continue
            if not follows:
                folders[:] = [name for name in folders if name != ".git"]
            found = [os.path.join(path, name) for name in (*folders, *files)]
            self.looked_at.update((at, follows) for at in found[len(folders) :])
            self.looked_at.add((path, follows))
            if len(self.looked_at) > MOST_FILES_LOOKED_AT:
                return False
            if any(is_sensitive(os.path.relpath(at, self.top)) for at in found[len(folders) :]):
                return False
            links = filter(os.path.islink, found if follows else [])
            if any(os.path.isdir(at) or not self.is_covered(at) for at in links):
                return False
        return True

    def _real(self, word: str, *, new: bool = False) -> Path | None:
        """Return where a word leads, None if out of the session's directory."""
        if not _is_plain(word):
            return None
        try:
            found = Path(os.path.realpath(self.here / word))
            # shells and tools go back by the words, the system by where links have led
            if found != Path(os.path.realpath(os.path.normpath(self.here / word))):
                return None
            mode = os.lstat(found).st_mode if not new or os.path.lexists(found) else stat.S_IFDIR
        except (OSError, ValueError):
            return None
        plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        return found if plain and found.is_relative_to(self.top) else None


def _is_plain(word: str) -> bool:
    """Return whether a path is the same path to every tool."""
    printable = 0 < len(word) <= PATH_MAX_CHARS and word.isprintable()
    same = unicodedata.is_normalized("NFKC", word)
    return printable and same and not _OTHER_NAME.match(word)


def is_sensitive(path: str) -> bool:
    """Return whether a path, relative or absolute, is covered by no rule."""
    return bool(
        SECRET_PATH.search(path)
        or SENSITIVE_PATH.search(path)
        or ".git" in path.casefold().split("/")
    )
