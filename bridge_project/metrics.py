"""What GET /metrics says: plain counters that the code increments, and figures that rooms work out when they are asked.

Counting costs a dict's increment and nothing else; ``prometheus_client`` reads the numbers at scrape time. Each process counts for itself.
"""

from __future__ import annotations

import platform
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import structlog
from django.db import Error as DatabaseError
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from bridge_project import PROTOCOL_VERSION, __version__

log = structlog.get_logger("bridge.metrics")

Collect = Callable[[], Iterable[Metric]]

PREFIX: Final = "bridge_"
COMMIT_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds
GROUP_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 500.0)  # events; the last is limits.BATCH_MAX_EVENTS


class Tally(dict[str, int]):
    """A counter by one label: ``tally[value] += 1``, with values from a table of ours, never from a client."""

    def __init__(self, name: str, text: str, label: str) -> None:
        super().__init__()
        self.name, self.text, self.label = name, text, label

    def __missing__(self, key: str) -> int:
        return 0

    def collect(self) -> Metric:
        family = CounterMetricFamily(PREFIX + self.name, self.text, labels=[self.label])
        for value, count in sorted(self.copy().items()):
            family.add_metric([value], count)
        return family


class Distribution:
    """How often a value lay under each of some bounds."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name, self.text, self.bounds = name, text, tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()  # once for each transaction, which several threads may end at a time

    def observe(self, value: float) -> None:
        with self._lock:
            self._counts[bisect_left(self.bounds, value)] += 1
            self._sum += value

    def collect(self) -> Metric:
        with self._lock:
            counts, total = list(self._counts), self._sum
        buckets, below = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=True):
            below += count
            buckets.append((bound, below))
        family = HistogramMetricFamily(PREFIX + self.name, self.text)
        family.add_metric([], buckets, total)
        return family


events = Tally("events_accepted", "Hook events accepted and stored, by event.", "event")
deliveries = Tally("deliveries", "Rows of the log sent to sockets, by message type.", "type")
http_errors = Tally("http_errors", "Errors answered over HTTP, by code.", "code")
socket_errors = Tally("websocket_errors", "Errors and connection errors sent over WebSockets, by code.", "code")
commits = Distribution("commit_seconds", "How long the commits of transactions took that appended to the log.", COMMIT_BOUNDS)
groups = Distribution("commit_group_events", "How many hook events shared a transaction.", GROUP_BOUNDS)

_counters: Final[tuple[Tally | Distribution, ...]] = (events, deliveries, http_errors, socket_errors, commits, groups)
_started: Final = time.time()
_rooms: dict[str, Collect] = {}


def register(room: str, collect: Collect) -> None:
    """Let a room add its figures; called from ``AppConfig.ready``.

    ``collect`` runs at each scrape, in a thread that may use the database, and yields ``prometheus_client`` families. A room whose figures
    cannot be had (DatabaseError, OSError) is reported by ``bridge_collector_up`` and does not keep the others from being read.
    """
    _rooms[room] = collect


def gauge(name: str, text: str, value: float) -> Metric:
    """A figure without labels."""
    return GaugeMetricFamily(PREFIX + name, text, value=value)


class _Everything:
    """All of the above, as the registry asks for it."""

    def describe(self) -> Iterable[Metric]:
        return ()  # without it the registry would scrape once to learn the names

    def collect(self) -> Iterator[Metric]:
        for counter in _counters:
            yield counter.collect()
        yield gauge("start_time_seconds", "When this process started, in seconds since 1970.", _started)
        yield InfoMetricFamily(
            PREFIX + "build", "What runs.", {"version": __version__, "protocol_version": PROTOCOL_VERSION, "python": platform.python_version()}
        )
        up = GaugeMetricFamily(PREFIX + "collector_up", "1 where a room's figures could be had at this scrape, else 0.", labels=["room"])
        for room, collect in _rooms.items():
            found = _figures_of(room, collect)
            up.add_metric([room], 0 if found is None else 1)
            yield from found or ()
        yield up


def _figures_of(room: str, collect: Collect) -> list[Metric] | None:
    try:
        return list(collect())
    except (DatabaseError, OSError) as error:
        log.warning("figures_unavailable", room=room, error=error.__class__.__name__)
        return None


REGISTRY: Final = CollectorRegistry(auto_describe=False)
REGISTRY.register(_Everything())
ProcessCollector(registry=REGISTRY)  # process_*: memory, processor time, open files; Linux only


def exposition(accept: str) -> tuple[bytes, str]:
    """The metrics of this process now, and their content type: OpenMetrics where ``accept`` (the header) asks for it, else the plain text format."""
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type
