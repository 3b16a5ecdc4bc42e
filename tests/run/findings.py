"""What a test says about doctor's findings."""

from __future__ import annotations

from bridge_project.operations.doctor.checks import Found
from bridge_project.operations.doctor.findings import Finding, Level


def only(found: Found, level: Level, *words: str, mend: tuple[str, ...] = ()) -> Finding:
    """The one finding; it is at that level, says these words, and gives these commands."""
    listed = found if isinstance(found, list) else [found]
    assert len(listed) == 1 and listed[0] is not None and listed[0].level is level, found
    assert [word for word in words if word not in listed[0].text] == [], listed[0].text
    mending = "\n".join(listed[0].mend)
    assert [command for command in mend if command not in mending] == [], mending
    return listed[0]
