"""List what an agent keeps of its past sessions (D67)."""

from collections.abc import Sequence
from datetime import UTC, datetime

from django.db.models import Max

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.resources import PastSession
from bridge_project.protocol.types import now_text
from sessions_app.agents import registry, shared, taking_over
from sessions_app.agents.past import listing
from sessions_app.agents.past.store import ANY_SESSION
from sessions_app.models import Session
from sessions_app.socket.connection import ClientConnection


async def history_list(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.HistoryList = message.payload
    kind = registry.KINDS.get(payload.agent)
    if kind is None or kind.store is None:
        why = kind.no_store if kind else "There is no such agent."
        raise BridgeError("AGENT_UNAVAILABLE", f"{payload.agent[:64]}: {why}")
    registry.resolve(kind.name)  # which says why it cannot start
    store = kind.store
    found, more = await listing.find(store, payload, await readers.run(_places))
    running, joinable = await taking_over.running(store), await shared.joinable(kind)
    ours = await readers.run(_known_as, [past.own_id for past, _ in found])
    sessions = [
        PastSession(
            agent=kind.name,
            session_id=ours.get(past.own_id, past.own_id),
            title=past.title,
            working_directory=where,
            last_activity_at=now_text(datetime.fromtimestamp(past.active_at, UTC)),
            shared=past.own_id in joinable,
            live=not running.isdisjoint({past.own_id, ANY_SESSION}),
        )
        for past, where in found
    ]
    answer = s.HistoryListResponse(sessions=sessions, more=more, note=store.note or None)
    await connection.send_payload(answer, id=message.id)


def _places() -> list[str]:
    """Return the roots, and the directories in which agents have worked last."""
    worked = Session.objects.values_list("working_directory").annotate(at=Max("last_activity_at"))
    newest = worked.order_by("-at")[: limits.HISTORY_PLACES]
    return [*dict.fromkeys([*conf.allowed_roots, *(place for place, _ in newest if place)])]


def _known_as(own_ids: Sequence[str]) -> dict[str, str]:
    """Return the agent's id → the bridge's, of sessions that it runs or has run."""
    found = Session.objects.filter(resume_id__in=own_ids)
    return dict(found.values_list("resume_id", "session_id"))
