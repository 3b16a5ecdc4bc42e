"""Read the parts of codex's messages, of which none is sure to be there. Pure."""

from collections.abc import Mapping
from typing import Any


def text(of: Mapping[str, Any], name: str) -> str:
    """Return a text of a message, "" for anything else."""
    found = of.get(name)
    return found if isinstance(found, str) else ""


def part(of: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a message, an empty one for anything else."""
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def parts(of: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list of a message."""
    found = of.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def count(of: Mapping[str, Any], name: str) -> int | None:
    """Return a number of a message that is no negative one, None for anything else."""
    found = of.get(name)
    usable = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    return found if usable else None
