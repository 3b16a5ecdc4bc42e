"""POST /hooks/event and POST /hooks/batch (SPEC; D2, D8, D31 to D33)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project.http.json import json_bytes
from bridge_project.http.view import BridgeAPIView
from bridge_project.protocol import examples, http
from bridge_project.protocol.hooks import HookEvent, HookInvalid, parse_hook_batch, parse_hook_body
from devices_app.authentication import HookOnly
from hooks_app.intake import store as intake
from hooks_app.intake.responses import ingestion_result, validation_failure, violation_body
from hooks_app.intake.store import Posted

SOURCE = [
    OpenApiParameter(
        "X-Hook-Source",
        str,
        OpenApiParameter.HEADER,
        description="What sends: the `agent_type` of a session that this event creates.",
    ),
    OpenApiParameter(
        "X-Hook-Version", str, OpenApiParameter.HEADER, description="The sender's version."
    ),
]
EVENTS = [
    OpenApiExample(event, body, request_only=True) for event, body in examples.HOOK_EVENTS.items()
]
BATCH = [
    OpenApiExample("All nine", {"events": list(examples.HOOK_EVENTS.values())}, request_only=True)
]


class HookView(BridgeAPIView):
    """What both endpoints share: the hook token and D8's body for what is wrong."""

    permission_classes = [HookOnly]
    takes_large_bodies = True

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, HookInvalid):
            # any HttpResponse will do
            return cast(Response, validation_failure(self.request._request, exc))
        return super().handle_exception(exc)

    @property
    def source(self) -> str:
        return self.request.headers.get("X-Hook-Source", "")


class EventView(HookView):
    """One event: stored before the answer, sent to every connection that has joined its session."""

    rate_group = "hooks.event"

    @extend_schema(
        operation_id="hook_event",
        parameters=SOURCE,
        examples=EVENTS,
        request=http.HookEventBody,
        responses=http.IngestionResult,
    )
    def post(self, request: Request) -> Response:
        event = parse_hook_body(json_bytes(request), now=datetime.now(UTC))
        [receipt] = intake.store([Posted(event, self.source)])
        return Response(ingestion_result(receipt))


class BatchView(HookView):
    """Up to 500 events, each judged by itself; the good ones are stored in order in one transaction
    (D32).
    """

    rate_group = "hooks.batch"

    @extend_schema(
        operation_id="hook_batch",
        parameters=SOURCE,
        examples=BATCH,
        request=http.HookBatchBody,
        responses=http.BatchResult,
    )
    def post(self, request: Request) -> Response:
        parsed = parse_hook_batch(json_bytes(request), now=datetime.now(UTC))
        good = [Posted(event, self.source) for event in parsed if isinstance(event, HookEvent)]
        receipts = intake.store(good) if good else []
        errors = [
            {"index": i, "validation_errors": [violation_body(v) for v in bad.violations]}
            for i, bad in enumerate(parsed)
            if isinstance(bad, HookInvalid)
        ]
        body: dict[str, Any] = {
            "received": True,
            "count": len(parsed),
            "accepted": len(receipts),
            "rejected": len(errors),
            "event_ids": [receipt.event_id for receipt in receipts],
            "errors": errors,
        }
        return Response(body)
