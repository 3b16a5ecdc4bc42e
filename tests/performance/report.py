"""What a part has measured: a table, and the goals it was held against."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import Any

Cell = str | int | float


@dataclass
class Goal:
    """``measured`` must be at most ``limit``, or at least, where ``least``."""

    text: str
    measured: float
    limit: float
    unit: str = ""
    least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.least else self.measured <= self.limit

    def line(self) -> str:
        word, bound = "met   " if self.met else "MISSED", "at least" if self.least else "at most"
        return f"  {word}  {self.text}: {shown(self.measured)} {self.unit} ({bound} {shown(self.limit)})".replace(
            "  (", " ("
        )


@dataclass
class Report:
    """One part's result; ``rows`` have the cells of ``columns``."""

    name: str
    about: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def goal(
        self, text: str, measured: float, limit: float, unit: str = "", *, least: bool = False
    ) -> None:
        self.goals.append(Goal(text, measured, limit, unit, least))

    def add(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns), cells
        self.rows.append(cells)

    def text(self) -> str:
        table = [self.columns, *(tuple(shown(cell) for cell in row) for row in self.rows)]
        widths = [max(len(row[n]) for row in table) for n in range(len(self.columns))]
        lines = [
            " | ".join(
                cell.ljust(width) if n == 0 else cell.rjust(width)
                for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        lines.insert(1, "-+-".join("-" * width for width in widths))
        return "\n".join(
            [
                "",
                f"== {self.name}: {self.about}",
                "",
                *lines,
                *([""] if self.goals else []),
                *(goal.line() for goal in self.goals),
                *self.notes,
            ]
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"goals": [asdict(goal) | {"met": goal.met} for goal in self.goals]}


def shown(cell: Cell) -> str:
    """Three figures that mean something."""
    if isinstance(cell, float):
        return (
            f"{cell:,.0f}"
            if abs(cell) >= 100
            else f"{cell:.1f}"
            if abs(cell) >= 10
            else f"{cell:.2f}"
        )
    return f"{cell:,}" if isinstance(cell, int) else cell


def say(text: str) -> None:
    """To the terminal, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def progress(text: str) -> None:
    sys.stderr.write(f"  … {text}\n")
    sys.stderr.flush()
