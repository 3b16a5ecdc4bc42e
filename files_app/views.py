"""Answer GET /files/tree and GET /files/content (SPEC Files; D12)."""

import os

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request

from bridge_project.http.error_body import JSON_TYPE
from bridge_project.http.view import BridgeAPIView
from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.path_jail import default_jail
from bridge_project.kernel.threads import disk
from bridge_project.protocol import http
from bridge_project.protocol.jsontext import dumps_unicode
from devices_app.authentication import DeviceOrAdmin
from files_app.content import content
from files_app.tree import tree


def _path(name: str, example: str) -> OpenApiParameter:
    return OpenApiParameter(
        "path",
        {
            "type": "string",
            "minLength": 1,
            "maxLength": limits.FILE_PATH_MAX_BYTES,
            "pattern": "^[^\\u0000]+$",
        },
        required=True,
        description="Absolute, or relative to the first allowed root.",
        examples=[OpenApiExample(name, example)],
    )


def _place(path: str | None) -> str:
    return os.path.join(conf.allowed_roots[0], path or "")


DEPTH = OpenApiParameter(
    "depth",
    {"type": "integer", "minimum": 1, "maximum": limits.FILE_TREE_MAX_DEPTH},
    default=limits.FILE_TREE_DEPTH,
    description="Levels to show.",
)


class TreeView(BridgeAPIView):
    """Return a directory and everything below it, down to `depth`."""

    rate_group = "files"
    permission_classes = [DeviceOrAdmin]

    @extend_schema(
        operation_id="file_tree",
        parameters=[_path("the first root", "."), DEPTH],
        responses=http.FileTree,
    )
    def get(self, request: Request) -> HttpResponse:
        depth = request.query_params.get("depth", limits.FILE_TREE_DEPTH)
        path = request.query_params.get("path")
        found = disk.call(_place(path), lambda: tree(default_jail(), path, depth))
        return HttpResponse(dumps_unicode(found).encode(), content_type=JSON_TYPE)


class ContentView(BridgeAPIView):
    """Return a whole file: text as it is, anything else as base64."""

    rate_group = "files"
    permission_classes = [DeviceOrAdmin]

    @extend_schema(
        operation_id="file_content",
        parameters=[_path("a file in the first root", "README.md")],
        responses=http.FileContent,
    )
    def get(self, request: Request) -> HttpResponse:
        path = request.query_params.get("path")
        body = disk.call(_place(path), lambda: content(default_jail(), path))
        return HttpResponse(body, content_type=JSON_TYPE)
