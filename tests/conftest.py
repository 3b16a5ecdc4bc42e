"""Fixtures that tests of every room may ask for: real servers beside the bridge."""

from __future__ import annotations

from tests.servers import postgres_server, pytest_addoption, redis_server

__all__ = ["postgres_server", "pytest_addoption", "redis_server"]
