"""What a test says about doctor's findings."""

from __future__ import annotations

from bridge_project.operations.doctor.checks import Found
from bridge_project.operations.doctor.findings import Finding, Level


def only(found: Found, level: Level) -> Finding:
    listed = found if isinstance(found, list) else [found]
    assert len(listed) == 1 and listed[0] is not None and listed[0].level is level, found
    return listed[0]


def mended_by(found: Finding, command: str) -> bool:
    return any(command in line for line in found.mend)
