"""Answer GET /sessions, GET /sessions/:id, POST /sessions/:id/events (D35, D39)."""

import uuid
from typing import Any, cast

import structlog
from django.db.models import Exists, OuterRef, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project.http import ratelimit
from bridge_project.http.json import json_model
from bridge_project.http.view import BridgeAPIView
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import http
from bridge_project.protocol.types import now_text
from devices_app.authentication import DeviceOrAdmin
from devices_app.tokens import Principal
from sessions_app import session_view
from sessions_app.agents import prompts
from sessions_app.models import Join, Session
from sessions_app.socket import presence


def _sessions() -> QuerySet[Session]:
    joined = Join.objects.filter(session=OuterRef("pk"), connection__in=presence.live())
    return Session.objects.annotate(websocket_connected=Exists(joined))


def _find(session_id: str) -> Session:
    """Return the session with this id. Raises BridgeError SESSION_NOT_FOUND."""
    structlog.contextvars.bind_contextvars(session=session_id)
    session = None
    if "\x00" not in session_id:  # which PostgreSQL cannot be asked for
        session = _sessions().filter(session_id=session_id).first()
    if session is None:
        raise BridgeError("SESSION_NOT_FOUND")
    return session


def body_of(session: Session) -> dict[str, Any]:
    """Return the session as /sessions lists it."""
    same = ("agent_type", "title", "working_directory", "status")
    return {
        "id": session.session_id,
        **{name: getattr(session, name) for name in same},
        **session_view.state_of(session),
        "created_at": now_text(session.created_at),
        "websocket_connected": session.websocket_connected,  # type: ignore[attr-defined]
        "hook_count": session.hook_count,
    }


class SessionView(BridgeAPIView):
    """Return one session with its last 20 events, newest first."""

    rate_group = "sessions"
    permission_classes = [DeviceOrAdmin]

    @extend_schema(operation_id="session", responses=http.Session)
    def get(self, request: Request, session_id: str) -> Response:
        session = _find(session_id)
        return Response(body_of(session) | {"recent_events": session.recent_events})


class SessionListView(BridgeAPIView):
    """List the sessions, the most recently active first.

    The bridge remembers a session for a week after its end, a `resumable` one for 30 days.
    """

    rate_group = "sessions"
    permission_classes = [DeviceOrAdmin]

    @extend_schema(operation_id="sessions", responses=http.SessionList)
    def get(self, request: Request) -> Response:
        # not shown in a list, and the larger part of a session
        sessions = [body_of(session) for session in _sessions().defer("recent_events")]
        return Response({"sessions": sessions, "total": len(sessions)})


class SessionEventsView(BridgeAPIView):
    """Send a message to the agent of a session that the bridge runs.

    An observed session accepts none: hooks cannot control an agent (D39). One that is closed,
    paused or in error answers SESSION_CLOSED.
    """

    rate_group = "sessions"
    permission_classes = [DeviceOrAdmin]
    takes_large_bodies = True

    @extend_schema(
        operation_id="session_event",
        request=http.UserEvent,
        responses={202: http.UserEventAccepted},
    )
    def post(self, request: Request, session_id: str) -> Response:
        event = json_model(request, http.UserEvent)
        session = _find(session_id)
        if session.status == Session.Status.CLOSED:
            raise BridgeError("SESSION_CLOSED")
        driven = session.kind == Session.Kind.BRIDGE
        event_id = str(uuid.uuid4())
        if driven:
            device = cast(Principal, request.user).device
            try:
                prompts.send_prompt(
                    session.pk, event.content, device=device, message_id=event_id, source="http"
                )
            except BridgeError as error:
                if error.code == "RATE_LIMITED":
                    raise ratelimit.too_many(error.message, prompts.RETRY_SECONDS) from None
                if error.code in ("SESS_CLOSED", "SESS_NOT_ACTIVE"):
                    raise BridgeError("SESSION_CLOSED", error.message) from None
                if error.code == "PROTO_INVALID_MESSAGE":
                    raise BridgeError("VALIDATION_ERROR", error.message) from None
                if error.code == "AUTH_FAILED":
                    raise BridgeError("AUTH_INVALID_TOKEN") from None
                raise
        body = {"accepted": driven, "event_id": event_id, "session_id": session.session_id}
        return Response(body, status=202)
