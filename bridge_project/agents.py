"""Which agents can start here and now; a driver registers itself (D41)."""

from __future__ import annotations

from collections.abc import Callable

from bridge_project.errors import BridgeError

_AVAILABLE: dict[str, Callable[[], bool]] = {}


def register(name: str, available: Callable[[], bool]) -> None:
    """``available`` is asked each time: what can start may change while the bridge runs."""
    _AVAILABLE[name] = available


def supported() -> list[str]:
    return [name for name, available in _AVAILABLE.items() if available()]


def unavailable(name: str, reason: str = "") -> BridgeError:
    """The error for an agent that cannot be started here, with the reason if there is one."""
    able = ", ".join(supported()) or "none"
    why = f": {reason.rstrip('.')}" if reason else ""
    return BridgeError("AGENT_UNAVAILABLE", f"The agent {name[:64] or '(default)'} cannot be started here{why}. What can: {able}.")
