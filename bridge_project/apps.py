"""Register the project's commands, checks and templates with Django."""

from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "bridge_project"
    label = "kernel"
    verbose_name = "Bridge"
