"""Which agent a name means, and what can start here (D41, D44)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from bridge_project.kernel import config, limits
from bridge_project.kernel.errors import BridgeError
from sessions_app.agents import registry
from sessions_app.agents.acp import agent
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind
from tests.servers import wait_until

Add = Callable[..., None]


def register(kind: AgentKind) -> None:
    registry.KINDS[kind.name] = kind


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    monkeypatch.setattr(registry, "KINDS", {})
    monkeypatch.setattr(registry, "_versions", {})
    monkeypatch.setitem(config.conf.__dict__, "bridge_default_agent", "")

    def add(name: str, why_not: str | None = None, *, real: bool = True) -> None:
        register(AgentKind(name, DemoDriver, lambda: why_not, lambda: "1", real))

    return add


@pytest.mark.parametrize("name", ["", "primary-agent"])
def test_the_first_real_one_that_can_start(
    add: Add, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D41: primary-agent and an empty name mean BRIDGE_DEFAULT_AGENT, else the first real one, else
    demo.
    """
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


def test_versions_are_asked_in_the_background(add: Add) -> None:
    """D41: a version may take seconds, as it runs a program; until it is known there is none, and
    whoever asks meanwhile does not wait.
    """
    free, asked = threading.Event(), threading.Event()

    def slow() -> str:
        asked.set()
        free.wait(180)
        return "2.0" * 100

    add("demo", real=False)
    register(AgentKind("faulty", DemoDriver, lambda: None, lambda: str(1 // 0)))
    register(AgentKind("slow", DemoDriver, lambda: None, slow))

    async def serve() -> None:
        await registry.start()
        try:
            assert await asyncio.to_thread(asked.wait, 30)
            assert {one.name: one.version for one in registry.listed()} == {
                "demo": "1",
                "faulty": None,
                "slow": None,
            }
            free.set()
            while registry.listed()[2].version is None:
                await asyncio.sleep(0.01)
        finally:
            free.set()
            await registry.stop()

    asyncio.run(asyncio.wait_for(serve(), 60))
    version = registry.listed()[2].version
    assert version and len(version) == registry.VERSION_MAX_CHARS


def test_a_version_is_asked_again(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is brought up to date while the bridge runs, or is known only once it was
    started.
    """
    monkeypatch.setattr(limits, "AGENT_VERSIONS_SECONDS", 0.01)
    now = {"version": ""}
    register(AgentKind("one", DemoDriver, lambda: None, lambda: now["version"]))
    asyncio.run(registry.start())
    try:
        now["version"] = "3"
        wait_until(lambda: registry.listed()[0].version == "3", "the version is known")
    finally:
        asyncio.run(registry.stop())


def test_the_reason_names_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to devices, in /info and in AGENT_UNAVAILABLE."""
    monkeypatch.setitem(
        config.conf.__dict__, "acp_agents", {"own": ["/home/alice/secret place/agent", "--key=1"]}
    )
    (kind,) = agent.kinds()
    reason = kind.why_not()
    assert reason and "agent is not installed" in reason and "BRIDGE_ACP_AGENTS" in reason
    assert "alice" not in reason and "key" not in reason


def test_agents_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """D44: BRIDGE_ACP_AGENTS: name=command line, `;` between them."""
    monkeypatch.setenv("BRIDGE_ACP_AGENTS", "qwen = npx -y 'a b' --acp; gemini=gemini --acp ;")
    assert config.load().acp_agents == {
        "qwen": ["npx", "-y", "a b", "--acp"],
        "gemini": ["gemini", "--acp"],
    }


WRONG = "qwen", "qwen=", "=x", "a=x;a=y", "demo=x", "claude-code=x", "a b=x", "a='x"


@pytest.mark.parametrize("value", [*WRONG, "primary-agent=x"])
def test_a_bad_setting_stops_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """D44: one line that names the setting."""
    monkeypatch.setenv("BRIDGE_ACP_AGENTS", value)
    with pytest.raises(config.ConfError, match=r"^BRIDGE_ACP_AGENTS: .+$"):
        config.load()


def test_the_kinds_and_what_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(config.conf.__dict__, "acp_agents", {"one": ["true"]})
    monkeypatch.setattr(registry, "KINDS", {})
    registry.load()
    found = [(kind.name, kind.real, kind.can_modify) for kind in registry.KINDS.values()]
    assert found == [("claude-code", True, True), ("one", True, False), ("demo", False, True)]
