"""POST /admin/reload-hooks (SPEC HTTP endpoints; D49)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from bridge_project.http.view import BridgeAPIView
from bridge_project.protocol import http
from bridge_project.protocol.types import now_text
from devices_app.authentication import AdminOnly
from hooks_app import config


class ReloadHooksView(BridgeAPIView):
    """Reads the hook configuration again and says for which events it has hooks. A wrong one is
    refused, and the old one stays.
    """

    rate_group = "admin"
    permission_classes = [AdminOnly]

    @extend_schema(operation_id="reload_hooks", request=None, responses=http.ReloadResult)
    def post(self, request: Request) -> Response:
        active = config.reload()
        return Response(
            http.ReloadResult(reloaded=True, timestamp=now_text(), active_hooks=active).wire()
        )
