"""Which agents there are, which of them can start here and now, and as which version; a driver
registers itself (D41).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError

log = structlog.get_logger("bridge.agent")

VERSION_MAX_CHARS = 200  # it is in the agent's own words


@dataclass(frozen=True, slots=True)
class Agent:
    """What the bridge has to know of an agent to tell of it.

    ``why_not`` says in words for a person, one on a phone too, why it cannot start here now, None
    when it could: it is asked each time, for that may change while the bridge runs. ``version`` is
    the agent's own, empty when unknown; it may take seconds. ``real``: not scripted.
    ``can_modify``: it runs a call with the parameters of a ``modified`` decision; one that cannot
    asks anew (docs/agents.md). ``asks``: it asks before it changes or runs something; None while
    nobody knows (D59).
    """

    name: str
    why_not: Callable[[], str | None]
    version: Callable[[], str]
    real: bool = True
    can_modify: bool = True
    asks: Callable[[], bool | None] = lambda: True


@dataclass(frozen=True, slots=True)
class Listed:
    """An agent as it is now. ``reason`` why it cannot start, None when it can; ``version`` None
    while it is unknown.
    """

    name: str
    real: bool
    reason: str | None
    version: str | None
    can_modify: bool
    asks: bool | None

    @property
    def can_start(self) -> bool:
        return self.reason is None


_agents: dict[str, Agent] = {}
_versions: dict[str, str] = {}
_stopped = threading.Event()


def register(agent: Agent) -> None:
    """Add an agent, or put it in the place of the one with this name."""
    _agents[agent.name] = agent
    _versions.pop(agent.name, None)


def listed() -> list[Listed]:
    """All of them, at once: a version is what was found in the background."""
    return [
        Listed(
            agent.name,
            agent.real,
            agent.why_not(),
            _versions.get(agent.name) or None,
            agent.can_modify,
            agent.asks(),
        )
        for agent in tuple(_agents.values())
    ]


def supported() -> list[str]:
    return [agent.name for agent in tuple(_agents.values()) if agent.why_not() is None]


def unavailable(name: str, reason: str = "") -> BridgeError:
    """The error for an agent that cannot be started here, with the reason if there is one."""
    able = ", ".join(supported()) or "none"
    why = f": {reason.rstrip('.')}" if reason else ""
    return BridgeError(
        "AGENT_UNAVAILABLE",
        f"The agent {name[:64] or '(default)'} cannot be started here{why}. What can: {able}.",
    )


# -- versions --------------------------------------------------------------------------------------


def ask_versions() -> None:
    """Ask every agent for its version, and keep it. It may take seconds: for a thread, never for a
    request or the event loop.
    """
    for agent in tuple(_agents.values()):
        try:
            _versions[agent.name] = agent.version()[:VERSION_MAX_CHARS]
        except Exception as error:  # noqa: BLE001 - what one agent's installation has wrong with it must not hide the others' versions; the log says it
            _versions.pop(agent.name, None)
            log.warning("agent_version_unknown", agent=agent.name, error=repr(error))


async def start() -> None:
    """Ask now and every AGENT_VERSIONS_SECONDS: an agent may be installed, brought up to date or
    started for the first time while the bridge runs.

    The thread is one that the end of the process does not wait for.
    """
    global _stopped
    _stopped = threading.Event()
    threading.Thread(
        target=_keep_asking, args=(_stopped,), name="agent versions", daemon=True
    ).start()


async def stop() -> None:
    _stopped.set()


def _keep_asking(stopped: threading.Event) -> None:
    while not stopped.is_set():
        ask_versions()
        stopped.wait(limits.AGENT_VERSIONS_SECONDS)
