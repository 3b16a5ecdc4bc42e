"""Parse ``git diff --raw --numstat -z --patch`` (SPEC Git resources).

Names are taken only from the lists at the beginning, which are unquoted. The patch has its files in
the same order, and within a hunk every line begins with its sign, so that a file's line can never
be mistaken for a line of the diff.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Final, NamedTuple

from unidiff.patch import Hunk, PatchSet

from bridge_project.protocol.resources import DiffHunk, DiffLine
from bridge_project.protocol.types import DiffLineType, GitFileStatus
from files_app import charset

NO_MODE: Final = "000000"
_STATUSES: Final[dict[str, GitFileStatus]] = {"A": "added", "C": "added", "D": "deleted"}
_SPANS: Final = re.compile(r"-(\d+)[^ ]* [+](\d+)[^ ]* @@")  # in a hunk's header
_KINDS: Final[dict[str, DiffLineType]] = {" ": "context", "-": "removed", "+": "added"}
_LINE_BYTES: Final = 48  # what a line costs besides its content
_HUNK_BYTES: Final = 128


@dataclass(slots=True)
class Budget:
    """Count how many bytes of JSON, and lines, still fit into the answer."""

    bytes: int
    lines: int

    def take(self, size: int, lines: int = 0) -> bool:
        """Spend part of the budget; once it is exceeded, return False ever after."""
        if size > self.bytes or lines > self.lines:
            self.bytes = self.lines = 0
            return False
        self.bytes -= size
        self.lines -= lines
        return True


@dataclass(slots=True)
class Change:
    """Describe a changed file; ``old`` is its name before a rename.

    ``sections``: how many files it is in a patch. ``cut``: lines of it are missing.
    ``unread``: its lines are not known; ``filtered``: nor is whether it has changed. ``old_id``,
    ``new_id``: git's names of the content, zeros for one that git has not stored.
    """

    name: str
    old: str
    status: GitFileStatus
    old_mode: str = NO_MODE
    new_mode: str = NO_MODE
    old_id: str = ""
    new_id: str = ""
    additions: int = 0
    deletions: int = 0
    binary: bool = False
    hunks: list[DiffHunk] = field(default_factory=list)
    sections: int = 0
    cut: bool = False
    unread: bool = False
    filtered: bool = False
    charset: str = ""

    @property
    def has_lines(self) -> bool:
        return self.additions > 0 or self.deletions > 0


class Lists:
    """Parse the lists of git's output; ``patch`` is what follows them.

    ``cut``: the end of ``data`` is missing; lists without their end are none.
    """

    def __init__(self, data: bytes, *, cut: bool = False) -> None:
        self._data = b"" if cut and b"\0\0" not in data else data
        self._at = 0
        self.changes: list[Change] = []
        while self._data[self._at : self._at + 1] == b":":
            self.changes.append(self._change())
        listed = iter(self.changes)
        while self._at < len(self._data) and (record := self._field()):
            name, _, additions, deletions, binary = read_counts(record, self._field)
            # the files before it are unchanged, and the patch leaves them out
            for change in listed:
                if change.name == name:
                    change.additions, change.deletions, change.binary = additions, deletions, binary
                    break
                change.sections = 0
        for change in listed:
            change.sections = 0
        self.patch = self._data[self._at :]

    @property
    def by_name(self) -> dict[str, Change]:
        """Map each file's name to its last change: a conflict lists a file twice."""
        return {change.name: change for change in self.changes}

    def _field(self) -> bytes:
        end = self._data.index(b"\0", self._at)
        found, self._at = self._data[self._at : end], end + 1
        return found

    def _change(self) -> Change:
        old_mode, new_mode, old_id, new_id, letter = self._field()[1:].decode().split(" ")
        ids = old_mode, new_mode, old_id, new_id
        old = name = os.fsdecode(self._field())
        if letter[0] in "RC":
            name = os.fsdecode(self._field())
        if letter == "U":
            return Change(name, name, "modified")
        if letter[0] == "R":
            return Change(name, old, "renamed", *ids, sections=1)
        sections = 2 if letter == "T" else 1  # type change: deleted, then added
        status = _STATUSES.get(letter[0], "modified")
        return Change(name, name, status, *ids, sections=sections)


class Counts(NamedTuple):
    """Hold the lines added and removed in a file; a binary one has none."""

    name: str
    old: str
    additions: int
    deletions: int
    binary: bool


