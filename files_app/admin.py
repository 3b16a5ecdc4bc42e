"""Show trusted repositories in the admin site, and end the trust (D63)."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from devices_app import audit
from devices_app.models import AuditEntry
from files_app.models import TrustedRepository


@admin.register(TrustedRepository)
class TrustedRepositoryAdmin(ModelAdmin):
    """List trusted repositories, which clients add; they can be removed."""

    list_display = ("path", "git_dir", "programs", "device", "at")
    search_fields = ("path",)
    readonly_fields = ("path", "git_dir", "digest", "programs", "device", "at")

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def delete_model(self, request: HttpRequest, obj: TrustedRepository) -> None:
        remove(TrustedRepository.objects.filter(pk=obj.pk), request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[TrustedRepository]) -> None:
        remove(queryset, request.user.get_username())


def remove(rows: QuerySet[TrustedRepository], who: str) -> None:
    """End the trust of an administrator's rows, and record it."""
    for row in rows:
        actor = AuditEntry.Actor.ADMIN
        audit.record("untrust", actor=actor, who=who, subject=row.path, digest=row.digest)
    rows.delete()
