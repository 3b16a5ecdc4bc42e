"""The files room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files_app"

    def ready(self) -> None:
        from bridge_project import health

        health.register_feature("file_sync")  # the specification's word for what lets a client see files
