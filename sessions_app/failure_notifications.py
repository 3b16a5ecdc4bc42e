"""Tells the devices of failures that somebody should look at: a notification of type ``error``,
through the outbox like any other (D13, D51).
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future

import structlog

from bridge_project.kernel import failure_alerts
from bridge_project.kernel.database import background
from bridge_project.kernel.failure_alerts import Failure
from bridge_project.protocol.catalogue import encode
from sessions_app import notifications
from sessions_app.log.outbox import outbox

logger = structlog.get_logger("bridge.alarm")


def tell(failure: Failure) -> None:
    """Have it written soon, in a thread of its own: whoever failed does not wait for it, and fails
    no more than it has.
    """
    with contextlib.suppress(RuntimeError):  # the process is ending
        background.begin(write, failure).add_done_callback(lambda done: _ended(failure, done))


def write(failure: Failure) -> None:
    with outbox() as box:
        box.append_to_all(encode(notifications.failed(failure)))


def _ended(failure: Failure, done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()):
        failure_alerts.untold(failure)
        logger.warning(
            "failure_not_told",
            code=failure.row.code,
            reference=failure.reference,
            error=error.__class__.__name__,
        )
