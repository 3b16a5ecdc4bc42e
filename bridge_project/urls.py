"""Map every URL (D2): the API, its pages, pairing and the admin site."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path, re_path, register_converter
from django.urls.converters import PathConverter
from django.views.generic import RedirectView

from bridge_project.composition import system_views
from bridge_project.docs import pages
from devices_app import views as devices
from devices_app import web_client
from devices_app.push.views import ReceiptView, SubscriptionView
from files_app.views import ContentView, TreeView
from hooks_app.views import BatchView, EventView, ReloadHooksView
from sessions_app.views import (
    AttachmentListView,
    AttachmentView,
    SessionEventsView,
    SessionListView,
    SessionView,
)


class SessionIdConverter(PathConverter):
    """Match a session id: it was percent-encoded, and may have slashes and line ends."""

    regex = "(?s:.+)"


register_converter(SessionIdConverter, "session_id")

HOOKS = {"hooks/event": EventView, "hooks/batch": BatchView}

API = {
    "health": system_views.HealthView,
    "info": system_views.InfoView,
    **HOOKS,
    "sessions": SessionListView,
    "sessions/<session_id:session_id>/events": SessionEventsView,
    "sessions/<session_id:session_id>/attachments": AttachmentListView,
    "sessions/<session_id:session_id>/attachments/<str:attachment_id>": AttachmentView,
    "sessions/<session_id:session_id>": SessionView,
    "ws": system_views.WebSocketView,
    "files/tree": TreeView,
    "files/content": ContentView,
    "push/receipt": ReceiptView,
    "push/subscription": SubscriptionView,
    "admin/reload-hooks": ReloadHooksView,
    "schema": system_views.SchemaView,
    "asyncapi": system_views.AsyncApiView,
}

urlpatterns: list[URLPattern | URLResolver] = [
    *(path(f"api/v1/{address}", view.as_view()) for address, view in API.items()),
    *(path(address, view.as_view()) for address, view in HOOKS.items()),
    path("metrics", system_views.MetricsView.as_view()),
    path("", pages.home),
    path("docs", pages.overview),
    path("docs/errors", pages.errors),
    path("docs/errors/<str:code>", pages.error),
    path("app", RedirectView.as_view(url="/app/")),
    re_path(r"^app/(?P<version>[0-9a-f]{16})/(?P<name>.+)$", web_client.file),
    path("app/", web_client.screen),
    path("app/sw.js", web_client.worker),
    # The address of a file names it, and a name may have a line break.
    re_path(r"^app/(?P<path>(?s:.+))$", web_client.screen),
    path("pair", devices.pair),
    path("ca.crt", devices.ca_certificate),
    path("ca.mobileconfig", devices.ca_profile),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/login/", devices.admin_log_in),  # instead of the one in the next line
    path("admin/", admin.site.urls),
]

# Other errors of Django are rewritten by RequestMiddleware.
handler500 = "bridge_project.http.errors.server_error"
