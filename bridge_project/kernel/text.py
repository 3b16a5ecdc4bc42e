"""Text from outside, as a database can hold it and a list can show it."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text as a database can hold it and a list can show it: without NULs and other control characters."""
    return "".join(c if c.isprintable() else " " for c in text).strip()
