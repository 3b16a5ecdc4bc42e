"""Register the devices with Django."""

from django.apps import AppConfig


class DevicesConfig(AppConfig):
    name = "devices_app"
    verbose_name = "Devices"
