"""The kernel as a Django application: it has no models, only commands, checks and templates."""

from __future__ import annotations

from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "bridge_project"
    label = "kernel"
    verbose_name = "Bridge"
