"""Define the agent ``claude-code`` (D41).

It runs through claude-agent-sdk, an optional extra of the project, which is imported only when a
session of it starts.
"""

from collections.abc import Sequence

from sessions_app.agents.claude.program import NAME, asked, mend, package, problem, program
from sessions_app.agents.driver import AgentKind, Driver, HistoryMessage
from sessions_app.agents.past.claude import ClaudeStore


def make() -> Driver:
    """Return a driver for one session; starting it reports what is missing."""
    from sessions_app.agents.claude.driver import ClaudeDriver

    return ClaudeDriver()


def history(resume_id: str) -> Sequence[HistoryMessage]:
    """Return a session's conversation from its transcript; empty without the SDK."""
    if package() is None:
        return ()
    from sessions_app.agents.claude.translation import read_transcript

    return read_transcript(resume_id)


KIND = AgentKind(
    NAME,
    make,
    problem,
    version=lambda: asked().version,
    mend=mend,
    history=history,
    store=ClaudeStore(),
    path=lambda: str(program() or ""),
    trouble=lambda: asked().trouble,
    steers=True,
)
