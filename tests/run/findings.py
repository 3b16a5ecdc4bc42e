"""What a test says about doctor's findings."""

import subprocess

from bridge_project.operations.doctor.checks import Found
from bridge_project.operations.doctor.findings import Finding, Level
from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge, nursery


def doctor(
    bridge: Bridge, *words: str, first: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """`doctor --json` of this bridge with these settings; it executes `first` before all else."""
    asked = QuickBridge(bridge.directory, **bridge.settings | settings)
    asked.first = first
    done = asked.manage("doctor", "--json", *words, check=False)
    if settings:
        nursery.forget(asked.environment)
    assert done.stdout and not done.stderr, done
    return done


def only(found: Found, level: Level, *words: str, mend: tuple[str, ...] = ()) -> Finding:
    """The one finding; it is at that level, says these words, and gives these commands."""
    listed = found if isinstance(found, list) else [found]
    assert len(listed) == 1 and listed[0] is not None and listed[0].level is level, found
    assert [word for word in words if word not in listed[0].text] == [], listed[0].text
    mending = "\n".join(listed[0].mend)
    assert [command for command in mend if command not in mending] == [], mending
    return listed[0]
