"""The bridges that are measured."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook
from tests.performance.sockets import Socket
from tests.servers import Postgres, stop_process

SESSION = "measured"
databases: list[Postgres] = []  # the server that has them, or none: each bridge has its SQLite


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bridge-bench-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@contextlib.contextmanager
def bridge(path: Path, **settings: Any) -> Iterator[Bridge]:
    """A bridge with room for many sockets, without rate limits, with the session SESSION."""
    url = databases[0].create_database() if databases else None
    made = Bridge(path, database_url=url, **{"BRIDGE_MAX_WEBSOCKETS": "100"} | settings)
    try:
        made.start().accept(hook("SessionStart", SESSION))
        yield made
    finally:
        if made.process is not None:
            stop_process(made.process)


async def connect(bridge: Bridge, token: str, *sessions: str) -> Socket:
    """A phone that is ready and has joined the sessions."""
    opened = await (await Socket.open(bridge.port)).ready(token)
    for session in sessions:
        await opened.join(session)
    return opened
