"""The devices in the admin site: who is paired, last seen when and where, and a way to revoke. A
digest is never shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from devices_app import pairing
from devices_app.models import AuditEntry, Device, Token

if TYPE_CHECKING:
    DeviceModelAdmin = admin.ModelAdmin[Device]
    TokenTable = admin.TabularInline[Token, Device]
else:
    DeviceModelAdmin, TokenTable = admin.ModelAdmin, admin.TabularInline

CONFIRMATION = "admin/devices_app/device/revoke_confirmation.html"


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shown, never changed."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class TokenInline(TokenTable):
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
    can_delete = False
    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Device)
class DeviceAdmin(DeviceModelAdmin):
    """Devices come by pairing and stay, because the log knows them: none is added or deleted here.
    Only the name can be changed.
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
    def revoke_selected(
        self, request: HttpRequest, queryset: QuerySet[Device]
    ) -> HttpResponse | None:
        devices = list(queryset.filter(revoked_at=None))
        if not devices:
            self.message_user(request, "These devices are revoked already.", messages.WARNING)
            return None
        if "confirmed" not in request.POST:
            return self._confirm(request, devices, action="revoke_selected")
        self._revoke(request, devices)
        return None

    def get_urls(self) -> list[URLPattern]:
        revoke = path(
            "<int:device_id>/revoke/",
            self.admin_site.admin_view(self.revoke_view),
            name="devices_app_device_revoke",
        )
        return [revoke, *super().get_urls()]

    def revoke_view(self, request: HttpRequest, device_id: int) -> HttpResponse:
        """The button on a device's own page: asks first, then revokes."""
        device = get_object_or_404(Device, pk=device_id)
        if not self.has_change_permission(request, device):
            raise PermissionDenied
        if request.method != "POST":
            return self._confirm(request, [device])
        self._revoke(request, [device])
        return HttpResponseRedirect(reverse("admin:devices_app_device_change", args=[device.pk]))

    def _confirm(
        self, request: HttpRequest, devices: list[Device], action: str = ""
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": "Revoke?",
            "opts": self.opts,
            "devices": devices,
            "action": action,
        }
        return TemplateResponse(request, CONFIRMATION, context)

    def _revoke(self, request: HttpRequest, devices: list[Device]) -> None:
        for device in devices:
            if pairing.revoke(
                device, actor=AuditEntry.Actor.ADMIN, who=request.user.get_username()
            ):
                self.log_change(request, device, "Revoked.")
                self.message_user(
                    request,
                    f"{device} is revoked; its connections are being closed.",
                    messages.SUCCESS,
                )
            else:
                self.message_user(request, f"{device} was revoked already.", messages.WARNING)


@admin.register(AuditEntry)
class AuditAdmin(ReadOnlyAdmin):
    """Who did what, newest first."""

    list_display = ("at", "action", "actor", "who", "subject", "session_id", "details")
    list_filter = ("action", "actor")
    search_fields = ("who", "subject", "session_id")
    date_hierarchy = "at"
    show_full_result_count = False
