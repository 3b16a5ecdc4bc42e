"""The files room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files_app"

    def ready(self) -> None:
        from bridge_project import background, health
        from files_app import work
        from sessions_app import handlers

        handlers.register("files_app.handlers.git", "files_app.handlers.files")
        background.register("git", work.start, work.stop)
        health.register_feature("file_sync")  # the specification's word for what lets a client see files
