"""Write findings as lines and as JSON, without secrets."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final, Self

from bridge_project.kernel.logging import redact
from bridge_project.kernel.text import printable

TEXT_CHARS: Final = 500


class Level(StrEnum):
    """Grade a finding: `broken` makes the exit code 1, a `warning` does not."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


MARKS: Final = {Level.OK: "✓", Level.WARNING: "!", Level.BROKEN: "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold what a check found."""

    check: str  # what was checked
    level: Level
    text: str
    mend: tuple[str, ...] = ()  # shell commands in order; `#` begins a remark

    def report_as(self, check: str) -> Self:
        """Return it under the check's name, in single lines without secrets."""
        text = " ".join(printable(redact(self.text)).split())[:TEXT_CHARS]
        mend = tuple(printable(redact(one)) for one in self.mend)
        return replace(self, check=check, text=text, mend=mend)


def ok(text: str) -> Finding:
    return Finding("", Level.OK, text)


def warning(text: str, *mend: str) -> Finding:
    return Finding("", Level.WARNING, text, mend)


def broken(text: str, *mend: str) -> Finding:
    return Finding("", Level.BROKEN, text, mend)


def worst(findings: Sequence[Finding]) -> Level:
    levels = {one.level for one in findings}
    return next((level for level in (Level.BROKEN, Level.WARNING) if level in levels), Level.OK)


def as_lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, its commands below it, and a summary."""
    lines = []
    for one in findings:
        lines.append(f"{MARKS[one.level]} {one.check:<11}  {one.text}")
        lines += [f"{'':17}{command}" for command in one.mend]
    levels = [one.level for one in findings]
    count = f"{levels.count(Level.BROKEN)} broken, {levels.count(Level.WARNING)} warnings."
    return [*lines, "", "Everything works." if worst(findings) is Level.OK else count]


def as_json(findings: Sequence[Finding]) -> str:
    """Return `{status, checks: [{check, level, text, mend}]}`."""
    report = {"status": worst(findings), "checks": [asdict(one) for one in findings]}
    return json.dumps(report, ensure_ascii=False, indent=2)
