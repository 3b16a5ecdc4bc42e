"""Store this machine's spool directly, in a thread of the server (D47).

It hands over the events that it has made, without a request and without their JSON. From there they
take the way of posted ones: the same rules, and `store_group` in the one thread that writes events,
so groups from the spool and groups of posted events take turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from django.db import DataError, IntegrityError
from django.db import Error as DatabaseError
from prometheus_client import Metric

from bridge_project.kernel import metrics
from bridge_project.kernel.config import conf
from bridge_project.kernel.threads import ingestion
from bridge_project.protocol.hooks import HookInvalid, parse_hook_event
from hooks_app.intake.group_commit import store_group
from hooks_app.intake.store import Posted, Receipt
from hooks_app.producer.forwarder import TAKEN, WAITS, Forwarder, Result, Unreachable
from hooks_app.producer.spool import spool_status
from hooks_app.producer.spool_queue import Item
from hooks_app.producer.translate import Event

# Events in one transaction: a permission request that arrives meanwhile waits for it.
GROUP_EVENTS = 100
JOIN_SECONDS = 5.0
OF_THE_EVENT = (DataError, IntegrityError)  # every other error of the database is temporary


def spool() -> Path:
    """Return the directory of this machine's spool."""
    return conf.bridge_data_dir / "spool"


class StoreSender:
    """Store events directly; the spool's bounds are their only limit."""

    clock_offset = 0.0

    def allowed(self, waiting: Sequence[Item]) -> int:
        return GROUP_EVENTS

    def send(self, events: Sequence[Event]) -> list[Result]:
        """Store events in one transaction. Raises Unreachable when the database is away."""
        now = datetime.now(UTC)
        parsed = [_parse(event, now) for event in events]
        good = [one for one in parsed if isinstance(one, Posted)]
        try:
            stored = iter(ingestion.begin(store_group, good).result() if good else [])
        except (RuntimeError, CancelledError) as error:  # the bridge stops: its threads are closed
            raise Unreachable(str(error)) from error
        results = [_result(next(stored)) if isinstance(one, Posted) else one for one in parsed]
        if all(result.verdict == "waits" for result in results):
            raise Unreachable(f"the database does not take events: {results[0].reason}")
        return [WAITS if result.verdict == "waits" else result for result in results]


def _parse(event: Event, now: datetime) -> Posted | Result:
    try:
        return Posted(parse_hook_event(event.fields, now=now), event.source, event.process)
    except HookInvalid as invalid:
        rules = {one["rule"] for one in invalid.violations}
        why = "; ".join(one["message"] for one in invalid.violations)[:500]
        return Result("stale" if "HOOK_STALE_TIMESTAMP" in rules else "refused", why)


def _result(stored: Receipt | Exception) -> Result:
    if isinstance(stored, Receipt):
        return TAKEN
    passing = isinstance(stored, DatabaseError) and not isinstance(stored, OF_THE_EVENT)
    return Result("waits" if passing else "refused", f"{type(stored).__name__}: {stored}"[:500])


GAUGES = {
    "waiting": "Hook events in the spool that the bridge has not accepted yet.",
    "oldest_age_seconds": "How long the oldest of them has waited; 0 when none waits.",
    "bytes": "Bytes of the disk that they take.",
    "rejected": "Hook events that were refused for good and set aside.",
    "full": "1 while the hook command writes nothing because the spool is full.",
}


def collect() -> Iterator[Metric]:
    """Yield the spool's metrics for GET /metrics."""
    status = spool_status(spool())
    for name, help_text in GAUGES.items():
        yield metrics.gauge(f"spool_{name}", help_text, float(status[name] or 0))


@asynccontextmanager
async def forward_spool() -> AsyncIterator[None]:
    """Run the forwarder in a thread, which ends when it has stored what it holds."""
    stop, run = threading.Event(), Forwarder(spool(), StoreSender()).run_forever
    thread = threading.Thread(target=run, args=(stop,), name="forwarder", daemon=True)
    thread.start()
    yield
    stop.set()
    await asyncio.to_thread(thread.join, JOIN_SECONDS)
