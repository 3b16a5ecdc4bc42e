"""A plugin of pytest for runs on PostgreSQL: between two tests rows are deleted, where Django would give every table and index new files.

Nor are its lists of models and permissions written again each time: only the admin site reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def delete(self: Any, style: Any, tables: Iterable[str], **_: Any) -> Sequence[str]:
    """Foreign keys are checked at the end of the transaction, so any order will do. Sequences go on, as they do when Django empties tables."""
    return [f"DELETE FROM {self.quote_name(table)};" for table in tables]


def pytest_collection_finish() -> None:
    from django.core.management.commands import flush
    from django.db.backends.postgresql.operations import DatabaseOperations

    DatabaseOperations.sql_flush = delete  # type: ignore[method-assign, assignment]
    flush.emit_post_migrate_signal = lambda *_, **__: None  # type: ignore[attr-defined]
