"""The text of ``git diff`` as files, hunks and lines (SPEC Git resources).

Own code, because the library at hand leaves names in git's quotes and takes no text whose end is
missing. Hunks are read by their counts, so that no line of a file can pass for one of the diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Final

from bridge_project.protocol.resources import DiffHunk, DiffLine
from bridge_project.protocol.types import DiffLineType
from files_app.git.quoting import unquoted

_HUNK: Final = re.compile(rb"@@ -([0-9]+)(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_KINDS: Final[dict[bytes, tuple[DiffLineType, int, int]]] = {
    b" ": ("context", 1, 1),
    b"-": ("removed", 1, 0),
    b"+": ("added", 0, 1),
}
_LINE_BYTES: Final = 48  # what a line costs besides its content
_HUNK_BYTES: Final = 128


@dataclass(slots=True)
class Budget:
    """How much may still be said: bytes of JSON, and lines."""

    bytes: int
    lines: int

    def take(self, size: int, lines: int = 0) -> bool:
        """Spend that much, if it is there; once it is not, nothing more is."""
        if size > self.bytes or lines > self.lines:
            self.bytes = self.lines = 0
            return False
        self.bytes -= size
        self.lines -= lines
        return True


@dataclass(slots=True)
class Section:
    """What a diff says of one file, by its new name, or its old one when it is gone. ``cut``: its
    end is missing.
    """

    name: str = ""
    hunks: list[DiffHunk] = field(default_factory=list)
    cut: bool = False


def parse(
    data: bytes, budget: Budget, *, wanted: Container[str] | None = None, cut: bool = False
) -> dict[str, Section]:
    """Name → section, as far as the budget goes; ``wanted``: only of these. ``cut``: the end of
    ``data`` is missing.
    """
    lines = data.split(b"\n")
    lines.pop()  # empty, or half a line
    return _Parser(lines, budget, wanted, cut).sections()


def text_hunk(
    lines: Iterable[bytes], count: int, budget: Budget, *, ends_line: bool
) -> tuple[DiffHunk, bool]:
    """The one hunk of a file that is new, of ``count`` lines; and whether all of it is there."""
    header = "@@ -0,0 +1 @@" if count == 1 else f"@@ -0,0 +1,{count} @@"
    hunk = DiffHunk(header=header, old_start=0, old_lines=0, new_start=1, new_lines=count, lines=[])
    if not budget.take(_HUNK_BYTES):
        return hunk, False
    for raw in lines:
        line = _line("added", raw, budget)
        if line is None:
            return hunk, False
        hunk.lines.append(line)
    if not ends_line and hunk.lines:
        hunk.lines[-1].no_newline = True
    return hunk, True


class _Parser:
    def __init__(
        self, lines: list[bytes], budget: Budget, wanted: Container[str] | None, cut: bool
    ) -> None:
        self.lines = lines
        self.budget = budget
        self.wanted = wanted
        self.cut = cut
        self.at = 0

    def sections(self) -> dict[str, Section]:
        found: dict[str, Section] = {}
        section = Section()
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(b"@@ "):
                if not (
                    self._hunk(section)
                    if self.wanted is None or section.name in self.wanted
                    else self._skip()
                ):
                    section.cut = True
                    break
                continue
            if line.startswith(b"diff --git "):
                _keep(found, section)
                section = Section(_same(line[11:]))
            elif line.startswith((b"+++ ", b"rename to ")):
                section.name = _named(line) or section.name
            self.at += 1
        else:
            section.cut = self.cut
        _keep(found, section)
        return found

    def _hunk(self, section: Section) -> bool:
        """Read a hunk; False when its end is missing."""
        header = self.lines[self.at]
        match = _HUNK.match(header)
        if match is None or not self.budget.take(_HUNK_BYTES + 2 * len(header)):
            return False
        old_start, old_lines, new_start, new_lines = (
            1 if part is None else int(part) for part in match.groups()
        )
        text = header.decode("utf-8", "replace")
        hunk = DiffHunk(
            header=text,
            old_start=old_start,
            old_lines=old_lines,
            new_start=new_start,
            new_lines=new_lines,
            lines=[],
        )
        section.hunks.append(hunk)
        self.at += 1
        return self._body(hunk.lines, old_lines, new_lines)

    def _skip(self) -> bool:
        match = _HUNK.match(self.lines[self.at])
        old, new = (
            (1 if match[part] is None else int(match[part]) for part in (2, 4)) if match else (0, 0)
        )
        self.at += 1
        while self.at < len(self.lines) and (
            old > 0 or new > 0 or self.lines[self.at].startswith(b"\\")
        ):
            _, of_old, of_new = _KINDS.get(self.lines[self.at][:1], ("", 0, 0))
            old, new = old - of_old, new - of_new
            self.at += 1
        return match is not None

    def _body(self, found: list[DiffLine], old: int, new: int) -> bool:
        while self.at < len(self.lines):
            raw = self.lines[self.at]
            if raw.startswith(b"\\"):
                if found:
                    found[-1].no_newline = True
            elif old <= 0 and new <= 0:
                return True
            elif (kind := _KINDS.get(raw[:1])) is None or (
                line := _line(kind[0], raw[1:], self.budget)
            ) is None:
                return False
            else:
                found.append(line)
                old, new = old - kind[1], new - kind[2]
            self.at += 1
        return old <= 0 and new <= 0


def _keep(found: dict[str, Section], section: Section) -> None:
    """A file that became another kind of thing has two sections: all of the old, then all of the
    new.
    """
    if section.name in found:
        section.hunks[:0] = found[section.name].hunks
    if section.name:
        found[section.name] = section


def _line(kind: DiffLineType, raw: bytes, budget: Budget) -> DiffLine | None:
    content = raw.decode("utf-8", "replace")
    size = len(raw) if content.isascii() else len(content.encode())
    return (
        DiffLine(type=kind, content=content)
        if budget.take(_LINE_BYTES + size + len(encode_basestring(content)) - len(content), 1)
        else None
    )


def _named(line: bytes) -> str:
    """The name in a line of a section's head; nothing for /dev/null."""
    if line.startswith(b"rename to "):
        return os.fsdecode(unquoted(line[10:]))
    name = line[4:]
    name = unquoted(name) if name.startswith(b'"') else name.removesuffix(b"\t")
    return os.fsdecode(name[2:]) if name.startswith((b"a/", b"b/")) else ""


def _same(names: bytes) -> str:
    """The name in ``a/NAME b/NAME``; nothing when the two differ, which other lines then say."""
    quoted = _QUOTED.match(names)
    if quoted is not None:
        first, second = unquoted(quoted[0]), unquoted(names[quoted.end() + 1 :])
    else:
        first, second = names[: len(names) // 2], names[len(names) // 2 + 1 :]
    return (
        os.fsdecode(second[2:])
        if first[2:] == second[2:] and first[:2] == b"a/" and second[:2] == b"b/"
        else ""
    )
