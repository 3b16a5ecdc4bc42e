"""List directories: a tree for GET /files/tree, one level for file_list."""

import os
import re
import stat as st
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.disk_threads import reaches
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, shown
from bridge_project.kernel.path_walk import (
    Identity,
    Names,
    Opened,
    identity,
    join,
    translate_os_errors,
)
from bridge_project.protocol.jsontext import dumps_unicode
from files_app.content import PATH_ENVELOPE_BYTES, modified_at

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
    to FILE_TREE_MAX_ENTRIES and the JSON of one message (``max_message_size_mb``); ``truncated:
    true`` says that something was cut. Errors are the jail's (D12), and FILE_INVALID_PATH for a bad
    depth.
    """
    levels = str(depth)
    if not _DEPTH.fullmatch(levels) or not 1 <= int(levels) <= limits.FILE_TREE_MAX_DEPTH:
        text = f"`depth` is a whole number from 1 to {limits.FILE_TREE_MAX_DEPTH}."
        raise BridgeError("FILE_INVALID_PATH", text)
    with jail.open_dir(path, base=base) as top:
        entries, truncated = _Tree(jail, top, int(levels)).grow()
        answer: dict[str, Any] = {"path": shown(top.path), "entries": entries}
    return answer | {"truncated": True} if truncated else answer


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
    """Hold an entry; ``way``: the directories on the way to it, itself included."""

    entry: Entry
    name: str
    names: Names
    level: int
    way: frozenset[Identity]
    loops: bool = False  # it leads back to a directory on the way

    @property
    def is_entered(self) -> bool:
        entered = self.entry["type"] == "directory" and not self.loops
        return entered and _NOT_ENTERED.isdisjoint((self.name, *self.names[-1:]))


class _Tree:
    """Walk breadth first, with two descriptors open: the top and one directory."""

    def __init__(self, jail: Jail, top: Opened, levels: int) -> None:
        self.jail = jail
        self.top = top
        self.levels = levels
        self.room = limits.FILE_TREE_MAX_ENTRIES
        self.bytes = conf.max_message_bytes - PATH_ENVELOPE_BYTES
        self.looks = limits.FILE_SCAN_MAX_ENTRIES
        self.truncated = False

    def grow(self) -> tuple[list[Entry], bool]:
        root = _Found({}, "", self.top.names, 0, frozenset({identity(self.top.stat)}))
        waiting = deque(self._fill(root, self.top))
        while waiting and not self.truncated:
            found = waiting.popleft()
            try:
                with self._open(found.names) as directory:
                    waiting.extend(self._fill(found, directory))
            except BridgeError:  # gone meanwhile, or not to be read
                found.entry["children"] = []
        return root.entry.get("children", []), self.truncated

    def _open(self, names: Names) -> Opened:
        own = self.top.names
        if names[: len(own)] == own:
            return self.jail.below(self.top, names[len(own) :])
        return self.jail.at(names)

    def _fill(self, parent: _Found, directory: Opened) -> list[_Found]:
        """Add a directory's entries while there is room; return its directories."""
        found = self._scan(parent, directory)
        found.sort(key=lambda one: (one.entry["type"] != "directory", one.name))
        for count, one in enumerate(found):
            self.bytes -= _ENTRY_BYTES + len(dumps_unicode(one.entry["name"]).encode())
            if self.bytes < 0 or count == self.room:
                self.truncated = True
                del found[count:]
                break
        self.room -= len(found)
        if found or not self.truncated:  # a directory of which all was cut is not an empty one
            parent.entry["children"] = [one.entry for one in found]
        return [one for one in found if one.is_entered and one.level < self.levels]

    def _scan(self, parent: _Found, directory: Opened) -> list[_Found]:
        with translate_os_errors(), os.scandir(directory.fd) as entries:
            scanned = [entry.name for entry in islice(entries, self.looks + 1)]
        if len(scanned) > self.looks:
            self.truncated = True
            scanned.pop()
        self.looks -= len(scanned)
        classified = (self._classify(parent, directory, name) for name in scanned)
        return [one for one in classified if one is not None]

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
        return _Found(
            entry, name, names, parent.level + 1, parent.way | {me}, loops=me in parent.way
        )
