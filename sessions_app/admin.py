"""The admin site's view of sessions and of the pending queue; both are read only, for the log is what was sent."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from sessions_app.models import Connection, LogRow, Session


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shown, never changed."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = ("title", "session_id", "kind", "status", "agent_type", "working_directory", "hook_count", "last_activity_at")
    list_filter = ("kind", "status", "agent_type")
    search_fields = ("session_id", "title", "working_directory")
    show_full_result_count = False


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
