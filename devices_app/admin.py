"""Show, pair and revoke devices in the admin site; show the audit trail."""

import base64
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm
from unfold.paginator import InfinitePaginator

from bridge_project.kernel import limits
from bridge_project.kernel.text import terminal_safe
from devices_app import audit, pairing, qr
from devices_app.models import AuditEntry, Device, NotifyAddress, Token
from devices_app.push import addresses, subscriptions

CONFIRMATION = "admin/devices_app/device/revoke_confirmation.html"
PAIRING = "admin/devices_app/device/pair.html"
STOP_POLLING = 286  # htmx asks no more after this status

admin.site.index_title, admin.site.index_template = "Now", "bridge/dashboard.html"
admin.site.unregister(Group)  # nobody needs them: who has a user here may do everything
admin.site.unregister(User)


def is_devices(request: HttpRequest) -> bool:
    """Tell the menu whether a page is about devices, and not the pairing page."""
    return "/device/" in request.path and "/device/pair/" not in request.path


def _never(*args: Any, **kwargs: Any) -> bool:
    return False


class ReadOnly:
    """Forbid changes to a page or a table."""

    has_add_permission = has_change_permission = has_delete_permission = _never


class ReadOnlyAdmin(ReadOnly, ModelAdmin):
    """Show rows without letting anybody change them."""


class LongAdmin(ReadOnlyAdmin):
    """Show a table without counting its rows, which may be a million."""

    paginator = InfinitePaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER


class TokenInline(ReadOnly, TabularInline):
    """Show a device's tokens; never a digest."""

    model = Token
    fields = readonly_fields = (
        *("id", "minted_at", "use_by", "used_at", "client_device_id"),
        *("expires_at", "replaced_at", "revoked_at"),
    )
    extra = 0


@admin.register(Device)
class DeviceAdmin(ModelAdmin):
    """Show devices; only the name can be changed.

    Devices come by pairing and stay, because the log knows them: none is added or deleted here.
    """

    list_display = (
        *("name", "id", "state", "last_seen_at", "last_address"),
        *("platform", "client_version", "paired_at", "revoke"),
    )
    list_filter = ("platform", ("revoked_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "last_address")
    readonly_fields = (
        *("id", "state", "platform", "client_version", "last_seen_at", "last_address"),
        *("created_at", "paired_at", "revoked_at", "last_push"),
    )
    fields = ("name", *readonly_fields)
    inlines = (TokenInline,)
    actions = ("revoke_selected",)
    has_add_permission = has_delete_permission = _never

    def get_queryset(self, request: HttpRequest) -> QuerySet[Device]:
        found: QuerySet[Device] = super().get_queryset(request)
        return found.prefetch_related("tokens")

    @display(description="state", label={"paired": "success", "waiting": "info"})
    def state(self, device: Device) -> str:
        return pairing.state(device)

    @display(description="last push")
    def last_push(self, device: Device) -> str:
        return subscriptions.last_word(device)

    @display(description="action")
    def revoke(self, device: Device) -> str | SafeString:
        if device.revoked_at is not None:
            return ""
        address = reverse("admin:devices_app_device_revoke", args=[device.pk])
        text = '<a class="bridge-danger" href="{}" aria-label="Revoke {}">Revoke…</a>'
        return format_html(text, address, device)

    @admin.action(description="Revoke selected devices", permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[Device]) -> HttpResponse:
        ids = ",".join(str(device.pk) for device in queryset)
        return HttpResponseRedirect(reverse("admin:devices_app_device_revoke", args=[ids]))

    def get_urls(self) -> list[URLPattern]:
        pages = {
            "pair/": (self.pair_view, "pair"),
            "pair/<int:pk>/": (self.paired_view, "paired"),
            "<str:ids>/revoke/": (self.revoke_view, "revoke"),
        }
        own = [
            path(address, self.admin_site.admin_view(view), name=f"devices_app_device_{name}")
            for address, (view, name) in pages.items()
        ]
        return [*own, *super().get_urls()]

    def revoke_view(self, request: HttpRequest, ids: str) -> HttpResponse:
        """Ask for confirmation, then revoke one device or the selected ones."""
        numbers = [int(number) for number in ids.split(",") if number.isdecimal()]
        devices = list(Device.objects.filter(pk__in=numbers))
        if not self.has_change_permission(request):
            raise PermissionDenied
        if not devices:
            raise Http404
        if request.method != "POST":
            context = {"title": "Revoke?", "devices": devices}
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

    def pair_view(self, request: HttpRequest) -> HttpResponse:
        """Mint a token on request, and show it once as a QR code (D43)."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        context: dict[str, Any] = {"title": "Pair a device"}
        if request.method == "POST":
            name = terminal_safe(request.POST.get("name", "").strip())[:80]
            lasts = timedelta(seconds=limits.PAIRING_TTL_SECONDS)
            try:
                device, invitation = qr.invite(name, ttl=lasts)
            except ValueError as error:
                self.message_user(request, str(error), messages.ERROR)
            else:
                who = request.user.get_username()
                actor = AuditEntry.Actor.ADMIN
                audit.record("pairing_code", actor=actor, who=who, subject=str(device))
                code = base64.b64encode(qr.RENDERERS["svg"](invitation)).decode()
                context |= {"device": device, "invitation": invitation, "code": code}
        context |= self.admin_site.each_context(request)
        return TemplateResponse(request, PAIRING, context)

    def paired_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return whether a device's code was used; the page asks every two seconds."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        device = get_object_or_404(Device.objects.prefetch_related("tokens"), pk=pk)
        state = pairing.state(device)
        text = {
            "waiting": "Waiting for the device …",
            "paired": f"{device.name} is paired, from {device.last_address}.",
        }.get(state, "This code is void. Make another one.")
        status = 200 if state == "waiting" else STOP_POLLING
        return HttpResponse(format_html("<strong>{}</strong>", text), status=status)


@admin.register(NotifyAddress)
class NotifyAddressAdmin(ReadOnlyAdmin):
    """Show the addresses of BRIDGE_NOTIFY_URLS, never whole, and send a test there."""

    list_display = ("name", "last_word")
    list_display_links = None
    actions = ("send_test",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[NotifyAddress]:
        return addresses.usable()

    @display(description="what became of the last message")
    def last_word(self, address: NotifyAddress) -> str:
        return addresses.last_word(address)

    @admin.action(description="Send a test to the selected addresses")
    def send_test(self, request: HttpRequest, queryset: QuerySet[NotifyAddress]) -> None:
        for address in queryset:
            word = addresses.test(address)
            level = messages.ERROR if address.problem else messages.SUCCESS
            self.message_user(request, f"{address}: {word}", level)


@admin.register(AuditEntry)
class AuditAdmin(LongAdmin):
    """Show who did what, newest first."""

    list_display = ("at", "action", "actor", "who", "subject", "session_id", "details")
    list_filter = ("action", "actor", "at")
    search_fields = ("who", "subject", "session_id")
    date_hierarchy = "at"


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    """Show who may sign in here; `make admin` makes one, and each may do everything."""

    form = UserChangeForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "is_active", "last_login")
    list_filter = ()
    search_fields = ("username",)
    readonly_fields = ("last_login", "date_joined")
    fieldsets = ((None, {"fields": ("username", "password", "is_active", *readonly_fields)}),)
    filter_horizontal = ()
    actions = None
    has_add_permission = _never
