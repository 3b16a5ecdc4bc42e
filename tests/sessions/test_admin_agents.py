"""The admin site's page about agents: which can start here, their versions, why one cannot
(D41).
"""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.agents import registry
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind
from tests.conformance.admin import text_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/sessions_app/session/agents/"
WHY = "<b>not</b> installed"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [
        AgentKind("real", DemoDriver, version=lambda: "4.5.6"),
        AgentKind("absent", DemoDriver, lambda: WHY, can_modify=False, asks=lambda: None),
        AgentKind("scripted", DemoDriver, real=False, asks=lambda: False),
    ]
    monkeypatch.setattr(registry, "KINDS", {kind.name: kind for kind in kinds})
    monkeypatch.setattr(registry, "_versions", {})
    registry.ask_versions()


def client(*, is_superuser: bool = False) -> Client:
    user = User.objects.create_user("ada", is_staff=True, is_superuser=is_superuser)
    made = Client()
    made.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return made


def test_it_lists_them_and_the_index_leads_there() -> None:
    admin = client(is_superuser=True)
    assert f'href="{PAGE}"' in admin.get("/admin/").content.decode()
    page = admin.get(PAGE).content.decode()
    assert "&lt;b&gt;not&lt;/b&gt; installed" in page
    rows = [row.split("</tr>")[0] for row in page.split('<tr><th scope="row">')[1:]]
    cells = [[text_of(cell).strip() for cell in row.split("<td>")] for row in rows]
    assert cells == [
        ["real", "yes", "", "4.5.6", "yes", "yes", "real"],
        ["absent", "no", WHY, "unknown", "nobody knows", "asks anew", "real"],
        ["scripted", "yes", "", "unknown", "no", "yes", "scripted"],
    ]


def test_not_without_the_right() -> None:
    staff = client()
    assert staff.get(PAGE).status_code == 403
    assert PAGE not in staff.get("/admin/").content.decode()
    assert Client().get(PAGE).status_code == 302  # to the login


def test_none_is_changed_there() -> None:
    before = registry.listed()
    client(is_superuser=True).post(PAGE, {"name": "other"})
    assert registry.listed() == before
