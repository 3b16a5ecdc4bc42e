"""A failure of severity `error` is a notification of type `error` in the feed for all devices (D13,
D51).
"""

from __future__ import annotations

import asyncio
import json

import pytest
from django.db import OperationalError

from bridge_project.kernel import failure_alerts
from bridge_project.kernel.errors import ERRORS
from bridge_project.kernel.failure_alerts import Failure
from sessions_app import polling
from sessions_app.models import Feed
from tests.sessions import helpers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("code", "reference", "session_id"),
    [("INTERNAL_ERROR", "3f2a", None), ("BRIDGE_ERROR", "", "s1")],
)
def test_it_is_a_row_of_the_feed_for_all(code: str, reference: str, session_id: str | None) -> None:
    polling.write_notification(Failure(ERRORS[code], reference, session_id))
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


async def test_what_could_not_be_written_is_told_when_it_happens_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    references: list[str] = []

    def write(failure: Failure) -> None:
        references.append(failure.reference)
        if failure.reference == "first":
            raise OperationalError

    monkeypatch.setattr(polling, "write_notification", write)
    await polling.start()
    try:
        failure_alerts.report("INTERNAL_ERROR", "first")
        async with asyncio.timeout(60):
            while references != ["first", "again"]:
                await asyncio.sleep(0.05)
                failure_alerts.report("INTERNAL_ERROR", "again")
    finally:
        await polling.stop()
