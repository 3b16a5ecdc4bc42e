"""Look at the files that a call names, for what rules cover (D68)."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge_project.protocol.risk import PATH_MAX_CHARS, SECRET_PATH, SENSITIVE_PATH
from sessions_app.approvals.rules import tables

MOST_FILES_LOOKED_AT: Final = 20_000  # for secrets among what a command would read


@dataclass(frozen=True, slots=True)
class Place:
    """Answer for the words of a command that runs in ``here``, below ``top``.

    ``top``: the session's directory, resolved. Words are looked up as the files are now, links
    followed.
    """

    top: Path
    here: Path

    def moved(self, word: str) -> "Place | None":
        found = self._real(word)
        return Place(self.top, found) if found is not None and found.is_dir() else None

    def is_covered(self, word: str, *, contents: bool = False) -> bool:
        found = self._real(word.removesuffix("...") or word)
        if found is None or is_sensitive(found.relative_to(self.top).as_posix()):
            return False
        return not (contents and found.is_dir() and _has_secrets(found))

    def is_editable(self, word: str) -> bool:
        """Return whether a file, which may not exist yet, is one that *edits* covers."""
        folder = self._real(os.path.dirname(word) or ".", new=True)
        name = os.path.basename(word)
        if folder is None or name in ("", ".", ".."):
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
        below = at.relative_to(self.top)
        return not (is_sensitive(below.as_posix()) or tables.is_run_by_tools(below.parts))

    def has_program(self, name: str) -> bool:
        return "/" not in name and os.path.lexists(self.here / "node_modules/.bin" / name)

    def is_top_of_repository(self) -> bool:
        return os.path.lexists(self.top / ".git")

    def _real(self, word: str, *, new: bool = False) -> Path | None:
        """Return where a word leads, None if out of the session's directory."""
        if not word or "\0" in word or len(word) > PATH_MAX_CHARS:
            return None
        try:
            found = Path(os.path.realpath(self.here / word))
            mode = os.lstat(found).st_mode if not new or os.path.lexists(found) else stat.S_IFDIR
        except (OSError, ValueError):
            return None
        plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        return found if plain and found.is_relative_to(self.top) else None


def is_sensitive(path: str) -> bool:
    """Return whether a path, relative or absolute, is covered by no rule."""
    return bool(
        SECRET_PATH.search(path) or SENSITIVE_PATH.search(path) or ".git" in path.split("/")
    )


def _has_secrets(folder: Path) -> bool:
    """Return whether a directory holds sensitive files, or more than one can look at."""
    seen = 0
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        seen += len(files) + len(folders)
        if seen > MOST_FILES_LOOKED_AT:
            return True
        if any(is_sensitive(os.path.relpath(os.path.join(path, name), folder)) for name in files):
            return True
    return False
