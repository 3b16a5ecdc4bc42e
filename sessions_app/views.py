"""Answer what is asked over HTTP about sessions (D35, D39, D70)."""

import uuid
from typing import Any, cast

import structlog
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project.http import ratelimit
from bridge_project.http.json import json_model, query_model
from bridge_project.http.view import BridgeAPIView
from bridge_project.kernel import limits, picture_files
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import http
from bridge_project.protocol.types import now_text, parse_timestamp
from devices_app import pairing
from devices_app.authentication import DeviceOrAdmin
from devices_app.tokens import Principal
from sessions_app import attachments, search, session_view
from sessions_app.agents import prompts
from sessions_app.log.outbox import outbox
from sessions_app.models import Attachment, Join, Session
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

    The bridge remembers a session as long as its messages, a `resumable` one for 30 days.
    """

    rate_group = "sessions"
    permission_classes = [DeviceOrAdmin]

    @extend_schema(
        operation_id="sessions",
        responses=http.SessionList,
        parameters=[
            OpenApiParameter(
                "query",
                {"type": "string", "maxLength": limits.SEARCH_QUERY_CHARS},
                description="Words that stand in it (D73).",
            ),
            OpenApiParameter("archived", bool, description="Only those that are, or are not."),
            OpenApiParameter(
                "limit", {"type": "integer", "minimum": 1}, description="At most so many."
            ),
            OpenApiParameter(
                "before", OpenApiTypes.DATETIME, description="Last active before this time."
            ),
        ],
    )
    def get(self, request: Request) -> Response:
        asked = query_model(request, http.SessionsAsked)
        # not shown in a list, and the larger part of a session
        sessions = _sessions().defer("recent_events")
        if asked.query is not None:
            sessions = sessions.filter(pk__in=search.sessions_with(asked.query))
        if asked.archived is not None:
            sessions = sessions.filter(archived=asked.archived)
        if asked.before is not None:
            sessions = sessions.filter(last_activity_at__lt=parse_timestamp(asked.before))
        total = sessions.count()
        bodies = [body_of(session) for session in sessions[: asked.limit]]
        return Response({"sessions": bodies, "total": total})


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
                    session.pk,
                    event.content,
                    device=device,
                    message_id=event_id,
                    source="http",
                    attached=event.attachments or (),
                )
            except BridgeError as error:
                if error.code == "RATE_LIMITED":
                    raise ratelimit.too_many(error.message, prompts.RETRY_SECONDS) from None
                if error.code in ("SESS_CLOSED", "SESS_NOT_ACTIVE"):
                    raise BridgeError("SESSION_CLOSED", error.message) from None
                if error.code == "PROTO_INVALID_MESSAGE":
                    raise BridgeError("VALIDATION_ERROR", error.message) from None
                raise
        body = {"accepted": driven, "event_id": event_id, "session_id": session.session_id}
        return Response(body, status=202)


_FILE = {"application/octet-stream": OpenApiTypes.BINARY}
_NAMES = {
    "X-File-Name": "Its name, in UTF-8, percent-encoded where it is not ASCII.",
    "X-Client-Id": "Made once for this file: sending it again stores nothing twice.",
}


class AttachmentListView(BridgeAPIView):
    """Store a file for a session that the bridge runs; its body is the file itself.

    Name it in `attachments` of a `message`. The bridge keeps it with the session, up to 256 MB
    each and 2 GB in all: then the oldest go.
    """

    rate_group = "attachments"
    permission_classes = [DeviceOrAdmin]
    takes_large_bodies = True

    @extend_schema(
        operation_id="attachment_upload",
        parameters=[
            OpenApiParameter(name, str, OpenApiParameter.HEADER, description=text)
            for name, text in _NAMES.items()
        ],
        request=_FILE,
        responses={201: http.Attachment},
    )
    def post(self, request: Request, session_id: str) -> Response:
        if request.META.get("CONTENT_TYPE", "").startswith("multipart/"):
            words = "A form is not taken: the body is the file itself."
            raise BridgeError("UNSUPPORTED_MEDIA_TYPE", words)
        client_id = request.headers.get("X-Client-Id", "")
        if len(client_id) > limits.CLIENT_MESSAGE_ID_MAX_CHARS or not client_id.isprintable():
            raise BridgeError("VALIDATION_ERROR", "X-Client-Id is too long, or not printable.")
        data = request._request.body
        if len(data) > limits.ATTACHMENT_BYTES:
            raise BridgeError("PAYLOAD_TOO_LARGE")
        session = _find(session_id)
        _check_takes_files(session)
        kept = attachments.sent_before(session.pk, client_id, data)
        if kept is None:
            device = cast(Principal, request.user).device
            name = request.headers.get("X-File-Name", "")
            attachment_id = attachments.write(session.pk, data)
            try:
                with outbox():  # it holds the head of the log: the session stays as it is
                    if device:
                        pairing.check_not_revoked(device.pk)
                    _check_takes_files(_find(session_id))
                    kept = attachments.sent_before(session.pk, client_id, data)
                    if kept is None:
                        name = attachments.name_of(name, picture_files.media_type_of(data))
                        about = {"name": name, "client_id": client_id}
                        kept = attachments.record(session, attachment_id, data, **about)
                        prompts.record("attachment", session, device, subject=name, size=len(data))
            finally:
                if kept is None or kept.attachment_id != attachment_id:
                    attachments.remove(session.pk, attachment_id)
        return Response(attachments.body_of(kept), status=201)


def _check_takes_files(session: Session) -> None:
    if session.kind != Session.Kind.BRIDGE:
        raise BridgeError("SESSION_CLOSED", "This session is only observed through hooks.")
    if session.status == Session.Status.CLOSED:
        raise BridgeError("SESSION_CLOSED")


class AttachmentView(BridgeAPIView):
    """Return an attachment as it was sent; what is no picture only to be saved."""

    rate_group = "attachments.get"
    permission_classes = [DeviceOrAdmin]

    @extend_schema(operation_id="attachment", responses={(200, "*/*"): OpenApiTypes.BINARY})
    def get(self, request: Request, session_id: str, attachment_id: str) -> HttpResponse:
        kept = None
        if "\x00" not in attachment_id:
            found = Attachment.objects.filter(session=_find(session_id))
            kept = found.filter(attachment_id=attachment_id).first()
        if kept is None:
            raise BridgeError("NOT_FOUND", "The session has no such attachment.")
        try:
            data = attachments.path_of(kept.session_id, kept.attachment_id).read_bytes()
        except FileNotFoundError:
            raise BridgeError("NOT_FOUND", "The attachment is not kept any more.") from None
        is_picture = kept.type in picture_files.EXTENSIONS
        headers = {
            "Content-Disposition": content_disposition_header(not is_picture, kept.name),
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        return HttpResponse(data, content_type=kept.type, headers=headers)
