"""Register the files with Django."""

from django.apps import AppConfig


class FilesConfig(AppConfig):
    name = "files_app"
