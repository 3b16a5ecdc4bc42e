"""Show devices, tokens and the audit trail in the admin site; revoke devices."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from devices_app import pairing
from devices_app.models import AuditEntry, Device, Token

admin.site.site_url = "/app/"  # where "View site" leads: the web client (D53)

CONFIRMATION = "admin/devices_app/device/revoke_confirmation.html"


class ReadOnly:
    """Forbid changes to a page or a table."""

    def has_add_permission(self, *args: Any, **kwargs: Any) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission


class ReadOnlyAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """Show rows without letting anybody change them."""


class TokenInline(ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    """Show a device's tokens; never a digest."""

    model = Token
    fields = readonly_fields = (
        "id",
        "minted_at",
        "use_by",
        "used_at",
        "authenticated_at",
        "client_device_id",
        "expires_at",
        "replaces",
        "replaced_at",
        "revoked_at",
    )
    extra = 0


@admin.register(Device)
class DeviceAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Show devices; only the name can be changed.

    Devices come by pairing and stay, because the log knows them: none is added or deleted here.
    """

    list_display = (
        "name",
        "id",
        "state",
        "platform",
        "client_version",
        "last_seen_at",
        "last_address",
        "paired_at",
    )
    list_filter = ("platform", ("revoked_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "last_address")
    readonly_fields = (
        "id",
        "state",
        "platform",
        "client_version",
        "last_seen_at",
        "last_address",
        "created_at",
        "paired_at",
        "revoked_at",
    )
    fields = ("name", *readonly_fields)
    inlines = (TokenInline,)
    actions = ("revoke_selected",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Device]:
        return super().get_queryset(request).prefetch_related("tokens")

    @admin.display(description="state")
    def state(self, device: Device) -> str:
        return pairing.state(device)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description="Revoke selected devices", permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[Device]) -> HttpResponse:
        ids = ",".join(str(device.pk) for device in queryset)
        return HttpResponseRedirect(reverse("admin:devices_app_device_revoke", args=[ids]))

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view(self.revoke_view), "devices_app_device_revoke"
        return [path("<str:ids>/revoke/", view, name=name), *super().get_urls()]

    def revoke_view(self, request: HttpRequest, ids: str) -> HttpResponse:
        """Ask first, then revoke: for a device's own button, and for the action."""
        numbers = [int(number) for number in ids.split(",") if number.isdecimal()]
        devices = list(Device.objects.filter(pk__in=numbers))
        if not self.has_change_permission(request):
            raise PermissionDenied
        if not devices:
            raise Http404
        if request.method != "POST":
            context = {"title": "Revoke?", "opts": self.opts, "devices": devices}
            context |= self.admin_site.each_context(request)
            return TemplateResponse(request, CONFIRMATION, context)
        who = request.user.get_username()
        for device in devices:
            if pairing.revoke(device, actor=AuditEntry.Actor.ADMIN, who=who):
                self.log_change(request, device, "Revoked.")
                text = f"{device} is revoked; its connections are being closed."
                self.message_user(request, text, messages.SUCCESS)
            else:
                self.message_user(request, f"{device} was revoked already.", messages.WARNING)
        return HttpResponseRedirect(reverse("admin:devices_app_device_changelist"))


@admin.register(AuditEntry)
class AuditAdmin(ReadOnlyAdmin):
    """Show who did what, newest first."""

    list_display = ("at", "action", "actor", "who", "subject", "session_id", "details")
    list_filter = ("action", "actor")
    search_fields = ("who", "subject", "session_id")
    date_hierarchy = "at"
    show_full_result_count = False
