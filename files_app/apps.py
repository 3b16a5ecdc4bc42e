"""The files as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files_app"

    def ready(self) -> None:
        from sessions_app import handlers

        handlers.register("files_app.handlers.git", "files_app.handlers.files")
