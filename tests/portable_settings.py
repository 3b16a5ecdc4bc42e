"""The bridge's settings, with the ways that any Unix has."""

from bridge_project.settings import *  # noqa: F403
from tests import portable

portable.take()
