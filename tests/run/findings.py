"""What a test says about doctor's findings."""

from __future__ import annotations

from bridge_project.operations.doctor.findings import Finding, Level


def only(found: list[Finding], level: Level) -> Finding:
    assert len(found) == 1 and found[0].level is level, found
    return found[0]


def mended_by(found: Finding, command: str) -> bool:
    return any(command in line for line in found.mend)
