"""Find the desk's own server of codex, and the threads that it has loaded (D80).

Codex's program in a terminal is a client of that server, and lets others in.
"""

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

import structlog

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.agents.codex.connection import Connection, NotKnown, Params, Refused
from sessions_app.agents.codex.program import NAME
from sessions_app.agents.codex.transport import Frames

log = structlog.get_logger("bridge.agent")


def _socket() -> Path:
    """Return where it listens. Raises OSError, also where another user could listen."""
    home = os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")
    link = os.path.join(home, "app-server-control", "app-server-control.sock")
    path = Path(os.path.realpath(link, strict=True))
    if {path.stat().st_uid, path.parent.stat().st_uid} != {os.geteuid()}:
        raise PermissionError("the socket or its directory is another user's")
    return path


async def connect() -> Frames:
    """Connect to it. Raises ConnectionError."""
    try:
        return await Frames.open(await asyncio.to_thread(_socket))
    except OSError as error:
        raise ConnectionError(str(error)) from error


async def loaded(connection: Connection) -> Collection[str]:
    """Return the ids of its threads. Raises Refused, ConnectionError."""
    found: set[str] = set()
    more: dict[str, str] = {}
    while True:
        page = await connection.ask("thread/loaded/list", **more)
        before, cursor = len(found), page.get("nextCursor")
        ids = page.get("data")
        found.update(one for one in (ids if isinstance(ids, list) else ()) if isinstance(one, str))
        if not isinstance(cursor, str) or len(found) == before:
            return found
        more = {"cursor": cursor}


async def joinable() -> Collection[str]:
    """Return the threads that can be joined, if BRIDGE_JOIN names codex."""
    if NAME not in conf.bridge_join:
        return ()
    try:
        async with asyncio.timeout(limits.JOIN_SECONDS):
            frames = await connect()
            connection = Connection(frames, lambda *_: None, _asked, _go_on)
            reading = asyncio.create_task(connection.run())
            try:
                await connection.greet()
                return await loaded(connection)
            finally:
                reading.cancel()
                await frames.close()
    except (ConnectionError, Refused, TimeoutError) as error:
        log.info("desk_not_reached", agent=NAME, why=str(error))
        return ()


async def _go_on() -> None:
    """Read on at once."""


async def _asked(method: str, params: Params) -> Params:
    raise NotKnown
