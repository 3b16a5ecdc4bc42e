"""Show hook events in the admin site."""

from __future__ import annotations

from django.contrib import admin

from devices_app.admin import ReadOnlyAdmin
from hooks_app.models import HookEvent


@admin.register(HookEvent)
class HookEventAdmin(ReadOnlyAdmin):
    list_display = ("seq", "event", "tool", "session_id", "received_at", "broadcast_count")
    list_filter = ("event",)
    search_fields = ("session_id", "event_id", "tool")
    show_full_result_count = False
