"""Register the devices with Django."""

from __future__ import annotations

from django.apps import AppConfig


class DevicesConfig(AppConfig):
    name = "devices_app"
    verbose_name = "Devices"
