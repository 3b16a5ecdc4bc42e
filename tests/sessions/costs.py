"""What a piece of work costs the database: its statements, and the steps that SQLite takes for
them, which are the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

GRAIN = 10  # SQLite reports every so many steps


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """The statements run inside, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def note(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield seen


def steps(work: Callable[[], object]) -> int:
    """How many steps of SQLite's machine a piece of work takes; run before once, so that nothing
    has to be prepared.
    """
    work()
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += GRAIN
        return 0

    connection.connection.set_progress_handler(count, GRAIN)
    try:
        work()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return taken
