"""A failure of severity `error` is a notification of type `error` in the feed for all devices (D13,
D51).
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future

import pytest
from django.db import OperationalError

from bridge_project.kernel import failure_alerts
from bridge_project.kernel.database import background
from bridge_project.kernel.errors import ERRORS
from bridge_project.kernel.failure_alerts import Failure
from sessions_app import failure_notifications
from sessions_app.models import Feed
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("code", "reference", "session_id"),
    [("INTERNAL_ERROR", "3f2a", None), ("AGENT_ERROR", "", "s1")],
)
def test_it_is_a_row_of_the_feed_for_all(code: str, reference: str, session_id: str | None) -> None:
    failure_notifications.write(Failure(ERRORS[code], reference, session_id))
    (row,) = helpers.rows(Feed.ALL)
    message = json.loads(row.frame)
    payload = message["payload"]
    assert (message["type"], payload["notification_type"], payload.get("session_id")) == (
        "notification",
        "error",
        session_id,
    )
    assert payload["notification_id"] == message["id"] and payload["data"]["code"] == code
    assert payload["data"].get("reference", "") == reference and reference in payload["body"]


def test_whoever_fails_while_the_database_is_away_does_not_wait_nor_fail_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told when it happens the next time."""
    writes: list[str] = []
    go, ended = threading.Event(), threading.Event()

    def away(failure: Failure) -> None:
        writes.append(failure.reference)
        go.wait(10)
        raise OperationalError

    real = failure_notifications._ended

    def watched(failure: Failure, done: Future[None]) -> None:
        real(failure, done)
        ended.set()

    monkeypatch.setattr(failure_notifications, "write", away)
    monkeypatch.setattr(failure_notifications, "_ended", watched)
    failure_alerts.tell_by(failure_notifications.tell)
    try:
        # returns while the database is being waited for
        failure_alerts.happened("INTERNAL_ERROR", "first")
        assert not ended.is_set()
        failure_alerts.happened("INTERNAL_ERROR", "second")
        go.set()
        assert ended.wait(10)
        ended.clear()
        failure_alerts.happened("INTERNAL_ERROR", "third")
        assert ended.wait(10)
    finally:
        failure_alerts.tell_by(None)
    assert writes == ["first", "third"]


def test_a_process_that_ends_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(background, "begin", closed)
    failure_notifications.tell(Failure(ERRORS["INTERNAL_ERROR"]))
