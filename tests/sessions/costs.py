"""What a piece of work costs the database: its statements, and the steps that SQLite takes for
them, which are the same on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

LOG = "sessions_app_logrow"
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


def whole_reads(seen: list[tuple[str, Any]]) -> list[str]:
    """Those of the queries for which the database means to read the whole log."""
    found = []
    sqlite = connection.vendor == "sqlite"
    for sql, params in seen:
        if LOG in sql and re.match(r"\s*(SELECT|WITH)", sql):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {'QUERY PLAN ' if sqlite else ''}{sql}", params)
                plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
            whole = re.search(
                rf"SCAN ({LOG}|r|n)\b(?P<index> USING)?" if sqlite else rf"Seq Scan on {LOG}", plan
            )
            # the first entry of an index is no scan
            if whole and not (sqlite and whole["index"] and sql.endswith("LIMIT 1")):
                found.append(f"{sql}\n{plan}")
    return found
