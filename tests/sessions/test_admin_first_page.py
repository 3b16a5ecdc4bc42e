"""The admin site's first page and its page about agents: what matters now (D41)."""

import json
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from bridge_project.kernel import limits
from sessions_app.agents import registry
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind
from sessions_app.models import Feed, Session, ToolCall
from tests.conformance.admin import text_of

pytestmark = pytest.mark.django_db


def page_of(client: Client, path: str = "/admin/") -> str:
    """Return a page, without the space between its elements."""
    answer = client.get(path)
    assert answer.status_code == 200
    return re.sub(r">\s+<", "><", answer.content.decode())


def test_what_waits_is_there_as_it_was_asked(admin_client: Client) -> None:
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
    page = page_of(admin_client)
    assert "<script>x" not in page and "\u202e" not in page
    assert "Approvals that wait 1 Bash high Fix <it>" in text_of(page)
    assert "&#x27;EOF&#x27;\n&lt;/pre&gt;&lt;script&gt;x&lt;/script&gt;\ufffd\nEOF</pre>" in page
    assert "Active 1" in text_of(page)


def test_what_does_not_work_is_named(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DISK_FREE_MIN_BYTES", 2**80)
    assert "disk_space unhealthy" in text_of(page_of(admin_client))


PAGE = "/admin/sessions_app/session/agents/"
WHY = "<b>not</b> installed"


def test_it_lists_the_agents_and_the_first_page_leads_there(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [
        AgentKind("real", DemoDriver, version=lambda: "4.5.6"),
        AgentKind("absent", DemoDriver, lambda: WHY, can_modify=False, asks=lambda: None),
        AgentKind("scripted", DemoDriver, real=False, asks=lambda: False),
    ]
    monkeypatch.setattr(registry, "KINDS", {kind.name: kind for kind in kinds})
    assert f'href="{PAGE}"' in admin_client.get("/admin/").content.decode()
    page = page_of(admin_client, PAGE)
    assert "&lt;b&gt;not&lt;/b&gt; installed" in page
    rows = [row.split("</tr>")[0] for row in page.split('<tr><th scope="row">')[1:]]
    cells = [[text_of(cell).strip() for cell in row.split("<td>")] for row in rows]
    assert cells == [
        ["real", "yes", "", "4.5.6", "yes", "yes", "real"],
        ["absent", "no", WHY, "unknown", "nobody knows", "asks anew", "real"],
        ["scripted", "yes", "", "unknown", "no", "yes", "scripted"],
    ]


def test_nothing_for_who_may_nothing() -> None:
    staff = Client()
    staff.force_login(User.objects.create_user("ada", is_staff=True))
    assert staff.get(PAGE).status_code == 403
    first = page_of(staff)
    assert "Approvals" not in first and PAGE not in first
    assert Client().get(PAGE).status_code == 302  # to the login
