"""Register the project's commands, checks and templates with Django."""

import os
import time

from django.apps import AppConfig

from bridge_project.kernel.config import OWN_TIME_ZONE


class KernelConfig(AppConfig):
    name = "bridge_project"
    label = "kernel"
    verbose_name = "Bridge"

    def ready(self) -> None:
        """Restore the user's TZ variable, which Django has replaced by TIME_ZONE.

        Agents, commits and ``watch`` go by the user's clock; what is stored and sent is UTC.
        """
        if OWN_TIME_ZONE is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = OWN_TIME_ZONE
        time.tzset()
