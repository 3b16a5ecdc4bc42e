"""Which agent a name means, and what can start here (D41, D44)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge_project import agents, conf
from bridge_project.errors import BridgeError
from sessions_app.agents import drivers
from sessions_app.agents.drivers import Kind
from tests.sessions.agent_driver import Scripted

Add = Callable[..., None]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    monkeypatch.setattr(drivers, "_kinds", {})
    monkeypatch.setattr(agents, "_AVAILABLE", {})
    monkeypatch.setitem(conf.conf.__dict__, "bridge_default_agent", "")

    def add(name: str, why_not: str | None = None, *, real: bool = True) -> None:
        drivers.register(Kind(name, Scripted, lambda: why_not, lambda: "1", real))

    return add


@pytest.mark.parametrize("name", ["", "primary-agent"])
def test_the_first_real_one_that_can_start(add: Add, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D41: primary-agent and an empty name mean BRIDGE_DEFAULT_AGENT, else the first real one, else demo."""
    add("demo", real=False)
    assert drivers.resolve(name).name == "demo"
    add("absent", "It is not installed.")
    assert drivers.resolve(name).name == "demo"
    add("one")
    add("two")
    assert drivers.resolve(name).name == "one"
    monkeypatch.setitem(conf.conf.__dict__, "bridge_default_agent", "two")
    assert drivers.resolve(name).name == "two"
    monkeypatch.setitem(conf.conf.__dict__, "bridge_default_agent", "absent")
    with pytest.raises(BridgeError, match="It is not installed"):
        drivers.resolve(name)


def test_what_can_start_is_listed(add: Add) -> None:
    """D41: supported_agents lists what can start here and now; anything else is AGENT_UNAVAILABLE, with what can."""
    add("demo", real=False)
    add("absent", "It is not installed.")
    assert agents.supported() == ["demo"]
    for name in ("absent", "nobody", "Demo"):
        with pytest.raises(BridgeError, match=r"AGENT_UNAVAILABLE.*What can: demo"):
            drivers.resolve(name)
    with pytest.raises(ValueError, match="demo"):
        add("demo")


def test_agents_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """D44: BRIDGE_ACP_AGENTS: name=command line, `;` between them."""
    monkeypatch.setenv("BRIDGE_ACP_AGENTS", "qwen = npx -y 'a b' --acp; gemini=gemini --acp ;")
    assert conf.load().acp_agents == {"qwen": ["npx", "-y", "a b", "--acp"], "gemini": ["gemini", "--acp"]}


@pytest.mark.parametrize("value", ["qwen", "qwen=", "=x", "a=x;a=y", "demo=x", "claude-code=x", "a b=x", "a='x", "primary-agent=x"])
def test_a_bad_setting_stops_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """D44: one line that names the setting."""
    monkeypatch.setenv("BRIDGE_ACP_AGENTS", value)
    with pytest.raises(conf.ConfError, match=r"^BRIDGE_ACP_AGENTS: .+$"):
        conf.load()
