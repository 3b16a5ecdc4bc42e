"""Follow the bridge: connect, join, show, acknowledge, and reconnect."""

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.terminal import render
from bridge_project.terminal.client import Client, Lost, Message, Refused, Target, is_row
from bridge_project.terminal.console import Console
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.render import plain

# ids of shown messages, so that one sent again after a reconnect is not shown again
REMEMBERED: Final = 20_000
ACK_EVERY: Final = 100

Printer = Callable[[str], None]
Asker = Callable[[str], Awaitable[bool]]


@dataclass
class Watcher:
    """Show messages by ``show``, and remarks of `watch` itself by ``note``.

    ``raw``: messages as JSON. ``ask`` is asked whether a warning is accepted; without it none is.
    ``ready`` is set while commands can be carried out: all sessions are joined.
    """

    device: Identity
    show: Printer = field(kw_only=True)
    note: Printer = field(kw_only=True)
    raw: bool = False
    ask: Asker | None = None
    colour: bool = False

    def __post_init__(self) -> None:
        self.console = Console(self.note)
        self.ready = asyncio.Event()
        # sessions of this connection: to be joined, and joined
        self._joins: asyncio.Queue[str] = asyncio.Queue()
        self._joined: set[str] = set()
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._was_ready = False

    async def run(self) -> None:
        """Follow until cancelled. Raises Refused."""
        attempt = 0
        while True:
            self._was_ready = False
            try:
                await self._follow(await asyncio.to_thread(self.device.target))
            except Lost as lost:
                attempt = 0 if self._was_ready else attempt
                delays = limits.RECONNECT_DELAYS_SECONDS
                delay = delays[min(attempt, len(delays) - 1)]
                self._say(f"{lost}; trying again in {delay} s", render.YELLOW)
                attempt += 1
                await asyncio.sleep(delay)

    async def _follow(self, target: Target) -> None:
        async with Client.open(target) as client:
            self._joins, self._joined = asyncio.Queue(), set()
            talking = asyncio.create_task(self._talk(client, target))
            # what it raised is raised below
            talking.add_done_callback(lambda _: client.end(Lost("the conversation broke off")))
            try:
                await self._consume(client)
            finally:
                self.console.client = None
                self.ready.clear()
                talking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await talking

    async def _talk(self, client: Client, target: Target) -> None:
        acknowledged = await client.auth(target)
        fresh = acknowledged.pop("device_token", None)  # a secret, so it is not shown either
        if fresh is not None:
            try:
                await asyncio.to_thread(self.device.keep, target.token, fresh)
            except OSError as error:
                text = f"the new token was not stored, the old one stays: {error}"
                self._say(text, render.YELLOW)
        self._take({"type": "connection_ack", "payload": acknowledged})
        health = await client.health_check()
        self._take({"type": "health_status", "payload": health})
        for code in [] if health["ready"] else health["warnings"]:
            await self._accept(client, code, health["warning_details"].get(code))
        self._was_ready = True
        self.console.client = client
        listed = list(self.console.sessions)
        many = f"{len(listed)} session{'s' * (len(listed) != 1)}" if listed else "no sessions yet"
        self._say(f"connected to {target.url}; {many}", render.GREEN)
        self._name_chosen()
        for session_id in listed:  # the newest first, which is chosen
            await self._join(client, session_id)
        while True:
            if self._joins.empty():
                self.ready.set()
            await self._join(client, await self._joins.get())

    async def _accept(self, client: Client, code: str, details: Any) -> None:
        text = details.get("message", "") if isinstance(details, dict) else str(details or "")
        if self.ask is None:
            raise Refused(
                f"The bridge wants a warning to be accepted: {code} {plain(text)}."
                " Accept it in a terminal, or with --yes."
            )
        if not await self.ask(f"{plain(code)}: {plain(text, 400)} Go on?"):
            raise Refused("The warning was not accepted.")
        if not (await client.acknowledge_warning(code))["ready"]:
            raise Lost("the bridge is not ready")

    async def _join(self, client: Client, session_id: str) -> None:
        if session_id not in self._joined:
            self._joined.add(session_id)
            chosen = self.console.current
            self._take(await client.join(session_id, known=True))
            if chosen is None:
                self._name_chosen()

    def _name_chosen(self) -> None:
        if self.console.current is not None:
            self._say(f"chosen: {self.console.called(self.console.current)}")

    async def _consume(self, client: Client) -> None:
        """Show what arrives and acknowledge what was shown.

        It never waits for an answer: none could arrive while this does not read.
        """
        done: list[str] = []
        try:
            async for message in client:
                done += self._take(message)
                if message["type"] == "session_started":
                    self.ready.clear()
                    self._joins.put_nowait(message["payload"]["session_id"])
                if done and (client.idle() or len(done) >= ACK_EVERY):
                    await client.acknowledge(done)
                    done.clear()
        finally:
            with contextlib.suppress(Lost, Refused):
                await client.acknowledge(done)

    def _take(self, message: Message) -> list[str]:
        """Show a message unless it was shown before; return the ids to acknowledge."""
        if message["type"] == "replay_buffer":
            replayed = message["payload"]["messages"]
            if message["payload"].get("source") == "agent" and any(map(self._is_news, replayed)):
                self._say("from the agent's own history:")
            # what predates the device is only acknowledged
            taken = ([one["id"]] if self._is_old(one) else self._take(one) for one in replayed)
            return [id_ for ids in taken for id_ in ids]
        self.console.learn(message)
        if not is_row(message):
            self._print(message)
            return []
        told = message["id"]
        if not self.raw and message["type"] == "notification":
            # a failure is told in its session and to every device, and shown once
            told = message["payload"]["data"].get("error_id", told)
        if told not in self._shown:
            self._shown[told] = None
            if len(self._shown) > REMEMBERED:
                self._shown.popitem(last=False)
            self._print(message)
        return [message["id"]]

    def _is_old(self, message: Message) -> bool:
        return bool(message["timestamp"] < self.device.known.get("paired_at", ""))

    def _is_news(self, message: Message) -> bool:
        return message["id"] not in self._shown and not self._is_old(message)

    def _print(self, message: Message) -> None:
        line = json.dumps(message) if self.raw else self.console.line(message, colour=self.colour)
        if line is not None:
            self.show(line)

    def _say(self, text: str, style: int = render.DIM) -> None:
        self.note(render.paint(f"-- {plain(text, 400)}", style if self.colour else 0))
