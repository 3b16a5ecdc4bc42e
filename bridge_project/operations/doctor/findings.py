"""Write findings as lines and as JSON, without secrets."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, Self

from bridge_project.kernel.logging import redact
from bridge_project.kernel.text import printable

TEXT_CHARS: Final = 500

Level = Literal["ok", "warning", "broken"]  # the last makes the exit code 1
MARKS: Final[Mapping[Level, str]] = {"ok": "✓", "warning": "!", "broken": "✗"}  # the gravest last


@dataclass(frozen=True, slots=True)
class Finding:
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
    return Finding("", "ok", text)


def warning(text: str, *mend: str) -> Finding:
    return Finding("", "warning", text, mend)


def broken(text: str, *mend: str) -> Finding:
    return Finding("", "broken", text, mend)


def worst(findings: Sequence[Finding]) -> Level:
    return max((one.level for one in findings), key=list(MARKS).index, default="ok")


def as_lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, its commands below it, and a summary."""
    lines = []
    for one in findings:
        lines.append(f"{MARKS[one.level]} {one.check:<11}  {one.text}")
        lines += [f"{'':17}{command}" for command in one.mend]
    levels = [one.level for one in findings]
    warned = levels.count("warning")
    count = f"{levels.count('broken')} broken, {warned} warning{'s' * (warned != 1)}."
    return [*lines, "", "Everything works." if worst(findings) == "ok" else count]


def as_json(findings: Sequence[Finding]) -> str:
    """Return `{status, checks: [{check, level, text, mend}]}`."""
    report = {"status": worst(findings), "checks": [asdict(one) for one in findings]}
    return json.dumps(report, ensure_ascii=False, indent=2)
