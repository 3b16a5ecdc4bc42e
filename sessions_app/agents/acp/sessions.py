"""Start an ACP agent, have it list its sessions, and end it (D67)."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from acp import PROTOCOL_VERSION, RequestError
from acp.meta import AGENT_METHODS

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import jsontext
from bridge_project.protocol.types import parse_timestamp
from sessions_app.agents.acp import recipes
from sessions_app.agents.acp.errors import AUTH_REQUIRED, how_to_log_in, text_of_error
from sessions_app.agents.acp.transport import INTERNAL_ERROR
from sessions_app.agents.past.asked import past_session
from sessions_app.agents.past.store import PastSession
from sessions_app.agents.process import groups
from sessions_app.agents.process.json_lines import JsonLines, Message

_NOT_PROTOCOL = "it does not answer as the Agent Client Protocol says."


class _NotListed(Exception):
    """Report for a person why an agent does not list its sessions."""


async def listed(
    name: str, command: Sequence[str], recipe: recipes.Recipe, places: Sequence[str]
) -> Sequence[PastSession]:
    """Return the sessions that an agent lists, ACP_LIST_SESSIONS at most.

    It is started in an empty directory, where no repository tells it anything. ``places``: the
    directories that it is asked about; none: it lists all. Raises AGENT_UNAVAILABLE.
    """
    why = f"it did not list its sessions within {limits.ACP_LIST_SECONDS:g} seconds."
    with TemporaryDirectory(prefix="bridge-agent-", ignore_cleanup_errors=True) as made:
        line, more = recipes.launch(command, Path(made), Path(made))
        group = await groups.start(line, Path(made), more=more, stdin=True)
        agent = _Agent(JsonLines(group, "the Agent Client Protocol", _message))
        try:
            async with asyncio.timeout(limits.ACP_LIST_SECONDS):
                return await agent.list_sessions(places)
        except _NotListed as error:
            why = str(error)
        except RequestError as error:
            why = f"{text_of_error(error)}."
            if error.code == AUTH_REQUIRED:
                why = f"it wants a login. {how_to_log_in(recipe, None)}"
        except ConnectionError:
            why = f"{await agent.lines.describe_end()}."
        except TimeoutError:
            pass
        finally:
            await groups.end_group(group)
            agent.lines.stop_reading()
    raise BridgeError("AGENT_UNAVAILABLE", f"{name}: {why}")


def _message(line: bytes) -> Message | None:
    """Return a line that may be a message as it is: it is parsed in a thread."""
    return {"line": line} if line.lstrip().startswith(b"{") else None


class _Agent:
    """Ask one process, one request at a time.

    The library is no help here: it parses a list of megabytes on the event loop.
    """

    def __init__(self, lines: JsonLines) -> None:
        self.lines = lines
        self._numbers = itertools.count(1)

    async def list_sessions(self, places: Sequence[str]) -> Sequence[PastSession]:
        hello = await self._ask(
            AGENT_METHODS["initialize"],
            protocolVersion=PROTOCOL_VERSION,
            clientCapabilities={},
            clientInfo={"name": "bridge", "version": "1"},
        )
        can = _part(hello, "agentCapabilities")
        if hello.get("protocolVersion") != PROTOCOL_VERSION:
            raise _NotListed(_NOT_PROTOCOL)
        lists = isinstance(_part(can, "sessionCapabilities").get("list"), dict)
        if not lists or can.get("loadSession") is not True:
            raise _NotListed("this version of it does not list its sessions, or continues none.")
        found: dict[str, PastSession] = {}
        for place in places or [""]:
            await self._add(found, {"cwd": place} if place else {})
        return [*found.values()]

    async def _add(self, found: dict[str, PastSession], about: dict[str, str]) -> None:
        """Add the sessions of all pages of a list."""
        seen: set[str] = set()
        cursor: Any = ""
        while isinstance(cursor, str) and cursor not in seen:
            seen.add(cursor)
            page = {"cursor": cursor} if cursor else {}
            answer = await self._ask(AGENT_METHODS["session_list"], **about, **page)
            sessions, room = answer.get("sessions"), limits.ACP_LIST_SESSIONS - len(found)
            if not isinstance(sessions, list):
                raise _NotListed(_NOT_PROTOCOL)
            known = await asyncio.to_thread(lambda: [*map(_past, sessions[:room])])  # noqa: B023
            found.update((one.own_id, one) for one in known if one is not None)
            cursor = answer.get("nextCursor") if len(sessions) < room else None

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request. Raises RequestError, ConnectionError."""
        asked = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        await self.lines.write_line(json.dumps(asked).encode() + b"\n")
        while (message := await self.lines.receive()) is not None:
            found = await asyncio.to_thread(_parse, message["line"])
            if found.get("id") != asked["id"] or "method" in found:
                continue
            if found.get("error") is not None:
                error = _part(found, "error")
                code, said = error.get("code"), error.get("message")
                code = code if isinstance(code, int) else INTERNAL_ERROR
                raise RequestError(code, str(said or found["error"]), error.get("data"))
            return _part(found, "result")
        raise ConnectionResetError


def _parse(line: bytes) -> dict[str, Any]:
    try:
        found = jsontext.loads_lenient(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(of: dict[str, Any], name: str) -> dict[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _past(said: Any) -> PastSession | None:
    """Return a session of a list; None for one that cannot be continued by its id."""
    said = said if isinstance(said, dict) else {}
    try:
        active_at = parse_timestamp(str(said.get("updatedAt"))).timestamp()
    except ValueError:
        active_at = 0.0
    return past_session(said.get("sessionId"), said.get("title"), said.get("cwd"), active_at)
