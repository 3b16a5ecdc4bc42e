"""Find sessions by what was said in them; name, pin and archive them (D73)."""

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import search as thread
from bridge_project.kernel.threads import writers
from bridge_project.protocol import client_messages as c
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.parse import ClientMessage
from bridge_project.protocol.types import parse_timestamp
from devices_app import audit
from devices_app.models import Device
from sessions_app import search, session_view
from sessions_app.log.outbox import outbox
from sessions_app.models import Session
from sessions_app.observed import sessions as observed_sessions
from sessions_app.socket.connection import ClientConnection


async def session_search(connection: ClientConnection, message: ClientMessage) -> None:
    payload: c.SessionSearch = message.payload
    before = parse_timestamp(payload.before) if payload.before else None
    hits, more = await thread.run(search.find, payload.query, payload.limit, before)
    answer = s.SessionSearchResponse(hits=hits, more=more)
    await connection.send_payload(answer, id=message.id)


async def session_edit(connection: ClientConnection, message: ClientMessage) -> None:
    session = await writers.run(_edit, connection.paired, message.payload)
    answer = s.SessionUpdate(session=session_view.info_of(session))
    await connection.send_payload(answer, id=message.id)
    # Another device's later title may have been sent before this answer: it is sent again.
    connection.shown.pop(session.pk, None)


def _edit(device: Device, asked: c.SessionEdit) -> Session:
    """Change a session as a person says. Raises SESSION_NOT_FOUND."""
    with outbox() as box:  # so that no event writes an older title over it
        session = Session.objects.filter(session_id=asked.session_id).first()
        if session is None:
            raise BridgeError("SESSION_NOT_FOUND", session_id=asked.session_id)
        if asked.title is not None:
            observed_sessions.name(session, asked.title)
        for name in ("pinned", "archived"):
            if (value := getattr(asked, name)) is not None:
                setattr(session, name, value)
        session.edited_at = box.now
        session.save(update_fields=["title", "named", "pinned", "archived", "edited_at"])
        about = asked.model_dump(exclude_none=True, exclude={"session_id"})
        audit.record("session_edit", device=device, session_id=session.session_id, **about)
    return session
