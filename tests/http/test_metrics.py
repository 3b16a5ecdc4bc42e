"""GET /metrics: who may read it, and that every figure is what it says."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families as parse

from bridge_project.http.error_body import connection_error_payload, error_payload
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.types import now_text
from devices_app.models import Device
from sessions_app.log import cursors, outbox, reader
from sessions_app.models import Feed, LogRow
from tests.http.conftest import Api, check_error

pytestmark = pytest.mark.django_db(transaction=True)

Samples = dict[tuple[str, ...], float]


def scrape(admin: Api) -> Samples:
    """(name, label value …) → value."""
    answer = admin.get("/metrics")
    assert answer.status_code == 200
    return {
        (one.name, *one.labels.values()): one.value
        for family in parse(answer.content.decode())
        for one in family.samples
    }


def event(session_id: str, kind: str = "UserPromptSubmit", **payload: object) -> str:
    about = {"event": kind, "session_id": session_id, "timestamp": now_text()}
    return json.dumps(about | {"payload": payload or {"prompt": "x"}})


def accept(hook: Api, session_id: str, count: int = 1) -> None:
    for _ in range(count):
        assert hook.post("/hooks/event", event(session_id)).status_code == 200


def test_only_the_admin_token_reads_them(stranger: Api, hook: Api, device: Api, admin: Api) -> None:
    check_error(stranger.get("/metrics"), "AUTH_INVALID_TOKEN", 401)
    check_error(hook.get("/metrics"), "AUTH_INSUFFICIENT_SCOPE", 403)
    check_error(device.get("/metrics"), "AUTH_INSUFFICIENT_SCOPE", 403)
    check_error(admin.post("/metrics"), "METHOD_NOT_ALLOWED", 405)
    answer = admin.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert answer.headers["Cache-Control"] == "no-store"


def test_every_name_is_documented(admin: Api) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    names = {family.name for family in parse(admin.get("/metrics").content.decode())}
    assert len(names) > 20
    own = {name for name in names if not name.startswith("process_")}
    assert not [name for name in own if not name.startswith("bridge_") or f"`{name}" not in page]


def test_accepted_events_by_name_and_once(admin: Api, hook: Api) -> None:
    before = scrape(admin)
    accept(hook, "counted", 2)
    assert hook.post("/hooks/event", event("counted", "SessionEnd", reason="x")).status_code == 200
    again = json.loads(event("counted")) | {"event_id": "0b54b2c5-6c53-4c38-8a2d-5a8d0e3b9b11"}
    for _ in range(2):
        assert hook.post("/hooks/batch", json.dumps({"events": [again]})).status_code == 200
    assert hook.post("/hooks/event", "{}").status_code == 400
    after = scrape(admin)
    for name, count in {"UserPromptSubmit": 3, "SessionEnd": 1}.items():
        key = ("bridge_events_accepted_total", name)
        assert after[key] - before.get(key, 0) == count
    commits = after["bridge_commit_seconds_count",] - before["bridge_commit_seconds_count",]
    assert commits == 4, "a transaction that appended nothing is none of these"


@pytest.mark.spec("severity.warning")
def test_errors_by_code(admin: Api, hook: Api, stranger: Api) -> None:
    before = scrape(admin)
    stranger.get("/api/v1/health")
    hook.post("/hooks/event", "{}")
    hook.get("/nowhere")
    error_payload(BridgeError("GIT_ERROR"))
    connection_error_payload(BridgeError("AUTH_FAILED"), "https://b")
    after = scrape(admin)
    expected = [
        ("http", "AUTH_INVALID_TOKEN"),
        ("http", "HOOK_INVALID_EVENT_TYPE"),
        ("http", "NOT_FOUND"),
        ("websocket", "GIT_ERROR"),
        ("websocket", "AUTH_FAILED"),
    ]
    for over, code in expected:
        name = f"bridge_{over}_errors_total"
        assert after[name, code] == before.get((name, code), 0) + 1, code


def test_the_queue_is_what_the_log_holds(admin: Api, hook: Api) -> None:
    accept(hook, "one", 3)
    accept(hook, "two", 2)
    oldest = LogRow.objects.filter(feed__session__session_id="one").values_list("pk", flat=True)
    LogRow.objects.filter(pk__in=list(oldest[:2])).update(created_at=timezone.now() - timedelta(9))
    outbox.prune()
    found = scrape(admin)
    rows = list(LogRow.objects.values_list("size", flat=True))
    assert len(rows) == 5, "two announcements, one row of the first session, two of the second"
    assert (found["bridge_queue_rows",], found["bridge_queue_bytes",]) == (5, sum(rows))


def test_a_devices_lag_shrinks_as_it_acknowledges(
    admin: Api, hook: Api, pair: Callable[..., Api]
) -> None:
    accept(hook, "before")
    pair("early").get("/api/v1/health")
    pair("unused")
    phone = Device.objects.get(name="early")
    assert phone.paired_at is not None
    key = ("bridge_device_lag_rows", str(phone.pk), "early")
    assert scrape(admin)[key] == 0, "it starts at the present (D28)"
    accept(hook, "before", 2)
    accept(hook, "new", 3)
    assert scrape(admin)[key] == 6, "five events, and the new session's announcement"
    newest = LogRow.objects.filter(feed__session__session_id="new").order_by("seq")
    cursors.acknowledge(phone.pk, [newest[0].message_id, newest[1].message_id], {})
    assert scrape(admin)[key] == 4
    cursors.advance(phone.pk, {Feed.ALL: reader.head_seq()})
    assert scrape(admin)[key] == 4, "a device that acknowledges proves nothing by heartbeats (D27)"
    cursors.acknowledge(phone.pk, list(LogRow.objects.values_list("message_id", flat=True)), {})
    assert scrape(admin)[key] == 0
    assert not [name for name in scrape(admin) if "unused" in name]
    Device.objects.filter(pk=phone.pk).update(revoked_at=phone.paired_at)
    assert key not in scrape(admin)
