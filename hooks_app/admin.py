"""Show hook events in the admin site."""

from typing import get_args

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from bridge_project.protocol.types import HookEventName
from devices_app.admin import LongAdmin
from hooks_app.models import HookEvent


class EventFilter(admin.SimpleListFilter):
    """Offer the names of events, without looking which ones there are."""

    title = parameter_name = "event"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(name, name) for name in get_args(HookEventName)]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[HookEvent]
    ) -> QuerySet[HookEvent] | None:
        return queryset.filter(event=self.value()) if self.value() else None


@admin.register(HookEvent)
class HookEventAdmin(LongAdmin):
    list_display = ("seq", "event", "tool", "session_id", "received_at", "broadcast_count")
    list_filter = (EventFilter,)
    search_fields = ("session_id", "event_id", "tool")
