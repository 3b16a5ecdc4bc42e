"""Fill a stopped bridge's log: `python -m tests.performance.fill SESSIONS ROWS`, with its settings
in the environment.
"""

import os
import sys
from datetime import UTC, datetime

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")
    django.setup()

from bridge_project.protocol.hooks import parse_hook_event
from hooks_app.intake.store import Posted, store
from tests.conformance.samples import prompt

CHUNK = 500
TEXT = "lorem ipsum dolor sit amet " * 18  # so that a row has about 800 bytes


def fill(sessions: int, rows: int) -> None:
    """Store ``rows`` prompts, turn by turn of ``sessions`` named `filled-0`, `filled-1`, …"""
    for first in range(0, rows, CHUNK):
        numbers = range(first, min(first + CHUNK, rows))
        bodies = (prompt(f"filled-{number % sessions}", number, padding=TEXT) for number in numbers)
        store([Posted(parse_hook_event(body, now=datetime.now(UTC))) for body in bodies])


if __name__ == "__main__":
    fill(int(sys.argv[1]), int(sys.argv[2]))
