"""Follow the bridge: connect, join, show what arrives, and reconnect."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.terminal import render
from bridge_project.terminal.client import Client, Lost, Message, Refused, Target, converse
from bridge_project.terminal.commands import Commands
from bridge_project.terminal.console import Console
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.render import plain

REMEMBERED: Final = 20_000  # ids of shown messages: those sent again are not shown again

Printer = Callable[[str], None]
Asker = Callable[[str], Awaitable[bool]]


class Watcher:
    """Show messages by ``show``, and remarks of `watch` itself by ``note``.

    ``raw``: messages as JSON. ``ask`` is asked whether a warning is accepted; without it none is.
    ``ready`` is set while commands can be carried out: all sessions are joined.
    """

    def __init__(
        self,
        device: Identity,
        *,
        show: Printer,
        note: Printer,
        ask: Asker | None = None,
        raw: bool = False,
        colour: bool = False,
    ) -> None:
        self.device, self.raw = device, raw
        self.console = Console()
        self.commands = Commands(self.console, note)
        self.ready = asyncio.Event()
        self._show, self._note, self._ask, self._colour = show, note, ask, colour
        self._joins: asyncio.Queue[str] = asyncio.Queue()  # sessions to be joined
        self._fresh_token = ""
        self._shown: dict[Any, None] = {}  # the newest is last

    async def run(self) -> None:
        """Follow until cancelled. Raises Refused."""
        delays = list(limits.RECONNECT_DELAYS_SECONDS)
        while True:
            self._joins = asyncio.Queue()
            try:
                target = await asyncio.to_thread(self.device.target)
                talk = partial(self._talk, target)
                await converse(target, self.take, talk)
            except Refused:
                with suppress(Lost):
                    await asyncio.to_thread(self.device.target)  # how to pair a revoked one again
                raise
            except Lost as lost:
                why = str(lost).rstrip(".")
                if self.console.client is not None:  # it was ready: begin with the shortest
                    delays = list(limits.RECONNECT_DELAYS_SECONDS)
                else:
                    why += self.device.remedy()
                self.console.client = None
                self.ready.clear()
                self._remark(f"{why}; trying again in {delays[0]} s", render.YELLOW)
                await asyncio.sleep(delays.pop(0) if len(delays) > 1 else delays[0])

    async def _talk(self, target: Target, client: Client) -> None:
        """Get ready, then join every session."""
        await client.get_ready(target, self._accept)
        if self._fresh_token:
            try:
                await asyncio.to_thread(self.device.keep, target.token, self._fresh_token)
            except OSError as error:
                text = f"the new token was not stored, the old one stays: {error}"
                self._remark(text, render.YELLOW)
        self.console.client = client
        many = len(self.console.sessions)
        count = f"{many} session{'s' * (many != 1)}"
        self._remark(f"connected to {target.url}; {count}; `help` lists commands", render.GREEN)
        self._name_chosen()
        known = self.console.sessions.values()
        # the newest that takes messages first, which is chosen
        for one in sorted(known, key=lambda one: one["kind"] == "observed"):
            self._joins.put_nowait(one["session_id"])
        joined = set()
        while True:
            if self._joins.empty():
                self.ready.set()
            session_id = await self._joins.get()
            if session_id not in joined and session_id in self.console.sessions:
                joined.add(session_id)
                chosen = self.console.current
                answer = await client.join(session_id)
                if answer["type"] == "error":
                    self.take(answer)
                if chosen is None:
                    self._name_chosen()

    async def _accept(self, warning: str) -> None:
        if self._ask is None:
            wanted = f"The bridge wants a warning to be accepted: {plain(warning, 400)}"
            raise Refused(f"{wanted} Accept it in a terminal, or with --yes.")
        if not await self._ask(f"{plain(warning, 400)} Go on?"):
            raise Refused("The warning was not accepted.")

    def _name_chosen(self) -> None:
        if self.console.current is not None:
            self._remark(f"chosen: {self.console.called(self.console.current)}")

    def take(self, message: Message) -> None:
        """Show a message, unless it was shown before or predates the device."""
        if message["type"] == "replay_buffer":
            paired_at = self.device.known.get("paired_at", "")
            replayed = [
                one
                for one in message["payload"]["messages"]
                if one["timestamp"] >= paired_at and one["id"] not in self._shown
            ]
            if replayed and message["payload"].get("source") == "agent":
                self._remark("from the agent's own history:")
            for one in replayed:
                self.take(one)
            return
        self.console.learn(message)
        if message["type"] == "connection_ack":  # it is a secret, and not shown
            self._fresh_token = message["payload"].pop("device_token", "")
        if message["type"] == "session_started" and self.console.client is not None:
            self.ready.clear()
            self._joins.put_nowait(message["payload"]["session_id"])
        key = message.get("id")
        if not self.raw and message["type"] == "notification":
            # a failure is told in its session and to every device, and shown once
            key = message["payload"]["data"].get("error_id", key)
        if key in self._shown:
            return
        self._shown[key] = None
        if len(self._shown) > REMEMBERED:
            del self._shown[next(iter(self._shown))]
        line = json.dumps(message) if self.raw else self.console.line(message, colour=self._colour)
        if line is not None:
            self._show(line)

    def _remark(self, text: str, style: int = render.DIM) -> None:
        self._note(render.paint(f"-- {plain(text, 400)}", style if self._colour else 0))
