"""The transcript in docs/agents.md is what a phone shows."""

from __future__ import annotations

from tests.run import afternoon


def test_the_afternoon_is_as_it_is_told() -> None:
    """When this fails because the words have changed: python -m tests.run.afternoon --write."""
    assert afternoon.play().splitlines() == afternoon.written().splitlines()
