"""List the ACP agents: those of ``BRIDGE_ACP_AGENTS``, and those found (D41, D75)."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial

from bridge_project.kernel.child_process import search_path
from bridge_project.kernel.config import conf
from bridge_project.kernel.setting_types import FOUND_AGENTS
from sessions_app.agents import found, started
from sessions_app.agents.acp import recipes
from sessions_app.agents.driver import AgentKind, Driver
from sessions_app.agents.past.acp import AcpStore
from sessions_app.agents.past.store import Store


def kinds() -> Iterator[AgentKind]:
    """Yield the kinds of the settings' lines, then those that are looked for."""
    for name, command in conf.bridge_acp_agents.items():
        yield _of_line(name, command)
    for name in FOUND_AGENTS:
        row = recipes.ROWS.get(name)
        if row is not None and conf.looks_for(name) and name not in conf.bridge_acp_agents:
            yield _of_row(row)


def _of_line(name: str, command: list[str]) -> AgentKind:
    program = command[0]
    if os.sep in program:
        # from where the bridge was started: a session's directory could hold a program of its own
        command = [os.path.abspath(os.path.expanduser(program)), *command[1:]]
    row = recipes.of_line(command)
    return AgentKind(
        name,
        partial(_make, name, lambda: command),
        partial(_why_not, name, command[0]),
        version=lambda: _last(name).version,
        can_modify=False,
        asks=partial(_asks, name, row),
        store=_store(name, lambda: command, row),
        no_store=row.no_past if row is not None else recipes.NOT_SEEN,
        path=lambda: shutil.which(command[0], path=search_path()) or "",
        trouble=lambda: _last(name).trouble,
    )


def _of_row(row: recipes.Recipe) -> AgentKind:
    program, name = found.Program(row.command[0], row.product), row.name

    def command() -> list[str]:
        # of one that has just gone away the driver says that it is not there
        path = program.path() or os.path.join(os.sep, "gone", program.name)
        return [*found.command_of(path), *row.command[1:]]

    def answer() -> found.Answer:
        path = program.path()
        return found.ask(path) if path is not None else found.Answer()

    return AgentKind(
        name,
        partial(_make, name, command),
        program.problem,
        version=lambda: answer().version,
        can_modify=False,
        asks=partial(_asks, name, row),
        store=_store(name, command, row),
        no_store=row.no_past,
        path=lambda: program.path() or "",
        trouble=lambda: _last(name).trouble or answer().trouble,
    )


def _make(name: str, command: Callable[[], list[str]]) -> Driver:
    # now, for it takes half a second; a bridge that starts no such agent does without it
    from sessions_app.agents.acp.driver import AcpDriver

    return AcpDriver(name, command())


def _store(name: str, command: Callable[[], list[str]], row: recipes.Recipe | None) -> Store | None:
    if row is None or not row.resume:
        return None
    return row.store or AcpStore(name, command, row)


def _why_not(name: str, program: str) -> str | None:
    if shutil.which(program, path=search_path()):
        return None
    # Devices are told this, so it does not say which directories were searched.
    missing = os.path.basename(program)
    return (
        f"{missing} is not installed, or not where the bridge looks (BRIDGE_ACP_AGENTS names "
        f"it for {name}). Install it, or correct BRIDGE_ACP_AGENTS."
    )


def _asks(name: str, row: recipes.Recipe | None) -> bool | None:
    """Return what the last start found; before that, what its row promises."""
    if name in started.last:
        return started.last[name].asks
    return row.asks if row is not None else None


def _last(name: str) -> started.Start:
    return started.last.get(name) or started.Start()
