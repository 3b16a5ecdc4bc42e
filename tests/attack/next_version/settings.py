"""The bridge's settings in that version."""

from bridge_project.settings import *  # noqa: F403
from bridge_project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.attack.next_version"]
