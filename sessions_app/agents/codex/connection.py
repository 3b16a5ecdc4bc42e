"""Speak with an app-server of codex by its messages, whatever carries them.

They are JSON-RPC without its version: either side asks, and either side reports.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from bridge_project import __version__
from bridge_project.kernel import limits
from sessions_app.agents.codex.reading import part, text
from sessions_app.agents.codex.transport import Transport
from sessions_app.agents.process.json_lines import Message

log = structlog.get_logger("bridge.agent")

RESOLVED = "serverRequest/resolved"
_METHOD_NOT_FOUND, _INTERNAL_ERROR = -32601, -32603
Params = dict[str, Any]


class Refused(Exception):
    """Report the error with which codex has answered a request, in its words."""


class NotKnown(Exception):
    """Report that nobody here answers a request of codex's."""


class Connection:
    """Ask codex, and hand on what it reports (``noted``) and asks (``asked``).

    ``asked`` returns the answer, or raises NotKnown. It is cancelled when codex takes its question
    back.
    """

    def __init__(
        self,
        transport: Transport,
        noted: Callable[[str, Params], None],
        asked: Callable[[str, Params], Awaitable[Params]],
        wait_for_room: Callable[[], Awaitable[None]],
    ) -> None:
        self._transport = transport
        self._noted, self._asked, self._wait_for_room = noted, asked, wait_for_room
        self._numbers = itertools.count(1)
        self._waiting: dict[Any, asyncio.Future[Message]] = {}
        self._answering: dict[Any, asyncio.Task[None]] = {}  # by codex's id of the question
        self._over = False

    async def run(self) -> None:
        """Read until codex says no more."""
        try:
            while (message := await self._next()) is not None:
                self._take(message)
        finally:
            self._over = True
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("codex has ended"))
            for task in self._answering.values():
                task.cancel()

    async def _next(self) -> Message | None:
        await self._wait_for_room()
        return await self._transport.receive()

    def _take(self, message: Message) -> None:
        id_, method = message.get("id"), message.get("method")
        params = part(message, "params")
        if not isinstance(method, str):
            answer = self._waiting.get(id_)
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif id_ is None:
            if method == RESOLVED and (task := self._answering.get(params.get("requestId"))):
                task.cancel()
            self._noted(method, params)
        else:
            self._answering[id_] = asyncio.create_task(self._answer(id_, method, params))

    async def _answer(self, id_: Any, method: str, params: Params) -> None:
        answer: Params
        try:
            answer = {"result": await self._asked(method, params)}
        except NotKnown:
            words = f"The bridge does not answer {method[: limits.AGENT_OPTION_NAME_CHARS]}."
            answer = {"error": {"code": _METHOD_NOT_FOUND, "message": words}}
        except Exception:  # whatever it is, codex must not wait for ever
            log.exception("driver_failed", agent="codex", request=method)
            words = "The bridge could not answer."
            answer = {"error": {"code": _INTERNAL_ERROR, "message": words}}
        finally:
            if self._answering.get(id_) is asyncio.current_task():
                del self._answering[id_]
        try:
            await self._transport.send({"id": id_, **answer})
        except ConnectionError:  # gone, which is reported elsewhere
            log.info("answer_too_late", agent="codex", request=method)

    async def ask(self, method: str, **params: Any) -> Params:
        """Return what codex answers. Raises Refused, ConnectionError."""
        if self._over:
            raise ConnectionResetError("codex has ended")
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._transport.send({"id": number, "method": method, "params": params})
            answer = await self._waiting[number]
        finally:
            del self._waiting[number]
        if answer.get("error") is not None:
            words = text(part(answer, "error"), "message") or str(answer["error"])
            raise Refused(words[: limits.AGENT_REASON_MAX_CHARS])
        return part(answer, "result")

    async def greet(self) -> str:
        """Introduce the bridge; return codex's version, "" if it tells none.

        Raises Refused, ConnectionError.
        """
        hello = await self.ask(
            "initialize",
            clientInfo={"name": "agent-bridge", "title": "Agent bridge", "version": __version__},
            capabilities={"experimentalApi": False, "requestAttestation": False},
        )
        await self._transport.send({"method": "initialized"})
        _, _, version = text(hello, "userAgent").partition(" ")[0].partition("/")
        return version
