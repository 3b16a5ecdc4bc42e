"""Run the demo agent: scripted, offline, without a model (D41)."""

import asyncio
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from bridge_project.kernel.picture_files import Picture
from bridge_project.kernel.pictures import label
from bridge_project.protocol import jsontext
from sessions_app.agents import events
from sessions_app.agents.driver import REJECTED, CannotResume, Driver, describe_call
from sessions_app.agents.process import groups, shell
from sessions_app.approvals.tool_call import QUESTION, Call
from sessions_app.approvals.tool_result import INTERRUPTED, readable

PIECES = 4
SLEEP_PIECE_SECONDS = 0.1
ECHO = "This is the demo agent; it has no model and repeats what you say"
ECHO_MAX_CHARS = 20_000  # of a prompt repeated; a phone that sends megabytes need not get them back


class DemoDriver(Driver):
    """Answer each prompt by repeating it, or obey its command.

    ``/tool NAME {json}`` asks for approval of that call and reports a result, ``/fail`` fails,
    ``/sleep N`` streams for N seconds. Of a picture it says the kind and size. What it is told
    while a turn runs is repeated in that turn.
    """

    picture_bytes = limits.PICTURE_BYTES

    def __init__(self) -> None:
        super().__init__()
        self._turn: asyncio.Task[None] | None = None
        self._running: Call | None = None
        self._interrupted = False
        self._groups = groups.Groups()

    async def start(self, directory: Path, resume_id: str | None = None) -> None:
        if resume_id is not None and not resume_id.startswith("demo-"):
            raise CannotResume("This is no session of the demo agent.")
        self._directory = directory
        self.events.put(events.SessionIdentified(resume_id or f"demo-{uuid.uuid4()}"))

    async def prompt(self, content: str, pictures: Sequence[Picture] = ()) -> None:
        self._interrupted = False
        self.events.put(events.PromptMoved("given"))
        self._turn = asyncio.create_task(self._run(_said(content, pictures)))
        await asyncio.sleep(0)  # a task that is cancelled before it has begun reports no end

    async def steer(self, content: str, message_id: str, pictures: Sequence[Picture] = ()) -> None:
        self.events.put(events.PromptMoved("given", message_id))
        self.events.put(events.Chunk(f"Heard: {_short(_said(content, pictures))} "))

    async def interrupt(self) -> None:
        # a second interrupt would hit the turn while it reports that it has stopped
        if self._turn is not None and not self._interrupted:
            self._interrupted = True
            self._turn.cancel()

    async def end_background(self) -> None:
        await self._groups.end()

    async def close(self) -> None:
        self.events.close()
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.wait({self._turn})
        await self._groups.end()
        self._remove_place()

    async def _run(self, content: str) -> None:
        began, error = time.monotonic(), ""
        command, _, rest = content.partition(" ")
        try:
            if command == "/fail":
                self.events.put(events.Chunk("This is the demo agent, and it was asked to fail."))
                error = rest.strip() or "The demo agent failed, as it was asked to."
            elif command == "/sleep":
                await self._sleep(rest)
            elif command == "/tool":
                await self._use_tool(rest)
            else:
                await self._stream(f"{ECHO}: {_short(content)}")
        except asyncio.CancelledError:
            if self._running is not None:
                self.events.put(events.ToolStopped(self._running, INTERRUPTED))
        self._running = None
        usage = {"duration_ms": _ms_since(began)}
        self.events.put(events.TurnEnded("error" if error else "stop", usage, error))

    async def _stream(self, text: str) -> None:
        size = max(1, -(-len(text) // PIECES))
        for begin in range(0, len(text), size):
            self.events.put(events.Chunk(text[begin : begin + size]))
            await asyncio.sleep(limits.STREAM_COALESCE_SECONDS)

    async def _sleep(self, rest: str) -> None:
        try:
            seconds = float(rest)
        except ValueError:
            await self._stream("/sleep takes a number of seconds.")
            return
        until, number = time.monotonic() + seconds, 0
        while (left := until - time.monotonic()) > 0:
            number += 1
            self.events.put(events.Chunk(f"{number} "))
            await asyncio.sleep(min(SLEEP_PIECE_SECONDS, left))
        self.events.put(events.Chunk(f"Slept for {seconds:g} seconds."))

    async def _use_tool(self, rest: str) -> None:
        tool, _, text = rest.strip().partition(" ")
        try:
            params = jsontext.loads_lenient(text) if text.strip() else {}
        except (ValueError, RecursionError):
            params = None
        if not tool or not isinstance(params, dict):
            await self._stream('Say: /tool NAME {"parameter": "value"}')
            return
        reasoning = "The demo agent was asked to use this tool."
        call = describe_call(f"demo-{uuid.uuid4()}", tool, params, reasoning=reasoning)
        call = replace(call, directory=str(self._directory))
        self._running = call
        verdict = await self.approvals.ask(call)
        if verdict is None or verdict.decision == "rejected":
            reason = verdict.reason if verdict is not None else INTERRUPTED
            self.events.put(events.ToolStopped(call, reason or REJECTED))
            self._running = None
            await self._stream(f"{tool} was rejected.")
            return
        changed = verdict.modifications if verdict.decision == "modified" else None
        await self._act(call, params if changed is None else changed)
        self._running = None
        await self._stream(f"{tool} is over.")

    async def _act(self, call: Call, params: Mapping[str, Any]) -> None:
        began = time.monotonic()
        command = params.get("command")
        if call.tool != "Bash" or not conf.bridge_demo_shell or not isinstance(command, str):
            said = json.dumps(dict(params), ensure_ascii=False)
            text = f"A scripted result of {call.tool}: nothing was run. Parameters: {said}"
            if call.tool == QUESTION:
                text = readable({"answers": {}, **params})
            self.events.put(events.ToolSucceeded(call, text, duration_ms=_ms_since(began)))
            return
        directory = Path(call.directory)
        self.events.put(await shell.run(call, command, directory, self._groups))


def _said(content: str, pictures: Sequence[Picture]) -> str:
    return " ".join([content.strip(), *(label(one.media_type, len(one.data)) for one in pictures)])


def _short(content: str) -> str:
    if len(content) <= ECHO_MAX_CHARS:
        return content
    return f"{content[:ECHO_MAX_CHARS]} … ({len(content)} characters in all)"


def _ms_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
