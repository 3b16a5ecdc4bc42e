"""Which agent a name means, and what can start here (D41, D44)."""

import pytest

from bridge_project.kernel import config
from bridge_project.kernel.errors import BridgeError
from sessions_app.agents import registry
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind


@pytest.mark.parametrize("name", ["", "primary-agent"])
def test_the_first_real_one_that_can_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D41: BRIDGE_DEFAULT_AGENT, else the first real one, else demo."""
    monkeypatch.setattr(registry, "KINDS", {})
    monkeypatch.setitem(config.conf.__dict__, "bridge_default_agent", "")

    def add(name: str, why_not: str | None = None, *, real: bool = True) -> None:
        registry.KINDS[name] = AgentKind(name, DemoDriver, lambda: why_not, lambda: "1", real)

    add("demo", real=False)
    assert registry.resolve(name).name == "demo"
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


@pytest.mark.parametrize("value", [*WRONG, "primary-agent=x"])
def test_a_bad_setting_stops_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """D44: one line that names the setting."""
    monkeypatch.setenv("BRIDGE_ACP_AGENTS", value)
    with pytest.raises(config.ConfError, match=r"^BRIDGE_ACP_AGENTS: .+$"):
        config.load()
    monkeypatch.setenv("BRIDGE_ACP_AGENTS", "")
    monkeypatch.setenv("BRIDGE_DEFAULT_AGENT", value)
    with pytest.raises(config.ConfError, match=r"^BRIDGE_DEFAULT_AGENT: .+$"):
        config.load()
