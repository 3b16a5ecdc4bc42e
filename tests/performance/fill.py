"""Fill a stopped bridge's log: `python -m tests.performance.fill SESSIONS ROWS [said]`, with its
settings in the environment.
"""

import os
import sys
from datetime import UTC, datetime
from typing import Any

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")
    django.setup()

from bridge_project.protocol.hooks import parse_hook_event
from hooks_app.intake.store import Posted, store
from sessions_app.search import index_some
from tests.conformance.samples import hook, prompt

CHUNK = 500
TEXT = "lorem ipsum dolor sit amet " * 18  # so that a row has about 800 bytes


def fill(sessions: int, rows: int, *, said: bool) -> None:
    """Store ``rows`` prompts, turn by turn of ``sessions`` named `filled-0`, `filled-1`, …

    ``said``: what makes a row long is what the prompt says, and so can be searched, once the bridge
    has indexed it.
    """

    def body(number: int) -> dict[str, Any]:
        session = f"filled-{number % sessions}"
        if said:
            return hook("UserPromptSubmit", session, {"prompt": f"prompt {number} {TEXT}"})
        return prompt(session, number, padding=TEXT)

    for first in range(0, rows, CHUNK):
        numbers = range(first, min(first + CHUNK, rows))
        now = datetime.now(UTC)
        store([Posted(parse_hook_event(body(number), now=now)) for number in numbers])
    while not said and index_some():  # else the bridge would begin with that
        pass


if __name__ == "__main__":
    fill(int(sys.argv[1]), int(sys.argv[2]), said=sys.argv[3:] == ["said"])
