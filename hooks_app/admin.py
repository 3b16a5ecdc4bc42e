"""Show hook events in the admin site."""

from django.contrib import admin

from devices_app.admin import LongAdmin
from hooks_app.models import HookEvent


@admin.register(HookEvent)
class HookEventAdmin(LongAdmin):
    list_display = ("seq", "event", "tool", "session_id", "received_at", "broadcast_count")
    search_fields = ("=event", "session_id", "event_id", "tool")
