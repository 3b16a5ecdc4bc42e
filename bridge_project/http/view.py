"""Check authentication, rate and permission of API requests (D14, D16, D17)."""

from typing import Any, ClassVar

import structlog
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bridge_project.http import ratelimit
from bridge_project.http.error_body import JSON_TYPE
from bridge_project.http.errors import NO_LARGE_BODY
from bridge_project.http.request import client_address, scope_of
from bridge_project.kernel.errors import BridgeError


class SendBody(Exception):
    """Ask the edge to read a large body: raised by a view, but not an error."""


class BridgeAPIView(APIView):
    """Check who asks, how often, and whether they may: the base of every API view.

    A view states `rate_group` (a key of `limits.RATES`) and `permission_classes` (of
    `devices_app.authentication`). `request.user` is the Principal, None where
    `authentication_classes` is empty. Views raise BridgeError and return `Response(model.wire())`,
    or at once the dict that the model would make; bodies come from `json_bytes` and `json_model`.
    """

    rate_group: ClassVar[str]
    takes_large_bodies: ClassVar[bool] = False  # over limits.SMALL_BODY_BYTES

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        # JSON whatever `Accept` says; a 406 would help nobody
        request.accepted_renderer = self.get_renderers()[0]
        request.accepted_media_type = JSON_TYPE
        address = client_address(request)
        scope = scope_of(request._request)
        try:
            principal: Any = request.user
        except BridgeError:
            ratelimit.check(self.rate_group, None, address)
            raise
        refusal = scope.get("bridge.refusal")  # what an application in front of this one has found
        # the application that found it, or `awaited`, has counted it
        if refusal is None and scope.get("bridge.body") != "admitted":
            ratelimit.check(self.rate_group, principal and principal.rate_key, address)
        if principal is not None:
            if "bridge.connection" in scope:
                scope["bridge.connection"].authenticated = True
            structlog.contextvars.bind_contextvars(principal=principal.rate_key)
        self.check_permissions(request)
        coding = request.headers.get("Content-Encoding", "").lower()
        if coding not in ("", "identity") and request.method == "POST":
            text = "A body with a Content-Encoding is not taken."
            raise BridgeError("UNSUPPORTED_MEDIA_TYPE", text)
        if scope.get("bridge.body") == "awaited":
            if self.takes_large_bodies:
                raise SendBody
            raise BridgeError("PAYLOAD_TOO_LARGE", NO_LARGE_BODY)
        if refusal is not None:
            raise refusal

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, SendBody):
            return Response(status=100)
        return super().handle_exception(exc)

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """Answer with ``Allow`` only, which every answer has."""
        return Response(status=204)
