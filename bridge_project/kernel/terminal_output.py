"""Render what a program wrote as a terminal would show it. Pure.

The web client does the same, with colours (`devices_app/client/parts/terminal.js`); both are held
to one table, `tests/fixtures/terminal_output.json`. What waits for a decision is not read so: there
each control character is named.
"""

import re
from typing import Final

COLUMNS: Final = 1000  # in longer lines codes mean nothing: each could take long
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CODES: Final = re.compile(
    r"(?:\x1b\[|\x9b)(?P<numbers>[0-?]*+)[ -/]*+(?P<final>[@-~])"
    # titles, links, the clipboard; one that does not end is none, and hides nothing
    r"|(?:\x1b\]|\x9d)[^\x00-\x1f\x7f\x9c]*+(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x07\x18\x1a\x1b\x9c]*+(?:\x1b\\|\x9c)"
    r"|\x1b[ -/]*+[0-~]"
    r"|(?P<control>[\n\r\x08\x0b\x0c])|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)


class _Screen:
    def __init__(self) -> None:
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0

    def write(self, text: str) -> None:
        if not text:
            return
        row = self.rows[self.row]
        if self.column > len(row):
            row.extend(" " * (self.column - len(row)))
        end = self.column + len(text)
        row[self.column : end] = text
        self.column = end

    def control(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\x08":
            self.column = max(0, self.column - 1)
        else:
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.rows):
                self.rows.append([])

    def move(self, final: str, numbers: str) -> None:
        """Move the cursor, or erase; anything else means nothing here."""
        first = numbers.partition(";")[0]
        number = min(int(first[:9]), COLUMNS) if first.isdigit() else 0
        count, row = number or 1, self.rows[self.row]
        if max(self.column, len(row)) > COLUMNS:
            return
        match final:
            case "A" | "F":
                self.row = max(0, self.row - count)
            case "B" | "E":
                self.row = min(len(self.rows) - 1, self.row + count)
            case "C":
                self.column += count
            case "D":
                self.column = max(0, self.column - count)
            case "G":
                self.column = count - 1
            case "K" if number == 1:
                row[: self.column + 1] = " " * min(self.column + 1, len(row))
            case "K" if number == 2:
                row.clear()
            case "K" | "J" if number == 0:
                del row[self.column :]
                if final == "J":
                    del self.rows[self.row + 1 :]
        if final in "EF":
            self.column = 0


def shown_output(text: str) -> str:
    """Return the lines that a terminal shows in the end, without its codes."""
    if not _CONTROL.search(text):
        return text
    screen, at = _Screen(), 0
    for found in _CODES.finditer(text):
        screen.write(text[at : found.start()])
        at = found.end()
        if found["control"]:
            screen.control(found["control"])
        elif found["final"]:
            screen.move(found["final"], found["numbers"])
    screen.write(text[at:])
    return "\n".join(map("".join, screen.rows))
