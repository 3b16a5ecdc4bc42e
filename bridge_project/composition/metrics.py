"""Collect this process's counters and the apps' gauges for GET /metrics."""

from collections.abc import Callable, Iterable, Iterator

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.metrics import REGISTRY
from hooks_app.producer import server_forwarder
from sessions_app import metrics as session_metrics

log = structlog.get_logger("bridge.metrics")

# Each may use the database, and may raise STORAGE_ERRORS and OSError.
COLLECTORS: dict[str, Callable[[], Iterable[Metric]]] = {
    "sessions": session_metrics.collect,
    "hooks": server_forwarder.collect,
}


class _Process(CollectorRegistry):
    """Collect counters and gauges; gauges that fail are left out, and logged."""

    def collect(self) -> Iterator[Metric]:
        yield from REGISTRY.collect()
        for name, collect in COLLECTORS.items():
            try:
                yield from list(collect())
            except (*STORAGE_ERRORS, OSError) as error:
                log.warning("gauges_unavailable", app=name, error=error.__class__.__name__)


def exposition(accept: str) -> tuple[bytes, str]:
    """Return this process's metrics in the format of an `Accept` header, and its name."""
    encode, content_type = choose_encoder(accept)
    return encode(_Process()), content_type
