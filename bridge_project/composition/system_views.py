"""Answer health, info, metrics, the API documents, and /ws without an upgrade."""

from functools import cache
from typing import Any, cast, get_args

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project import PROTOCOL_VERSION, __version__
from bridge_project.composition import health, metrics
from bridge_project.docs import asyncapi
from bridge_project.http import errors, ratelimit
from bridge_project.http.request import base_url, client_address, transport_of
from bridge_project.http.view import BridgeAPIView
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.network.transport import websocket_url
from bridge_project.protocol import http, jsontext
from bridge_project.protocol.types import HookEventName
from devices_app.authentication import AdminOnly, AnyToken
from devices_app.tokens import Principal
from hooks_app.intake import forwarders
from sessions_app.agents import registry

# What /info lists; `file_sync` is the specification's word for seeing files.
FEATURES = ["agent_sdk", "file_sync", "hook_events", "websocket_sessions"]
# SPEC GET /info lists seven; PreCompact and Notification are accepted all the same.
SUPPORTED_HOOKS: list[HookEventName] = [
    name for name in get_args(HookEventName) if name not in ("PreCompact", "Notification")
]


class HealthView(BridgeAPIView):
    """Report the bridge's health: 200, or 503 when a part does not work (D48)."""

    rate_group = "status"
    permission_classes = [AnyToken]

    @extend_schema(operation_id="health", responses={200: http.Health, 503: http.HealthDegraded})
    def get(self, request: Request) -> Response:
        status, body = health.report(transport_of(request._request).mode)
        return Response(body.wire(), status=status)

    def handle_exception(self, exc: Exception) -> Response:
        """Report health without a token while the database cannot check it."""
        error = errors.as_bridge_error(exc)
        if error is not None and error.code == "STORAGE_UNAVAILABLE":
            try:
                ratelimit.check(self.rate_group, None, client_address(self.request))
            except BridgeError as limited:
                return super().handle_exception(limited)
            answer = self.get(self.request)
            if answer.status_code == 503:
                return answer
        return super().handle_exception(exc)


class InfoView(BridgeAPIView):
    """Report what this bridge can do, and its limits."""

    rate_group = "status"
    permission_classes = [AnyToken]

    @extend_schema(operation_id="info", responses=http.Info)
    def get(self, request: Request) -> Response:
        known = registry.listed()
        principal = cast(Principal, request.user)
        body = http.Info(
            name="bridge",
            version=__version__,
            protocol_version=PROTOCOL_VERSION,
            features=FEATURES,
            supported_agents=[one.name for one in known if one.can_start],
            agents=known,
            supported_hooks=SUPPORTED_HOOKS,
            limits=http.InfoLimits(
                max_sessions=conf.bridge_max_sessions,
                max_websocket_connections=conf.bridge_max_websockets,
                max_message_size_mb=conf.bridge_max_message_mb,
                hook_timeout_seconds=limits.HOOK_TIMEOUT_SECONDS,
            ),
            forwarders=forwarders.behind() if principal.kind == "admin" else None,
        )
        return Response(body.wire())


class MetricsView(BridgeAPIView):
    """Return this process's metrics for Prometheus.

    The rate of `/admin/*` is too low for a scrape every few seconds.
    """

    rate_group = "documents"
    permission_classes = [AdminOnly]

    @extend_schema(
        operation_id="metrics",
        responses={
            (200, "text/plain"): OpenApiTypes.STR,
            (200, "application/openmetrics-text"): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request) -> HttpResponse:
        text, content_type = metrics.exposition(request.headers.get("Accept", ""))
        return HttpResponse(text, content_type=content_type, headers={"Cache-Control": "no-store"})


class OpenView(BridgeAPIView):
    """Answer requests without a token: the base of the views that need none."""

    rate_group = "documents"
    authentication_classes = []
    permission_classes = []


class WebSocketView(OpenView):
    """Answer WS_UPGRADE_REQUIRED to a plain request at the WebSocket's address.

    No token is needed. `websocket_url` is the address to connect to.
    """

    @extend_schema(operation_id="websocket", responses={101: None})
    def get(self, request: Request) -> Response:
        url = websocket_url(base_url(request._request))
        raise BridgeError(
            "WS_UPGRADE_REQUIRED",
            headers={"Upgrade": "websocket", "Connection": "Upgrade"},
            websocket_url=url,
        )


class SchemaView(OpenView):
    """Return this OpenAPI document."""

    @extend_schema(operation_id="schema", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(document(), content_type="application/json")


class AsyncApiView(OpenView):
    """Return the WebSocket protocol as an AsyncAPI document."""

    @extend_schema(operation_id="asyncapi", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(asyncapi.document(), content_type="application/json")


@cache
def document() -> str:
    """Return the OpenAPI document as JSON; it stays the same while the bridge runs."""
    generator: Any = SchemaGenerator
    return jsontext.dumps(generator().get_schema(request=None, public=True))
