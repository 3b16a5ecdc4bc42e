"""The admin site's first page: what matters now, for little (docs/operations.md)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from devices_app import pairing
from devices_app.models import Device
from hooks_app.models import HookEvent
from sessions_app.models import Connection, Feed, Process, Session, ToolCall
from tests.conformance.admin import text_of

pytestmark = pytest.mark.django_db

QUERIES = 50  # an hour of the chart is one


@pytest.fixture
def admin() -> Client:
    user = User.objects.create_superuser("ada")
    made = Client()
    made.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return made


def page_of(client: Client) -> str:
    answer = client.get("/admin/")
    assert answer.status_code == 200
    return answer.content.decode()


def add_events(count: int, *, hours_ago: int) -> None:
    at = timezone.now() - timedelta(hours=hours_ago)
    HookEvent.objects.bulk_create(
        HookEvent(event_id=str(uuid.uuid4()), event="Stop", session_id="s", seq=n, received_at=at)
        for n in range(count)
    )


def test_events_an_hour(admin: Client) -> None:
    """Each in its hour, the day before not at all; the highest hour is as high as the chart."""
    with time_machine.travel(timezone.now(), tick=False):  # or an hour may end meanwhile
        for count, hours_ago in ((4, 0), (2, 5), (100, 25)):
            add_events(count, hours_ago=hours_ago)
        page = page_of(admin)
    bars = re.findall(r"UTC: (\d+)</title>.*?height=\"([\d.]+)\"/></g>", page)
    counts = [int(count) for count, _ in bars]
    assert len(bars) == 24 and sum(counts) == 6
    assert (counts[-1], counts[-6]) == (4, 2)
    assert [float(height) for _, height in bars if float(height)] == [30.0, 60.0]


def test_it_costs_no_more_when_the_log_grows(
    admin: Client, django_assert_max_num_queries: Callable[..., object]
) -> None:
    for count in (0, 500):
        add_events(count, hours_ago=3)
        with django_assert_max_num_queries(QUERIES) as asked:  # type: ignore[attr-defined]
            page_of(admin)
        statements = " ".join(one["sql"] for one in asked.captured_queries).lower()
        assert 'count(*) as "__count" from "sessions_app_logrow"' not in statements
        assert 'from "sessions_app_logrow" order by' in statements


def test_what_waits_is_there_as_it_was_asked(admin: Client) -> None:
    feed = Feed.objects.create(kind=Feed.Kind.OBSERVED)
    session = Session.objects.create(session_id="s1", kind="observed", feed=feed, title="Fix <it>")
    command = "cat <<'EOF'\n</pre><script>x</script>\u202e\nEOF"
    ToolCall.objects.create(
        session=session,
        tool_call_id="t1",
        tool="Bash",
        description="short",
        params=json.dumps({"command": command}),
        same="",
        risk_level="high",
        source="hooks",
        decision="pending",
    )
    page = page_of(admin)
    assert "<script>x" not in page and "\u202e" not in page
    assert "Approvals that wait 1 Bash high Fix <it>" in text_of(page)
    assert (
        "cat &lt;&lt;&#x27;EOF&#x27;\n&lt;/pre&gt;&lt;script&gt;x&lt;/script&gt;\ufffd\nEOF</pre>"
        in page
    )
    assert "Active 1" in text_of(page)


def test_devices_connected_first(admin: Client) -> None:
    process = Process.objects.create(instance="i", lease_until=timezone.now() + timedelta(hours=1))
    for name in ("away", "here", "gone"):
        plain = pairing.mint(name, ttl=timedelta(minutes=1), lifetime=None)[2]
        given = {"platform": "ios", "client_version": "1.0.0", "address": "10.0.0.9"}
        pairing.authenticate(plain, client_device_id=name, **given)
    pairing.revoke(Device.objects.get(name="gone"))
    here = Device.objects.get(name="here")
    Connection.objects.create(process=process, device=here, address="10.0.0.9")
    text = text_of(page_of(admin))
    assert re.search(r"Devices here connected for \S+ \w+, from 10.0.0.9 away seen", text), text
    assert "gone" not in text


def test_nothing_for_who_may_nothing() -> None:
    client = Client()
    user = User.objects.create_user("bob", is_staff=True)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    assert "Approvals" not in page_of(client)
