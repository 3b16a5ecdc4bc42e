"""List the kinds of agents, and find the one that a name means (D41).

To add an agent, write one module with its driver, add one line to ``_kinds``, and its name to
``OWN_AGENTS`` of kernel/setting_types.py, which keeps others from taking it.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from bridge_project import __version__
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.http import AgentInfo
from sessions_app.agents.acp import agent as acp
from sessions_app.agents.claude import agent as claude
from sessions_app.agents.codex import agent as codex
from sessions_app.agents.demo.driver import DemoDriver
from sessions_app.agents.driver import AgentKind

ANY = frozenset({"", "primary-agent"})  # names that leave the choice to the bridge
VERSION_MAX_CHARS = 200  # an agent may say anything of itself

KINDS: dict[str, AgentKind] = {}


def _kinds() -> Iterator[AgentKind]:
    """Yield the kinds in the order in which `primary-agent` takes them (D75)."""
    yield from (one for one in (claude.KIND, codex.KIND) if conf.looks_for(one.name))
    yield from acp.kinds()
    yield AgentKind("demo", DemoDriver, version=lambda: __version__, real=False, steers=True)


def load() -> None:
    """Fill KINDS, unless that is done already."""
    if not KINDS:
        KINDS.update((kind.name, kind) for kind in _kinds())


def resolve(name: str) -> AgentKind:
    """Return the kind that a client's name means.

    A name of ANY means the configured kind, else the first real one that can start, else demo.
    Raises BridgeError AGENT_UNAVAILABLE for an unknown kind and for one that cannot start.
    """
    if name in ANY:
        name = preferred()
    kind = KINDS.get(name)
    reason = "" if kind is None else kind.problem()
    if kind is None or reason is not None:
        why = f": {reason.rstrip('.')}" if reason else ""
        words = f"The agent {name[:64]} cannot be started here{why}. Others: "
        raise BridgeError("AGENT_UNAVAILABLE", f"{words}{', '.join(supported()) or 'none'}.")
    return kind


def supported() -> list[str]:
    """Return the names of the kinds that can start here now."""
    return [kind.name for kind in KINDS.values() if kind.problem() is None]


def preferred() -> str:
    """Return the name of the kind that `primary-agent` means."""
    able = (kind.name for kind in KINDS.values() if kind.real and kind.problem() is None)
    return conf.bridge_default_agent or next(able, "demo")


def listed() -> list[AgentInfo]:
    """Describe all kinds as /info does.

    Programs are asked for versions that nobody knows, which may take seconds: call it in a thread.
    """
    with ThreadPoolExecutor(os.cpu_count()) as several:
        return list(several.map(_describe, KINDS.values()))


def _describe(kind: AgentKind) -> AgentInfo:
    reason = kind.problem()
    able = reason is None
    return AgentInfo(
        name=kind.name,
        can_start=able,
        can_modify=kind.can_modify,
        steers=kind.steers,
        asks=kind.asks(),
        version=(able and kind.version()[:VERSION_MAX_CHARS]) or None,
        reason=reason if reason is not None else kind.trouble() or None,
        history=None if kind.store else kind.no_store,
    )
