"""Short ways to fill the log in tests of the sessions room."""

from datetime import UTC, datetime
from typing import Any

from bridge_project.protocol.hooks import HookEvent, parse_hook_event
from hooks_app.intake import store as intake
from sessions_app.log import reader as log_reader
from sessions_app.log.reader import Row
from sessions_app.models import Feed, LogHead, LogRow, Session
from sessions_app.observed import sessions as observed_sessions
from tests.conformance.samples import hook


def event(session_id: str, name: str = "UserPromptSubmit", **payload: Any) -> HookEvent:
    return parse_hook_event(hook(name, session_id, payload), now=datetime.now(UTC))


def store(*events: HookEvent) -> list[intake.Receipt]:
    return intake.store([intake.Posted(one) for one in events])


def post(session_id: str = "s1", count: int = 1, **payload: Any) -> Session:
    """Store ``count`` prompts of a session; the session as it is then."""
    store(*[event(session_id, prompt=f"prompt {n}", **payload) for n in range(count)])
    return session(session_id)


def session(session_id: str) -> Session:
    found = observed_sessions.find(session_id)
    assert found is not None
    return found


def read_all(positions: dict[int, int], upto: int | None = None) -> list[Row]:
    """What a reader gives after these positions, to the head of the log unless told."""
    reader = log_reader.Reader(positions, log_reader.head_seq() if upto is None else upto)
    return [row for page in iter(reader.page, None) for row in page.rows]


def holds_what_it_says() -> bool:
    """The counters of every feed and of the log are those of their rows."""
    for feed in Feed.objects.all():
        sizes = list(LogRow.objects.filter(feed=feed).values_list("size", flat=True))
        if (feed.rows, feed.bytes) != (len(sizes), sum(sizes)):
            return False
    return LogHead.objects.get().bytes == sum(LogRow.objects.values_list("size", flat=True))
