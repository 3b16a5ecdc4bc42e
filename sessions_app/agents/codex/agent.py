"""Define the agent ``codex`` (D41, D75)."""

from sessions_app.agents import started
from sessions_app.agents.codex.program import NAME, PROGRAM, asked
from sessions_app.agents.driver import AgentKind, Driver
from sessions_app.agents.past.codex import CodexStore


def make() -> Driver:
    """Return a driver for one session."""
    from sessions_app.agents.codex.driver import CodexDriver

    return CodexDriver()


def _last() -> started.Start:
    return started.last.get(NAME) or started.Start(asks=True)


KIND = AgentKind(
    NAME,
    make,
    PROGRAM.problem,
    version=lambda: asked().version,
    can_modify=False,
    asks=lambda: _last().asks is not False,
    store=CodexStore(),
    path=lambda: PROGRAM.path() or "",
    trouble=lambda: _last().trouble or asked().trouble,
    steers=True,
)
