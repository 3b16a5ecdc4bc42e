"""List the agents of ``BRIDGE_ACP_AGENTS`` as kinds of agents (D41)."""

import os
import shutil
from collections.abc import Mapping
from functools import partial

from bridge_project.kernel.child_process import search_path
from bridge_project.kernel.config import conf
from sessions_app.agents.acp import recipes
from sessions_app.agents.driver import AgentKind


def kinds() -> list[AgentKind]:
    """Return the kinds of the settings; one can start if its program exists."""
    return [_kind(name, command) for name, command in conf.bridge_acp_agents.items()]


def _kind(name: str, command: list[str]) -> AgentKind:
    # now, for it takes half a second; a bridge without such agents does without it
    from sessions_app.agents.acp.driver import AcpDriver, found_asks, found_versions

    program = command[0]
    if os.sep in program:
        # from where the bridge was started: a session's directory could hold a program of its own
        command = [os.path.abspath(os.path.expanduser(program)), *command[1:]]
    return AgentKind(
        name,
        partial(AcpDriver, name, command),
        partial(_why_not, name, command[0]),
        version=lambda: found_versions.get(name, ""),
        can_modify=False,
        asks=partial(_asks, name, command, found_asks),
    )


def _why_not(name: str, program: str) -> str | None:
    if shutil.which(program, path=search_path()):
        return None
    # Devices are told this, so it does not say which directories were searched.
    missing = os.path.basename(program)
    return (
        f"{missing} is not installed, or not where the bridge looks (BRIDGE_ACP_AGENTS names "
        f"it for {name}). Install it, or correct BRIDGE_ACP_AGENTS."
    )


def _asks(name: str, command: list[str], found: Mapping[str, bool | None]) -> bool | None:
    """Return what the last start found; before that, what its recipe promises."""
    if name in found:
        return found[name]
    return None if recipes.of_line(command) is None else True
