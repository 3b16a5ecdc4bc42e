"""Find files by letters of their paths, as fast as a person types (D69)."""

import os
import time
from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, shown
from bridge_project.kernel.path_walk import Names, Opened, translate_os_errors

_NOT_ENTERED = frozenset({".git"})
# Looked into when all others are done: git is not asked so early, and would ignore most of them.
_LAST = frozenset({
    *("node_modules", "bower_components", "vendor", "target", "dist", "build", "out", "coverage"),
    *("venv", "env", "__pycache__", "site-packages", "Pods", "DerivedData"),
})  # fmt: skip
_NAMES_AT_ONCE = 64  # between two looks at the clock
_MATCHES = 5000  # to choose the best of
_SHARE = 0.7  # of the time, to look; the rest is to sort, and for a thread to be free


class Search:
    """Look below a directory for files whose paths have the query's letters in order.

    ``run`` ends within FILE_SEARCH_SECONDS; ``more`` says that there may be others. Links are not
    followed.
    """

    def __init__(self, jail: Jail, directory: str, query: str) -> None:
        self._jail = jail
        self._directory = directory
        self._letters = "".join(query.split()).casefold()
        self._found: list[Names] = []  # below the directory
        self._top: Names = ()
        self.more = False

    def run(self) -> None:
        """Search. Raises the jail's errors for the directory itself."""
        until = time.monotonic() + _SHARE * limits.FILE_SEARCH_SECONDS
        first: deque[Names] = deque([()])
        last: deque[Names] = deque()
        seen = 0
        with self._jail.open_dir(self._directory) as top:
            self._top = top.names
            while waiting := first or last:
                names = waiting.popleft()
                for name, is_directory in self._entries(top, names):
                    path = (*names, name)
                    if is_directory:
                        later = waiting is last or name in _LAST or name.startswith(".")
                        (last if later else first).append(path)
                    elif self._matches("/".join(path)):
                        self._found.append(path)
                    seen += 1
                    late = seen % _NAMES_AT_ONCE == 0 and time.monotonic() > until
                    if late or len(self._found) > _MATCHES:
                        self.more = True
                        return

    def best(self, limit: int, ignored: Collection[Names]) -> list[str]:
        """Return the best matches; what ``ignored`` names, or lies below it, comes last."""
        start = len(self._top)

        def rank(names: Names) -> tuple[bool, int, int, Names]:
            whole = (*self._top, *names)
            hidden = any(whole[:end] in ignored for end in range(start, len(whole) + 1))
            name, path = names[-1].casefold(), "/".join(names).casefold()
            how = (self._letters not in name) + (self._letters not in path)
            return hidden, how, len(path) if self._letters else len(names), names

        self._found.sort(key=rank)
        with self._jail.open_dir(self._directory) as top:
            allowed = (names for names in self._found if self._may_show(top, names))
            paths = [shown("/".join(names)) for names in islice(allowed, limit + 1)]
        self.more |= len(paths) > limit
        return paths[:limit]

    def _entries(self, top: Opened, names: Names) -> Iterator[tuple[str, bool]]:
        """Yield name and whether it is a directory, of a directory's entries but links."""
        try:
            with (
                self._jail.below(top, names) as directory,
                translate_os_errors(),
                os.scandir(directory.fd) as entries,
            ):
                for entry in entries:
                    is_directory = entry.is_dir(follow_symlinks=False)
                    known = is_directory or entry.is_file(follow_symlinks=False)
                    if known and entry.name not in _NOT_ENTERED:
                        yield entry.name, is_directory
        except BridgeError:  # gone meanwhile, or not to be read
            return

    def _matches(self, path: str) -> bool:
        if not self._letters:
            return True
        characters = iter(path.casefold())
        return all(letter in characters for letter in self._letters)

    def _may_show(self, top: Opened, names: Names) -> bool:
        try:
            with self._jail.below(top, names, "any"):
                return True
        except BridgeError:
            return False
