"""Define this process's counters, and make gauges for the apps (D46)."""

import platform
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

from bridge_project import PROTOCOL_VERSION, __version__

PREFIX: Final = "bridge_"
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
EVENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)  # the last is limits.BATCH_MAX_EVENTS

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY: Final = CollectorRegistry(auto_describe=False)


def _counter(name: str, text: str, label: str) -> Counter:
    return Counter(PREFIX + name, text, [label], registry=REGISTRY)


# The labels' values come from tables of ours, never from a client.
events = _counter("events_accepted", "Hook events accepted and stored, by event.", "event")
deliveries = _counter("deliveries", "Rows of the log sent to sockets, by message type.", "type")
http_errors = _counter("http_errors", "Errors answered over HTTP, by code.", "code")
socket_errors = _counter("websocket_errors", "Errors sent over WebSockets, by code.", "code")
pushes = _counter("pushes", "Pushes that were tried, by what became of them.", "outcome")
commits = Histogram(
    PREFIX + "commit_seconds",
    "How long the commits of transactions took that appended to the log.",
    buckets=SECONDS,
    registry=REGISTRY,
)
groups = Histogram(
    PREFIX + "commit_group_events",
    "How many hook events shared a transaction.",
    buckets=EVENTS,
    registry=REGISTRY,
)
Gauge(
    PREFIX + "start_time_seconds",
    "When this process started, seconds since 1970.",
    registry=REGISTRY,
).set_to_current_time()
Info(PREFIX + "build", "What runs.", registry=REGISTRY).info(
    {
        "version": __version__,
        "protocol_version": PROTOCOL_VERSION,
        "python": platform.python_version(),
    }
)
ProcessCollector(registry=REGISTRY)  # process_*: memory, processor time, open files; Linux only


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)
