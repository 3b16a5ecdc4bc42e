"""Say how a device can go on with a session, without a look at the disk (D67)."""

from functools import cache
from os.path import realpath
from typing import Any

from bridge_project.kernel.config import conf
from bridge_project.protocol.resources import Continue
from sessions_app.agents import registry
from sessions_app.agents.driver import AgentKind
from sessions_app.models import Session
from sessions_app.observed import desk

ENDED = "It has ended."
FORGOTTEN = "Its agent does not know it any more."
OUTSIDE = "Its directory is outside of what the bridge may use (BRIDGE_ALLOWED_ROOTS)."
NO_AGENT = "No agent here can continue it."
JOINS = "If it runs at the machine, it is joined: it goes on there and here."
BUSY = "It works at the machine. It can be continued here once it is idle, or asks."


def with_store(agent: str) -> AgentKind | None:
    """Return the agent of this name, if it has a store.

    Without a name it is the first whose programs say which session they run.
    """
    if agent not in registry.ANY:
        kind = registry.KINDS.get(agent)
        return kind if kind is not None and kind.store is not None else None
    kinds = registry.KINDS.values()
    return next((one for one in kinds if one.store and one.store.names_sessions), None)


def kind_of(session: Any) -> AgentKind | None:
    """Return the agent whose store may hold an observed session, else None."""
    return with_store(session.agent_type)


def unseen(session: Any, kind: AgentKind) -> str:
    """Return why it cannot be seen whether a program runs a session; "" if it can.

    Of one that was given back, any program of an agent that names no sessions counts as there.
    """
    given_back = bool(session.resume_id and kind.store and not kind.store.names_sessions)
    return "" if given_back else desk.unseen(session)


def continue_of(session: Any, *, resumable: bool) -> Continue:
    """Return the best way to go on with a session (model or row of COLUMNS)."""
    closed = session.status == Session.Status.CLOSED
    if session.kind == Session.Kind.BRIDGE:
        if resumable or session.status in Session.RUNS:
            return Continue(how="join")
        return Continue(reason=ENDED if closed and not session.expired else FORGOTTEN)
    if session.answerable and not closed:  # where it waits (D66)
        return Continue(how="answer")
    kind = kind_of(session)
    if kind is None:
        return Continue(reason=NO_AGENT)
    joins = kind.name in conf.bridge_join
    why = ("" if joins else unseen(session, kind)) or kind.problem()
    if why or not _inside(session.working_directory):
        return Continue(reason=why or OUTSIDE)
    if joins:
        return Continue(how="join", reason=JOINS)
    living = desk.living(session)
    if living and session.turn == Session.Turn.WORKING and not closed:
        return Continue(reason=BUSY)
    note = kind.store.note if kind.store else ""
    return Continue(how="take_over", reason=note, ends=bool(living))


def _inside(directory: str) -> bool:
    """Return whether a path looks as if it were inside a root."""
    roots = (_real(root).rstrip("/") for root in conf.allowed_roots)
    return any(directory == (root or "/") or directory.startswith(f"{root}/") for root in roots)


@cache
def _real(root: str) -> str:
    return realpath(root)
