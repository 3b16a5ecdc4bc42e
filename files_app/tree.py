"""List directories: a tree for GET /files/tree, one level for file_list."""

import math
import os
import re
import stat as st
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.disk_threads import reaches
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, default_jail, shown
from bridge_project.kernel.path_walk import (
    Identity,
    Names,
    Opened,
    identity,
    join,
    names_of,
    translate_os_errors,
)
from bridge_project.protocol.jsontext import dumps_unicode
from files_app.content import PATH_ENVELOPE_BYTES, modified_at
from files_app.git.repository import repository_of
from files_app.git.sandbox import mirror

Entry = dict[str, Any]

_DEPTH = re.compile(r"[0-9]{1,4}")
# what an entry costs besides its name: its type, size and time, or its list of children
_ENTRY_BYTES = 110
_NOT_ENTERED = frozenset({".git"})  # its thousands of objects are of no use to a reader


def tree(
    jail: Jail, path: object, depth: object = limits.FILE_TREE_DEPTH, base: str | None = None
) -> dict[str, Any]:
    """Return the body of GET /files/tree.

    ``path`` is real and absolute; ``entries`` have name, type, size, modified_at and children. A
    relative path begins in ``base``, or in the first allowed root.

    ``depth`` (1 to 20, a number or its ASCII digits) counts levels: 1 is the directory's own
    entries. Files have ``size`` in bytes and ``modified_at``. Directories have ``children`` if they
    were looked into; deeper ones, ``.git``, and links back to a directory on the way are not.
    Directories come first, each kind by name. A link is shown as its target inside the roots, else
    left out, like anything that is neither file nor directory. Levels are filled from the top, up
    to FILE_TREE_MAX_ENTRIES and the JSON of one message (``max_message_size_mb``); the directories
    of a level share what is left, and what git ignores comes last. ``truncated: true`` says that
    something was cut; so does a directory where it was, with ``more``: how many entries, where that
    is known. Errors are the jail's (D12), and FILE_INVALID_PATH for a bad depth.
    """
    levels = str(depth)
    if not _DEPTH.fullmatch(levels) or not 1 <= int(levels) <= limits.FILE_TREE_MAX_DEPTH:
        text = f"`depth` is a whole number from 1 to {limits.FILE_TREE_MAX_DEPTH}."
        raise BridgeError("FILE_INVALID_PATH", text)
    with jail.open_dir(path, base=base) as top:
        grown = _Tree(jail, top, int(levels))
        found = grown.grow()
        if grown.truncated and int(levels) > 1 and (ignored := _ignored(jail, top.path)):
            grown = _Tree(jail, top, int(levels), ignored)
            found = grown.grow()
        answer: dict[str, Any] = {"path": shown(top.path), "entries": found.get("children", [])}
    if grown.truncated:
        answer["truncated"] = True
    return answer | {"more": found["more"]} if "more" in found else answer


def listing(jail: Jail, path: object, base: str | None = None) -> dict[str, Any]:
    """Return the fields of file_list_response, by the rules of ``tree``.

    Its ``entries`` have name, type and, for files, size. A relative path begins in ``base``, the
    session's working_directory (D12).
    """
    answer = tree(jail, path, 1, base)
    for entry in answer["entries"]:
        entry.pop("modified_at", None)
    return answer


@dataclass(slots=True)
class _Found:
    """Hold an entry; ``way``: the directories on the way to it, itself included.

    ``rest``: entries of a directory that are not shown yet; ``unread``: there are more of them than
    were looked at.
    """

    entry: Entry
    name: str
    names: Names
    level: int
    way: frozenset[Identity]
    loops: bool = False  # it leads back to a directory on the way
    rest: deque[Self] = field(default_factory=deque)
    unread: bool = False

    @property
    def is_entered(self) -> bool:
        entered = self.entry["type"] == "directory" and not self.loops
        return entered and _NOT_ENTERED.isdisjoint((self.name, *self.names[-1:]))

    def mark(self) -> bool:
        """Say in its entry what is missing; return whether anything is."""
        if self.unread or self.rest:
            self.entry["truncated"] = True
        if self.rest and not self.unread:
            self.entry["more"] = len(self.rest)
        return self.unread or bool(self.rest)


