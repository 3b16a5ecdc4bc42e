"""Which kinds of agents there are, which of them can start here and now, and which one a name means
(D41).

Each module of MODULES has ``def kinds() -> Iterable[Kind]``, which is asked once, when the bridge
starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from bridge_project.kernel.config import conf
from sessions_app.agents import listing
from sessions_app.agents.driver import Driver

MODULES = (
    "sessions_app.agents.claude.agent",
    "sessions_app.agents.acp.agent",
    "sessions_app.agents.demo.driver",
)
DEMO = "demo"
ANY = frozenset({"", "primary-agent"})  # names that leave the choice to the bridge


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of agent.

    ``make`` gives a driver for one session; ``why_not`` says in words for a person why none could
    start here now, None when it could (asked for each connection, so it must be quick; it goes to
    devices, so it names no path of this machine); ``version`` is the agent's own, empty when
    unknown (it may take seconds); ``real``: not scripted, so that it is preferred, and watched by
    the breaker; ``mend`` is the shell command that does away with what ``why_not`` says, empty when
    there is none; ``can_modify`` is what its drivers say, known without loading one; ``asks``:
    whether it asks before it acts, as far as is known before a session of it is started (D59).
    """

    name: str
    make: Callable[[], Driver]
    why_not: Callable[[], str | None]
    version: Callable[[], str]
    real: bool = True
    mend: Callable[[], str] = str
    can_modify: bool = True
    asks: Callable[[], bool | None] = lambda: True


_kinds: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Add a kind, and have it listed, among ``supported_agents`` whenever it can start. Raises
    ValueError for a name that is taken or reserved.
    """
    if kind.name in _kinds or kind.name in ANY:
        raise ValueError(f"two agents are called {kind.name!r}")
    _kinds[kind.name] = kind
    listing.register(
        listing.Agent(kind.name, kind.why_not, kind.version, kind.real, kind.can_modify, kind.asks)
    )


def load() -> None:
    """Register the kinds of all modules; doing it twice does nothing."""
    for name in MODULES:
        for kind in import_module(name).kinds():
            if kind.name not in _kinds:
                register(kind)


def kinds() -> list[Kind]:
    return list(_kinds.values())


def resolve(name: str) -> Kind:
    """The kind that a client's name means: one of its own, or for an empty one the configured, else
    the first real one that can start, else demo.

    Raises BridgeError AGENT_UNAVAILABLE for an unknown one, and with the reason for one that cannot
    start.
    """
    if name in ANY:
        name = conf.bridge_default_agent or next(
            (kind.name for kind in _kinds.values() if kind.real and kind.why_not() is None), DEMO
        )
    kind = _kinds.get(name)
    if kind is None:
        raise listing.unavailable(name)
    if (reason := kind.why_not()) is not None:
        raise listing.unavailable(name, reason)
    return kind
