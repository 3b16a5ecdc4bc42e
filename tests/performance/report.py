"""What a part has measured: a table, and the goals it was held against."""

import sys
from dataclasses import dataclass, field

Cell = str | int | float


@dataclass
class Report:
    """One part's result; ``columns`` are separated by " | "."""

    name: str
    about: str
    columns: str
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    goals: list[tuple[bool, str]] = field(default_factory=list)  # met, and what was asked

    def add(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns.split(" | ")), cells
        self.rows.append(cells)

    def goal(self, text: str, measured: float, limit: float, unit: str = "") -> None:
        bound = f"at most {shown(limit)} {unit}".strip()
        self.goals.append((measured <= limit, f"{text}: {shown(measured)} ({bound})"))

    def text(self) -> str:
        table = [self.columns.split(" | "), *([shown(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [" | ".join(map(str.rjust, row, widths)) for row in table]
        goals = [f"  {'met   ' if met else 'MISSED'}  {text}" for met, text in self.goals]
        return "\n".join(["", f"== {self.name}: {self.about}", "", *lines, "", *goals])


def shown(cell: Cell) -> str:
    """Three figures that mean something."""
    if isinstance(cell, float):
        return f"{cell:,.{0 if abs(cell) >= 100 else 1 if abs(cell) >= 10 else 2}f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def progress(text: str) -> None:
    sys.stderr.write(f"  … {text}\n")
