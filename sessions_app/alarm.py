"""Tells the devices of failures that somebody should look at: a notification of type ``error``, through the outbox like any other (D13, D51)."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future

import structlog

from bridge_project import failures
from bridge_project.database import background
from bridge_project.failures import Failure
from bridge_project.protocol.catalogue import encode
from sessions_app import notices
from sessions_app.outbox import outbox

logger = structlog.get_logger("bridge.alarm")


def tell(failure: Failure) -> None:
    """Have it written soon, in a thread of its own: whoever failed does not wait for it, and fails no more than it has."""
    with contextlib.suppress(RuntimeError):  # the process is ending
        background.begin(write, failure).add_done_callback(lambda done: _ended(failure, done))


def write(failure: Failure) -> None:
    with outbox() as box:
        box.append_to_all(encode(notices.failed(failure)))


def _ended(failure: Failure, done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()):
        failures.untold(failure)
        logger.warning("failure_not_told", code=failure.row.code, reference=failure.reference, error=error.__class__.__name__)
