"""Delete expired rows and close idle sessions, once a minute (D15, D30, D31, D34)."""

import asyncio
from collections.abc import Callable

import structlog

from bridge_project.kernel import failure_alerts
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.threads import chores
from devices_app import pairing
from hooks_app.intake import store
from sessions_app import attachments, search
from sessions_app.agents import inbox
from sessions_app.approvals import service as approvals
from sessions_app.log import outbox
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket import idempotency

log = structlog.get_logger("bridge.chores")

INTERVAL_SECONDS = 60.0

# What `manage.py prune` prints after the chore's count → the chore.
CHORES: dict[str, Callable[[], int]] = {
    "idle sessions closed": observed_sessions.close_idle,
    "rows of the log removed": outbox.prune,
    "tool calls removed": approvals.forget_old,
    "answers to client messages removed": idempotency.forget_old,
    "closed sessions removed": observed_sessions.forget_closed,
    "devices that never paired removed": pairing.forget_void,
    "commands to agents removed": inbox.forget_old,
    "ids of hook events removed": store.forget_old,
    "texts of discarded rows removed": search.forget_old,
    "files without an attachment removed": attachments.remove_leftovers,
}


async def repeat() -> None:
    """Do all chores every INTERVAL_SECONDS, until it is cancelled."""
    while True:
        for what, chore in CHORES.items():
            try:
                await chores.run(chore)
            except Exception as error:
                log.exception("chore_failed", chore=what)
                # while the database is away, no device could be told
                if not isinstance(error, STORAGE_ERRORS):
                    failure_alerts.report("INTERNAL_ERROR", f"chore: {what}")
        await asyncio.sleep(INTERVAL_SECONDS)
