"""Show sessions, agents, approvals and the pending queue in the admin site.

All are read only, for the log is what was sent.
"""

from __future__ import annotations

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from devices_app.admin import ReadOnlyAdmin
from sessions_app.agents import registry
from sessions_app.models import Connection, LogRow, Session, ToolCall

AGENTS = "admin/sessions_app/agents.html"
admin.site.index_template = "admin/sessions_app/index.html"


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = (
        "title",
        "session_id",
        "kind",
        "status",
        "agent_type",
        "asks",
        "reason",
        "working_directory",
        "hook_count",
        "last_activity_at",
    )
    list_filter = ("kind", "status", "agent_type")
    search_fields = ("session_id", "title", "working_directory")
    show_full_result_count = False

    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                "agents/", self.admin_site.admin_view(self.agents_view), name="sessions_app_agents"
            ),
            *super().get_urls(),
        ]

    def agents_view(self, request: HttpRequest) -> HttpResponse:
        """Show which agents can start here, as /info does."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Agents",
            "opts": self.opts,
            "agents": zip(registry.KINDS.values(), registry.listed(), strict=True),
        }
        return TemplateResponse(request, AGENTS, context)


@admin.register(ToolCall)
class ApprovalAdmin(ReadOnlyAdmin):
    """Show approvals: who decided, when, from where, and what is still open."""

    list_display = (
        "created_at",
        "decision",
        "tool",
        "description",
        "risk_level",
        "session",
        "decided_by",
        "device",
        "decided_at",
        "forwarded",
    )
    list_filter = ("decision", "forwarded", "decided_by", "risk_level", "source")
    search_fields = ("tool_call_id", "tool", "description", "session__session_id")
    list_select_related = ("session", "device")
    exclude = ("frame", "same")
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[ToolCall]:
        return super().get_queryset(request).exclude(decision=None)


@admin.register(LogRow)
class PendingQueueAdmin(ReadOnlyAdmin):
    list_display = ("seq", "type", "session", "size", "created_at", "message_id")
    list_filter = ("type",)
    search_fields = ("message_id", "feed__session__session_id")
    ordering = ("-seq",)
    list_select_related = ("feed__session",)
    show_full_result_count = False

    @admin.display(description="session")
    def session(self, row: LogRow) -> str:
        session = getattr(row.feed, "session", None)
        return str(session) if session else "all devices"


@admin.register(Connection)
class ConnectionAdmin(ReadOnlyAdmin):
    list_display = ("device", "address", "opened_at", "replaced")
    list_select_related = ("device",)
