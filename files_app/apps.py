"""The files as a Django application."""

from __future__ import annotations

from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files_app"
