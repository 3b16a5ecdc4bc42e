"""Group commit: an event that finds the writer idle is committed at once; those that come meanwhile
share the next transaction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from django.db import InterfaceError, OperationalError

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.threads import ingestion
from hooks_app.intake import store as intake
from hooks_app.intake.store import Posted, Receipt

Store = Callable[[Sequence[Posted]], list[Receipt]]


class GroupWriter:
    """Stores events in the order in which ``store`` was called, with one thread and its one kept
    connection.
    """

    def __init__(self, store: Store = intake.store) -> None:
        self._store = store
        self._waiting: deque[tuple[Posted, asyncio.Future[Receipt]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def store(self, posted: Posted) -> Receipt:
        """Return when the event is in the database. Raises what storing it raised; then it is not
        there.
        """
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((posted, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        while self._waiting:
            group = [
                self._waiting.popleft()
                for _ in range(min(len(self._waiting), limits.BATCH_MAX_EVENTS))
            ]
            metrics.groups.observe(len(group))
            results = await ingestion.run(self._store_group, [posted for posted, _ in group])
            for (_, future), result in zip(group, results, strict=True):
                if future.done():
                    continue  # nobody waits any more; the event is stored all the same
                if isinstance(result, Receipt):
                    future.set_result(result)
                else:
                    future.set_exception(result)

    def _store_group(self, group: Sequence[Posted]) -> Sequence[Receipt | Exception]:
        """The result for each: one transaction for all, and if one of them cannot be stored, one
        for each.
        """
        try:
            return self._store(group)
        except (OperationalError, InterfaceError) as error:
            # the database is away: it would be for each of them
            return [error] * len(group)
        except Exception as error:  # noqa: BLE001 - handed to those who wait; this task must live on for the others
            if len(group) == 1:
                return [error]
            return [result for posted in group for result in self._store_group([posted])]
