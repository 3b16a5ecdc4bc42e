"""Start codex, have it list its sessions, and end it (D67)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from sessions_app.agents.codex.connection import Connection, NotKnown, Params, Refused
from sessions_app.agents.codex.program import NAME, command
from sessions_app.agents.codex.reading import count, parts, text
from sessions_app.agents.codex.transport import Lines
from sessions_app.agents.past.asked import past_session
from sessions_app.agents.past.store import PastSession
from sessions_app.agents.process import groups

_PAGE: Final = 100
_SOURCES: Final = ("cli", "vscode", "exec", "appServer")  # not those of subagents
_NOT_ITS_SERVER: Final = "it does not answer as codex's app-server does."


async def listed() -> Sequence[PastSession]:
    """Return the sessions that codex lists, ACP_LIST_SESSIONS at most.

    It is started in an empty directory, where no repository tells it anything. Raises
    AGENT_UNAVAILABLE.
    """
    why = f"it did not list its sessions within {limits.ACP_LIST_SECONDS:g} seconds."
    with TemporaryDirectory(prefix="bridge-agent-", ignore_cleanup_errors=True) as made:
        group = await groups.start([*command(), "app-server"], Path(made), stdin=True)
        lines = Lines(group)
        connection = Connection(lines, lambda *_: None, _asked, _go_on)
        reading = asyncio.create_task(connection.run())
        try:
            async with asyncio.timeout(limits.ACP_LIST_SECONDS):
                if await connection.greet():
                    return await _list(connection)
                why = _NOT_ITS_SERVER
        except Refused as error:
            why = f"{error}."
        except ConnectionError:
            why = f"{await lines.describe_end()}."
        except TimeoutError:
            pass
        finally:
            reading.cancel()
            await groups.end_group(group)
            lines.stop_reading()
    raise BridgeError("AGENT_UNAVAILABLE", f"{NAME}: {why}")


async def _go_on() -> None:
    """Read on at once."""


async def _asked(method: str, params: Params) -> Params:
    raise NotKnown


async def _list(connection: Connection) -> Sequence[PastSession]:
    found: dict[str, PastSession] = {}
    more: dict[str, Any] = {}
    while len(found) < limits.ACP_LIST_SESSIONS:
        page = await connection.ask(
            "thread/list",
            limit=_PAGE,
            sortKey="updated_at",
            sourceKinds=_SOURCES,
            modelProviders=[],
            **more,
        )
        threads = parts(page, "data")
        for one in threads:
            title = text(one, "name") or text(one, "preview")
            active_at = float(count(one, "updatedAt") or 0)
            known = past_session(one.get("id"), title, one.get("cwd"), active_at)
            if known is not None:
                found[known.own_id] = known
        cursor = text(page, "nextCursor")
        if not threads or not cursor or more == (more := {"cursor": cursor}):
            break
    return [*found.values()]
