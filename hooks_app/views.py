"""Answer POST /hooks/event, /hooks/batch and /admin/reload-hooks (D2, D8, D31).

The fast path answers ordinary events; what is not ordinary, every refusal and batches come here.
"""

import json
from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project.http.json import json_bytes
from bridge_project.http.request import client_address
from bridge_project.http.view import BridgeAPIView
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import hooks, http
from bridge_project.protocol.types import HOOK_EVENTS, now_text
from devices_app.authentication import AdminOnly, HookOnly
from hooks_app import config
from hooks_app.intake import forwarders
from hooks_app.intake.store import Posted, find_receipts, store

_HEADERS = {
    "X-Hook-Source": "What sends: the `agent_type` of the session from this event on.",
    "X-Hook-Version": "The sender's version.",
}
HEADERS = [
    OpenApiParameter(name, str, OpenApiParameter.HEADER, description=text)
    for name, text in _HEADERS.items()
]
EXAMPLES = [json.loads((hooks.EXAMPLES / f"{name}.json").read_text()) for name in HOOK_EVENTS]
EVENTS = [OpenApiExample(body["event"], body, request_only=True) for body in EXAMPLES]
BATCH = [OpenApiExample("All nine", {"events": EXAMPLES}, request_only=True)]


class HookView(BridgeAPIView):
    """Require the hook token at /hooks/event and /hooks/batch; answer as D8 says."""

    permission_classes = [HookOnly]
    takes_large_bodies = True

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if said := request.headers.get(forwarders.HEADER):
            forwarders.record(client_address(request._request), said)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, hooks.HookInvalid):  # in all three forms that the spec shows, at once
            first = exc.violations[0]
            exc = BridgeError(
                exc.code,
                first["message"],
                received=False,
                details={"field": first["field"], "constraint": exc.constraint},
                validation_errors=exc.violations,
                errors=[
                    {name: one[name] for name in ("field", "message")} for one in exc.violations
                ],
            )
        return super().handle_exception(exc)

    @property
    def source(self) -> str:
        return self.request.headers.get("X-Hook-Source", "")


class EventView(HookView):
    """Store one event, and send it to every connection that has joined its session.

    It is stored before the answer.
    """

    rate_group = "hooks.event"

    @extend_schema(
        operation_id="hook_event",
        parameters=HEADERS,
        examples=EVENTS,
        request=hooks.HookEventBody,
        responses=http.IngestionResult,
    )
    def post(self, request: Request) -> Response:
        try:
            event = hooks.parse_hook_body(json_bytes(request), now=datetime.now(UTC))
        except hooks.HookInvalid as invalid:
            repeated = find_receipts([invalid.stale_id] if invalid.stale_id else [])
            if not repeated:
                raise
            [receipt] = repeated.values()
        else:
            [receipt] = store([Posted(event, self.source)])
        return Response(receipt.body())


class BatchView(HookView):
    """Store up to 500 events, in order and in one transaction (D32).

    Each is validated by itself; invalid ones are listed in the answer.
    """

    rate_group = "hooks.batch"

    @extend_schema(
        operation_id="hook_batch",
        parameters=HEADERS,
        examples=BATCH,
        request=http.HookBatchBody,
        responses=http.BatchResult,
    )
    def post(self, request: Request) -> Response:
        parsed = hooks.parse_hook_batch(json_bytes(request), now=datetime.now(UTC))
        good = [Posted(one, self.source) for one in parsed if isinstance(one, hooks.HookEvent)]
        stored = iter(store(good) if good else [])
        bad = [one for one in parsed if isinstance(one, hooks.HookInvalid)]
        repeated = find_receipts([one.stale_id for one in bad if one.stale_id])
        event_ids, errors = [], []
        for index, one in enumerate(parsed):
            if isinstance(one, hooks.HookEvent):
                event_ids.append(next(stored).event_id)
            elif one.stale_id in repeated:
                event_ids.append(one.stale_id)
            else:
                errors.append({"index": index, "validation_errors": one.violations})
        body: dict[str, Any] = {
            "received": True,
            "count": len(parsed),
            "accepted": len(event_ids),
            "rejected": len(errors),
            "event_ids": event_ids,
            "errors": errors,
        }
        return Response(body)


class ReloadHooksView(BridgeAPIView):
    """Check the hook configuration, and list the events that it has hooks for.

    A wrong configuration is refused.
    """

    rate_group = "admin"
    permission_classes = [AdminOnly]

    @extend_schema(operation_id="reload_hooks", request=None, responses=http.ReloadResult)
    def post(self, request: Request) -> Response:
        active = config.active_hooks()
        result = http.ReloadResult(reloaded=True, timestamp=now_text(), active_hooks=active)
        return Response(result.wire())
