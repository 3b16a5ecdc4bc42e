"""Forward this machine's hooks: a thread of the serving process posts the spool to the bridge
(D47).
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import Metric

from bridge_project.kernel import metrics
from bridge_project.kernel.config import conf
from bridge_project.network import server_address, transport
from bridge_project.network.transport import ConnectionMode, Transport
from hooks_app.producer import program
from hooks_app.producer.program import Answer, Forwarder, HttpsTransport, Unreachable

Application = Callable[[Any, Any, Any], Awaitable[None]]

JOIN_SECONDS = 5.0
POST_SECONDS = 30.0  # as long as the producer waits for an answer over https

_application: Application | None = None

_stop = threading.Event()
_threads: list[threading.Thread] = []


def spool() -> Path:
    return conf.bridge_data_dir / "spool"


def figures() -> Iterator[Metric]:
    """The spool, for GET /metrics."""
    found = program.spool_status(spool())
    yield metrics.gauge(
        "spool_waiting",
        "Hook events in the spool that the bridge has not accepted yet.",
        found["waiting"],
    )
    yield metrics.gauge(
        "spool_oldest_age_seconds",
        "How long the oldest of them has waited; 0 when none waits.",
        found["oldest_age_seconds"] or 0.0,
    )
    yield metrics.gauge("spool_bytes", "Bytes of the disk that they take.", found["bytes"])
    yield metrics.gauge(
        "spool_rejected", "Hook events that were refused for good and set aside.", found["rejected"]
    )
    yield metrics.gauge(
        "spool_full",
        "1 while the hook command writes nothing because the spool is full.",
        int(found["full"]),
    )


def post_to(application: Application) -> None:
    """Hand events to an application of this process, from the next start on: it may have no https
    address.
    """
    global _application
    _application = application


class ApplicationTransport:
    """Post to an ASGI application on an event loop, from another thread."""

    def __init__(self, application: Application, loop: asyncio.AbstractEventLoop) -> None:
        self._application = application
        self._loop = loop

    def __call__(self, path: str, body: bytes) -> Answer:
        posted = asyncio.run_coroutine_threadsafe(self._post(path, body), self._loop)
        try:
            return posted.result(POST_SECONDS)
        except Exception as error:  # whatever it is, the forwarder says so and tries again
            posted.cancel()
            raise Unreachable(f"{type(error).__name__}: {error}") from error

    async def _post(self, path: str, body: bytes) -> Answer:
        headers = {
            "Authorization": "Bearer " + conf.secret("hook_token"),
            "Content-Type": "application/json",
            "X-Hook-Source": "primary-agent",
            "X-Hook-Version": program.VERSION,
        }
        url = transport.local_url(conf)
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "root_path": "",
            "scheme": "https",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "bridge": Transport(True, "127.0.0.1", ConnectionMode.LOCAL_ONLY, False, url),
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in sent)
        answer = json.loads(text)
        named = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], named, answer if isinstance(answer, dict) else {})

    def close(self) -> None:
        """Nothing is kept open."""


async def start() -> None:
    send: program.Transport
    if _application is not None:
        send = ApplicationTransport(_application, asyncio.get_running_loop())
    else:
        where = server_address.recorded(conf)
        send = HttpsTransport(
            transport.local_url(conf), lambda: conf.secret("hook_token"), where.pin if where else ""
        )
    _stop.clear()
    thread = threading.Thread(
        target=Forwarder(spool(), send).run_forever, args=(_stop,), name="forwarder", daemon=True
    )
    thread.start()
    _threads.append(thread)


async def stop() -> None:
    _stop.set()
    while _threads:
        await asyncio.to_thread(_threads.pop().join, JOIN_SECONDS)
