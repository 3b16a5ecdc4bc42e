"""The handlers of this room's messages, one module a topic, and those that rooms above have
named.
"""

from __future__ import annotations

from importlib import import_module

MODULES = [f"{__name__}.{name}" for name in ("connection", "session", "agent")]


def register(*modules: str) -> None:
    """Name modules of handlers in a room above; called from its ``AppConfig.ready``."""
    MODULES.extend(module for module in modules if module not in MODULES)


def load() -> None:
    """Register them all; importing twice does nothing."""
    for module in MODULES:
        import_module(module)
