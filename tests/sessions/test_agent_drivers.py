"""Which agent a name means, and what can start here (D41, D44), as the admin site says it (D59)."""

import re

import pytest
from django.test import Client

from bridge_project.kernel import config
from bridge_project.kernel.errors import BridgeError
from sessions_app.agents import registry
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind
from tests.conformance.admin import text_of

PAGE = "/admin/sessions_app/session/agents/"
WHY = "<b>not</b> installed"


@pytest.mark.parametrize("name", ["", "primary-agent"])
def test_the_first_real_one_that_can_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D41: BRIDGE_DEFAULT_AGENT, else the first real one, else demo."""
    monkeypatch.setattr(registry, "KINDS", {})
    monkeypatch.setitem(config.conf.__dict__, "bridge_default_agent", "")

    def add(name: str, problem: str | None = None, *, real: bool = True) -> None:
        registry.KINDS[name] = AgentKind(name, DemoDriver, lambda: problem, lambda: "1", real)

    add("demo", real=False)
    add("absent", "It is not installed.")
    assert registry.resolve(name).name == "demo"
    add("one")
    add("two")
    assert registry.resolve(name).name == "one"
    monkeypatch.setitem(config.conf.__dict__, "bridge_default_agent", "two")
    assert registry.resolve(name).name == "two"
    monkeypatch.setitem(config.conf.__dict__, "bridge_default_agent", "absent")
    with pytest.raises(BridgeError, match="It is not installed"):
        registry.resolve(name)


WRONG = "qwen", "qwen=", "=x", "a=x;a=y", "demo=x", "claude-code=x", "a b=x", "a='x"


@pytest.mark.parametrize("setting", ["BRIDGE_ACP_AGENTS", "BRIDGE_DEFAULT_AGENT"])
@pytest.mark.parametrize("value", [*WRONG, "primary-agent=x"])
def test_a_bad_setting_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    """D44: one line that names the setting."""
    monkeypatch.setenv(setting, value)
    with pytest.raises(config.ConfError, match=rf"^{setting}: .+$"):
        config.load()


@pytest.mark.django_db
def test_the_admin_site_lists_them(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [
        AgentKind("real", DemoDriver, version=lambda: "4.5.6"),
        AgentKind("absent", DemoDriver, lambda: WHY, can_modify=False, asks=lambda: None),
        AgentKind("scripted", DemoDriver, real=False, asks=lambda: False),
    ]
    monkeypatch.setattr(registry, "KINDS", {kind.name: kind for kind in kinds})
    assert f'href="{PAGE}"' in admin_client.get("/admin/").content.decode()
    page = re.sub(r">\s+<", "><", admin_client.get(PAGE).content.decode())
    assert "&lt;b&gt;not&lt;/b&gt; installed" in page
    rows = [row.split("</tr>")[0] for row in page.split('<tr><th scope="row">')[1:]]
    assert [[text_of(cell).strip() for cell in row.split("<td>")] for row in rows] == [
        ["real", "yes", "", "4.5.6", "yes", "yes", "real"],
        ["absent", "no", WHY, "unknown", "nobody knows", "asks anew", "real"],
        ["scripted", "yes", "", "unknown", "no", "yes", "scripted"],
    ]
    assert Client().get(PAGE).status_code == 302  # to the login