class _Tree:
    """Walk level by level, with two descriptors open: the top and one directory.

    The directories of a level share the room that it has, and those that ``ignored`` names come
    when all others are done.
    """

    def __init__(
        self, jail: Jail, top: Opened, levels: int, ignored: Collection[Names] = frozenset()
    ) -> None:
        self.jail = jail
        self.top = top
        self.levels = levels
        self.ignored = ignored
        self.room: float = limits.FILE_TREE_MAX_ENTRIES
        # of the room: an entry takes more than 1 where messages are small and names long
        self.byte = self.room / (conf.max_message_bytes - PATH_ENVELOPE_BYTES)
        self.looks = limits.FILE_SCAN_MAX_ENTRIES
        self.truncated = False

    def grow(self) -> Entry:
        """Return the top's entry."""
        top = _Found({}, "", self.top.names, 0, frozenset({identity(self.top.stat)}))
        last: list[list[_Found]] = [[] for _ in range(self.levels)]
        self._walk([[top], *[[] for _ in range(1, self.levels)]], last)
        self._walk(last)
        return top.entry

    def _walk(self, begin: list[list[_Found]], ignored: list[list[_Found]] | None = None) -> None:
        """Fill directories and those below them; put those of ``self.ignored`` aside."""
        walked: list[_Found] = []
        directories: list[_Found] = []
        for level, more in enumerate(begin):
            directories += more
            is_last = level == self.levels - 1
            looks = self.looks if is_last else self.looks // 2
            for count, one in enumerate(directories):
                share = looks // (len(directories) - count)
                looks -= self._enter(one, share)
            shown = self._show(directories, self.room if is_last else self.room / 2)
            walked += directories
            directories = [] if is_last else [one for one in shown if one.is_entered]
            if ignored is not None and not is_last:
                ignored[level + 1] += [one for one in directories if one.names in self.ignored]
                directories = [one for one in directories if one.names not in self.ignored]
        for one in self._show(walked, self.room):
            one.unread = one.is_entered and one.level < self.levels
            one.mark()
        for one in walked:
            self.truncated |= one.mark()

    def _show(self, directories: Sequence[_Found], room: float) -> list[_Found]:
        """Show what their shares of the room hold of them; return the entries."""
        sizes = [sum(map(self._cost, one.rest)) for one in directories]
        share, found = max(1, _fair_share(sizes, room)), []
        for one in directories:
            left = min(share, self.room)
            entries = one.entry.get("children", [])
            while one.rest and (cost := self._cost(one.rest[0])) <= left:
                left, self.room = left - cost, self.room - cost
                found.append(one.rest.popleft())
                entries.append(found[-1].entry)
            if entries or not (one.rest or one.unread):  # of which nothing is shown: not empty
                one.entry["children"] = entries
        return found

    def _cost(self, found: _Found) -> float:
        size = _ENTRY_BYTES + len(dumps_unicode(found.entry["name"]).encode())
        return max(1.0, size * self.byte)

    def _enter(self, parent: _Found, looks: int) -> int:
        """Look at a directory's entries; return how many there were."""
        try:
            with self._open(parent.names) as directory:
                with translate_os_errors(), os.scandir(directory.fd) as entries:
                    names = [entry.name for entry in islice(entries, looks + 1)]
                if len(names) > looks:
                    parent.unread = True
                    names.pop()
                classified = (self._classify(parent, directory, name) for name in names)
                found = [one for one in classified if one is not None]
        except BridgeError:  # gone meanwhile, or not to be read
            return 0
        found.sort(key=lambda one: (one.entry["type"] != "directory", one.name))
        parent.rest = deque(found)
        self.looks -= len(names)
        return len(names)

    def _open(self, names: Names) -> Opened:
        own = self.top.names
        if names[: len(own)] == own:
            return self.jail.below(self.top, names[len(own) :])
        return self.jail.at(names)

    def _classify(self, parent: _Found, directory: Opened, name: str) -> _Found | None:
        """Return an entry as it is shown; None if it is hidden, outside, special or gone."""
        names: Names = (*directory.names, name)
        try:
            reaches(join((*directory.names, name)))
            with translate_os_errors():
                stat = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            if st.S_ISLNK(stat.st_mode):
                with self.jail.below(directory, [name], "any") as target:
                    names, stat = target.names, target.stat
        except BridgeError:
            return None
        me = identity(stat)
        if self.jail.hides(names) or self.jail.forbids(stat):
            return None
        entry: Entry = {"name": shown(name), "type": "directory"}
        if st.S_ISREG(stat.st_mode):
            entry |= {"type": "file", "size": stat.st_size, "modified_at": modified_at(stat)}
        elif not st.S_ISDIR(stat.st_mode):
            return None
        level, way = parent.level + 1, parent.way | {me}
        return _Found(entry, name, names, level, way, loops=me in parent.way)


def _fair_share(sizes: Sequence[float], room: float) -> float:
    """Return the most that each may take, so that small ones have all of theirs."""
    for count, size in enumerate(ordered := sorted(sizes)):
        left = len(ordered) - count
        if size * left > room:
            return room / left
        room -= size
    return math.inf


def ignored_below(directory: str) -> Collection[Names]:
    """Return the real paths that git ignores in the repository of a directory."""
    return _ignored(default_jail(), directory)


def _ignored(jail: Jail, directory: str) -> Collection[Names]:
    try:
        place = repository_of(directory, jail)
        with mirror.reading(place) as git:
            about = ("--ignored", "--exclude-standard", "--directory", "-z")
            found = git.done("ls-files", "--others", *about).out
    except BridgeError:
        return frozenset()
    names = found[: found.rfind(b"\0") + 1].split(b"\0")[:-1]
    return {names_of(f"{place.top}/{os.fsdecode(name)}") for name in names}
