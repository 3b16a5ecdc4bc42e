"""The handlers of this room's messages, one module a topic."""

from __future__ import annotations

from importlib import import_module

MODULES = ("handshake", "session", "approvals", "notifications")


def load() -> None:
    """Register them all; importing twice does nothing."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
