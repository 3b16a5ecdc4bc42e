"""Follows the bridge for as long as it is wanted: connects, joins, shows, acknowledges, and comes
back after whatever happens (D43).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

from bridge_project.kernel import limits
from bridge_project.terminal.client import Client, Lost, Message, Refused, Target, is_row
from bridge_project.terminal.console import Console
from bridge_project.terminal.render import Renderer, plain

# ids of shown messages, so that one sent again after a reconnect is not shown again
REMEMBERED = 20_000
ACK_EVERY = 100

Printer = Callable[[str], None]
Asker = Callable[[str], Awaitable[bool]]


class Watcher:
    """``target`` is asked before each attempt, in a thread; it raises Lost while there is nothing
    to connect to yet, and Refused for good.

    ``show`` prints what arrives, ``note`` what the watcher says itself. ``sessions``: only these,
    or all when empty. ``ask`` is asked whether a warning is accepted; without it none is.
    ``console`` is given the connection, and all that arrives. ``keep`` stores a fresh token for the
    next connection (D62); without it none is taken.
    """

    def __init__(
        self,
        target: Callable[[], Target],
        *,
        show: Printer,
        note: Printer,
        renderer: Renderer,
        raw: bool = False,
        sessions: Collection[str] = (),
        ask: Asker | None = None,
        console: Console | None = None,
        keep: Callable[[str, str], None] | None = None,
    ) -> None:
        self.target, self.show, self.note, self.renderer = target, show, note, renderer
        self.raw, self.sessions, self.ask, self.keep = raw, frozenset(sessions), ask, keep
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._introduced: set[str] = set()
        self._was_ready = False
        self.console = console or Console(note)
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. Raises Refused."""
        attempt = 0
        while True:
            self._was_ready = False
            try:
                await self._follow(await asyncio.to_thread(self.target))
            except Lost as lost:
                attempt = 0 if self._was_ready else attempt
                delay = limits.RECONNECT_DELAYS_SECONDS[
                    min(attempt, len(limits.RECONNECT_DELAYS_SECONDS) - 1)
                ]
                self._say(f"{lost}; trying again in {delay} s", "yellow")
                attempt += 1
                await asyncio.sleep(delay)

    def _say(self, text: str, style: str = "dim") -> None:
        self.note(self.renderer.note(text, style))

    async def _follow(self, target: Target) -> None:
        """One connection, from its beginning to its loss."""
        async with Client.open(target) as client:
            ready = asyncio.Event()
            joins: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
            try:
                await _first_failure(
                    self._greet(client, target, ready, joins),
                    self._consume(client, joins),
                    self._join(client, ready, joins),
                )
            finally:
                self.console.client = None
                self.ready.clear()

    async def _greet(
        self,
        client: Client,
        target: Target,
        ready: asyncio.Event,
        joins: asyncio.Queue[tuple[str, bool]],
    ) -> None:
        acknowledged = await client.auth(target)
        fresh = acknowledged.pop("device_token", None)  # a secret, so it is not shown either
        if fresh is not None and self.keep is not None:
            try:
                await asyncio.to_thread(self.keep, target.token, fresh)
            except OSError as error:
                self._say(f"the new token was not stored, the old one stays: {error}", "yellow")
        self._answer("connection_ack", acknowledged)
        listed = {str(session["session_id"]) for session in acknowledged["active_sessions"]}
        for session_id in sorted(self.sessions or listed):
            joins.put_nowait((session_id, session_id in listed))
        health = await client.health_check()
        self._answer("health_status", health)
        if not health["ready"]:
            for code in health["warnings"]:
                await self._accept(client, code, health["warning_details"].get(code))
        self._was_ready = True
        self.console.client = client
        ready.set()
        count = len(self.sessions) or len(listed)
        self._say(
            f"connected to {target.url}; {count or 'no'} session{'' if count == 1 else 's'} to follow{'' if count else ' yet'}",
            "green",
        )

    async def _accept(self, client: Client, code: str, details: Any) -> None:
        text = details.get("message", "") if isinstance(details, dict) else str(details or "")
        if self.ask is None:
            raise Refused(
                f"The bridge wants a warning to be accepted: {code} {plain(text)}. Accept it in a terminal, or with --yes."
            )
        if not await self.ask(f"{plain(code)}: {plain(text, 400)} Go on?"):
            raise Refused("The warning was not accepted.")
        answer = await client.acknowledge_warning(code)
        if not answer["ready"]:
            raise Lost("the bridge is not ready")

    async def _join(
        self, client: Client, ready: asyncio.Event, joins: asyncio.Queue[tuple[str, bool]]
    ) -> None:
        await ready.wait()
        joined: set[str] = set()
        while True:
            if joins.empty():
                self.ready.set()  # not before: commands are about a session that is joined
            session_id, known = await joins.get()
            if session_id in joined:
                continue
            answer = await client.join(session_id, known=known)
            self.console.learn(answer)
            if answer["type"] == "session_ready":
                joined.add(session_id)
                if session_id not in self._introduced:
                    self._introduced.add(session_id)
                    self._print(answer)
            else:
                self._print(answer)

    async def _consume(self, client: Client, joins: asyncio.Queue[tuple[str, bool]]) -> None:
        """Show what arrives and acknowledge what was shown. It never waits for an answer, which
        could not arrive while nobody reads.
        """
        done: list[str] = []
        try:
            async for message in client:
                if message["type"] == "session_started" and self._wanted(message):
                    joins.put_nowait((message["payload"]["session_id"], True))
                done += self._take(message)
                if done and (client.idle() or len(done) >= ACK_EVERY):
                    await client.acknowledge(done)
                    done.clear()
        finally:
            with contextlib.suppress(Lost, Refused):
                await client.acknowledge(done)

    def _take(self, message: Message) -> list[str]:
        """Show a message unless it was shown before; the ids to acknowledge."""
        self.console.learn(message)
        inner = message["payload"].get("messages", []) if message["type"] == "replay_buffer" else []
        if not is_row(message):
            self._print(message)
            return [id_ for one in inner for id_ in self._take(one)]
        if message["id"] not in self._shown:
            self._shown[message["id"]] = None
            if len(self._shown) > REMEMBERED:
                self._shown.popitem(last=False)
            self._print(message)
        return [message["id"]]

    def _wanted(self, message: Message) -> bool:
        session_id = message["payload"].get("session_id")
        return not self.sessions or session_id is None or session_id in self.sessions

    def _answer(self, type_: str, payload: Message) -> None:
        message = {"type": type_, "payload": payload}
        self.console.learn(message)
        if self.raw:
            self.show(json.dumps(message))
        else:
            self.renderer.learn(message)

    def _print(self, message: Message) -> None:
        if self._wanted(message):
            self.show(json.dumps(message) if self.raw else self.renderer.line(message))


async def _first_failure(*work: Coroutine[Any, Any, None]) -> None:
    """Run all at once until one raises; the others are cancelled and awaited, and its error is
    raised.
    """
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    errors = [error for task in done if (error := task.exception()) is not None]
    raise next((error for error in errors if isinstance(error, Refused)), errors[0])