def read_counts(record: bytes, more: Callable[[], bytes]) -> Counts:
    """Parse a record of ``--numstat -z``; ``more`` returns the next field."""
    additions, deletions, name = record.split(b"\t", 2)
    old = name
    if not name:  # renamed: two names follow
        old, name = more(), more()
    if additions == b"-":
        return Counts(os.fsdecode(name), os.fsdecode(old), 0, 0, True)
    return Counts(os.fsdecode(name), os.fsdecode(old), int(additions), int(deletions), False)


def numstat(data: bytes) -> list[Counts]:
    """Parse the output of ``git diff --numstat -z``."""
    fields = iter(data.split(b"\0")[:-1])
    return [read_counts(record, lambda: next(fields, b"")) for record in fields]


def read_lines(lists: Lists, wanted: Container[str], budget: Budget, *, cut: bool) -> None:
    """Parse the hunks of the ``wanted`` changes, as far as the budget goes.

    ``cut``: the end of the patch is missing.
    """
    for change in lists.changes:
        change.cut = change.has_lines
    sections = _sections(lists)
    for number, (change, lines) in enumerate(sections, 1):
        whole = not cut or number < len(sections)
        if change.name in wanted:
            hunks, whole, change.charset = read_hunks(lines, budget, whole=whole)
            change.hunks += hunks
        change.cut = change.has_lines and not whole
        if not whole:
            return


def _sections(lists: Lists) -> list[tuple[Change, list[bytes]]]:
    """Split the patch into the hunks of each file in the lists."""
    owners = (change for change in lists.changes for _ in range(change.sections))
    found: list[tuple[Change, list[bytes]]] = []
    for line in lists.patch.split(b"\n")[:-1]:  # the last one is empty, or half a line
        if line.startswith(b"diff --git "):
            change = next(owners, None)
            if change is None or not line.endswith((b" b/" + os.fsencode(change.name), b'"')):
                break  # better no lines than another file's
            found.append((change, []))
        elif found and (found[-1][1] or line.startswith(b"@@ ")):
            found[-1][1].append(line)
    return found


def read_hunks(
    lines: Sequence[bytes], budget: Budget, *, whole: bool = True
) -> tuple[list[DiffHunk], bool, str]:
    """Parse a file's hunks, as far as the budget goes; tell whether these are all.

    The third value is the encoding of a side that is not UTF-8 (D11).

    The last hunk is not ``whole`` if its end is missing. Its header then speaks of what is left:
    unidiff takes no other. Nor does it read names that hold ` b/`, so it gets two of its own.
    """
    decoded, encoding = _decoded(lines)
    text: list[str] = []
    for line in decoded:
        text.append(line + "\n")
        cost = _HUNK_BYTES if line.startswith("@@ ") else _LINE_BYTES
        if not budget.take(cost + len(encode_basestring(text[-1]).encode()), 1):
            text.pop()
            whole = False
            break
    headers = [at for at, line in enumerate(text) if line.startswith("@@ ")]
    if headers and not whole:
        signs = Counter(line[0] for line in text[headers[-1] + 1 :])
        spans = rf"-\1,{signs[' '] + signs['-']} +\2,{signs[' '] + signs['+']} @@"
        text[headers[-1]] = _SPANS.sub(spans, text[headers[-1]], count=1)
    (file,) = PatchSet(["--- a\n", "+++ b\n", *text])
    hunks = [_hunk(text[at], hunk) for at, hunk in zip(headers, file, strict=True)]
    return hunks, whole, encoding


def _decoded(lines: Sequence[bytes]) -> tuple[list[str], str]:
    """Decode each side of a difference; what is not sure has U+FFFD."""
    try:
        return b"\n".join(lines).decode().split("\n") if lines else [], ""
    except UnicodeDecodeError:
        old, new = (_charset_of(lines, other) for other in (b"+", b"-"))
    names = {b"-": old, b"+": new}
    found = [line.decode(names.get(line[:1], new or old) or "utf-8", "replace") for line in lines]
    return found, new or old


def _charset_of(lines: Sequence[bytes], other: bytes) -> str:
    """Return the encoding of the lines of one side; "" is UTF-8, or not sure."""
    side = (line[1:] for line in lines if not line.startswith((b"@@ ", other)))
    known = charset.decode(b"\n".join(side))
    return known.charset if known else ""


def _hunk(header: str, parsed: Hunk) -> DiffHunk:
    lines: list[DiffLine] = []
    for line in parsed:
        if line.line_type in _KINDS:
            content = line.value.removesuffix("\n")
            lines.append(DiffLine(type=_KINDS[line.line_type], content=content))
        else:
            lines[-1].no_newline = True
    return DiffHunk(
        header=header.removesuffix("\n"),
        old_start=parsed.source_start,
        old_lines=parsed.source_length,
        new_start=parsed.target_start,
        new_lines=parsed.target_length,
        lines=lines,
    )
