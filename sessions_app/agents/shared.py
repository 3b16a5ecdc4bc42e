"""Decide about sessions of the desk's that the bridge only joins (D80)."""

from collections.abc import Collection
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from sessions_app.agents.driver import AgentKind
from sessions_app.models import Session

UNASKED: Final = (
    "At the desk this session does not ask before it acts, so nothing is written to it from here. "
    "You can watch it, decide, and interrupt it. BRIDGE_ACP_UNASKED names agents that may be "
    "written to all the same."
)


async def is_joinable(kind: AgentKind, own_id: str) -> bool:
    """Return whether a session, by the agent's id, can be joined at the desk now."""
    return kind.join is not None and own_id in await joinable(kind)


async def joinable(kind: AgentKind) -> Collection[str]:
    """Return the desk's sessions that can be joined now, by the agent's ids of them."""
    return await kind.store.joinable() if kind.store is not None else ()


def may_write(session: Session) -> bool:
    """Return whether devices may write to a session of the desk's."""
    return session.asks is True or session.agent_type in conf.bridge_acp_unasked


def check_limit() -> None:
    """Raise SESS_LIMIT_REACHED; the lock on the log's head makes the count exact."""
    if Session.objects.filter(shared=True, owner__isnull=False).count() >= limits.JOINED_SESSIONS:
        words = f"{limits.JOINED_SESSIONS} sessions of the desk are joined already; leave one."
        raise BridgeError("SESS_LIMIT_REACHED", words)
