"""The forwarder of this machine's hooks: a thread of the serving process that posts the spool to the bridge like a remote one would (D47)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric

from bridge_project import address, metrics, transport
from bridge_project.conf import conf, make_private_dir
from hooks_app import producer
from hooks_app.producer import Forwarder, HttpsTransport

JOIN_SECONDS = 5.0

_stop = threading.Event()
_threads: list[threading.Thread] = []


def spool() -> Path:
    return conf.bridge_data_dir / "spool"


def figures() -> Iterator[Metric]:
    """The spool, for GET /metrics."""
    found = producer.spool_status(spool())
    yield metrics.gauge("spool_waiting", "Hook events in the spool that the bridge has not accepted yet.", found["waiting"])
    yield metrics.gauge("spool_oldest_age_seconds", "How long the oldest of them has waited; 0 when none waits.", found["oldest_age_seconds"] or 0.0)
    yield metrics.gauge("spool_bytes", "Bytes of the disk that they take.", found["bytes"])
    yield metrics.gauge("spool_rejected", "Hook events that were refused for good and set aside.", found["rejected"])
    yield metrics.gauge("spool_full", "1 while the hook command writes nothing because the spool is full.", int(found["full"]))


async def start() -> None:
    where = address.recorded(conf)
    make_private_dir(spool())
    send = HttpsTransport(transport.local_url(conf), lambda: conf.secret("hook_token"), where.pin if where else "")
    _stop.clear()
    thread = threading.Thread(target=Forwarder(spool(), send).run_forever, args=(_stop,), name="forwarder", daemon=True)
    thread.start()
    _threads.append(thread)


async def stop() -> None:
    _stop.set()
    while _threads:
        await asyncio.to_thread(_threads.pop().join, JOIN_SECONDS)
