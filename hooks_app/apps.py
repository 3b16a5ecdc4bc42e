"""Register the hooks with Django."""

from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks_app"
    verbose_name = "Hook events"
