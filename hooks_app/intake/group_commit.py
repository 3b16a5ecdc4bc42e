"""Store events in groups: those arriving during a commit share the next one.

An event that finds the writer idle is committed at once. A commit waits for the disk
(`synchronous=FULL`), which takes longer than all else about an event. There is one writer with one
thread and one connection, so nobody waits for a lock, and row numbers follow the order of arrival.
While it commits, the event loop goes on reading requests; all events that arrived by then become
the next transaction, with one sync. So there is no timer and nothing to tune: a single event never
waits, and the busier the bridge, the larger the groups (metric `bridge_commit_group_events`).
When an event of a group cannot be stored, each event of the group is stored by itself.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from bridge_project.kernel import limits, metrics
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.threads import ingestion
from hooks_app.intake.store import Posted, Receipt, store

Outcome = Receipt | Exception
_Waiting = tuple[Posted, asyncio.Future[Receipt]]


def store_group(group: Sequence[Posted]) -> list[Outcome]:
    """Store events in one transaction, or one by one if it fails; return outcomes."""
    metrics.groups.observe(len(group))
    try:
        return list(store(group))
    except STORAGE_ERRORS as error:
        # the database is away: it would be for each of them
        return [error] * len(group)
    except Exception as error:  # noqa: BLE001 - handed to those who wait; the others go on
        if len(group) == 1:
            return [error]
        return [outcome for posted in group for outcome in store_group([posted])]


class GroupWriter:
    """Store events in the order in which ``store`` was called."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._writing = False

    async def store(self, posted: Posted) -> Receipt:
        """Commit an event with the next group; raise what storing it raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()
        self._waiting.append((posted, future))
        if not self._writing:
            self._begin(loop)
        return await future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the waiting events to the writing thread; stop when none wait."""
        count = min(len(self._waiting), limits.BATCH_MAX_EVENTS)
        group = [self._waiting.popleft() for _ in range(count)]
        self._writing = bool(group)
        if group:
            ingestion.begin(self._write, loop, group)

    def _write(self, loop: asyncio.AbstractEventLoop, group: Sequence[_Waiting]) -> None:
        outcomes = store_group([posted for posted, _ in group])
        loop.call_soon_threadsafe(self._written, loop, group, outcomes)

    def _written(
        self,
        loop: asyncio.AbstractEventLoop,
        group: Sequence[_Waiting],
        outcomes: Sequence[Outcome],
    ) -> None:
        if all(isinstance(one, STORAGE_ERRORS) for one in outcomes):
            group = [*group, *self._waiting]  # what came meanwhile would fail as late
            outcomes = [outcomes[0]] * len(group)
            self._waiting.clear()
        self._begin(loop)
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if future.done():
                continue  # nobody waits any more; the event is stored all the same
            if isinstance(outcome, Receipt):
                future.set_result(outcome)
            else:
                future.set_exception(outcome)
