"""The agents that ``BRIDGE_ACP_AGENTS`` names, all of which speak the Agent Client Protocol (D41).
The driver is ``acp_driver``.
"""

from __future__ import annotations

import os
import shutil
from functools import partial

from bridge_project.kernel.child_process import search_path
from bridge_project.kernel.config import conf
from sessions_app.agents.acp import recipes
from sessions_app.agents.driver import Driver
from sessions_app.agents.registry import Kind


def kinds() -> list[Kind]:
    """Those of the settings. Whether one can start is whether its program is there: nothing is
    started to find out.
    """
    if conf.acp_agents:
        from sessions_app.agents.acp import driver  # noqa: F401  (now, for it takes half a second; a bridge without such agents does without it)
    commands = {
        name: [_program(command[0]), *command[1:]] for name, command in conf.acp_agents.items()
    }
    return [
        Kind(
            name,
            partial(_make, name, command),
            partial(_why_not, name, command[0]),
            partial(_version, name),
            can_modify=False,
            asks=partial(_asks, name, command),
        )
        for name, command in commands.items()
    ]


def _program(name: str) -> str:
    """A path is meant from where the bridge was started: in a session's directory a repository
    could put a program of its own there.
    """
    return os.path.abspath(os.path.expanduser(name)) if os.sep in name else name


def _why_not(name: str, program: str) -> str | None:
    if shutil.which(program, path=search_path()):
        return None
    # devices are told this: where it was looked for is the machine's own business
    missing = os.path.basename(program)
    return f"{missing} is not installed, or not where the bridge looks (BRIDGE_ACP_AGENTS names it for {name}). Install it, or correct BRIDGE_ACP_AGENTS."


def _make(name: str, command: list[str]) -> Driver:
    from sessions_app.agents.acp.driver import AcpDriver

    return AcpDriver(name, command)


def _version(name: str) -> str:
    """Known once it has been started."""
    from sessions_app.agents.acp.driver import versions

    return versions.get(name, "")


def _asks(name: str, command: list[str]) -> bool | None:
    """As it was found when it was last started; before that, as its recipe promises."""
    from sessions_app.agents.acp.driver import asking

    if name in asking:
        return asking[name]
    if recipes.of_line(command) is not None:
        return True
    return False if name in conf.bridge_acp_unasked else None
