"""The files room as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files_app"

    def ready(self) -> None:
        from bridge_project.http import health
        from bridge_project.kernel import background
        from files_app import threads
        from sessions_app import handlers

        handlers.register("files_app.handlers.git", "files_app.handlers.files")
        background.register("git", threads.start, threads.stop)
        # the specification's word for what lets a client see files
        health.register_feature("file_sync")
