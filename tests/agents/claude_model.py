"""A scripted Messages API on loopback, with what the agent asked of it."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.agents.real import models

MARK = re.compile(r"play:([a-z_]+)")
NOTIFICATION = "<task-notification>"
WORDS = re.compile(r"\S+\s*")


class Text(NamedTuple):
    """Streamed word by word."""

    text: str


class Tool(NamedTuple):
    name: str
    input: dict[str, Any]


class Refused(NamedTuple):
    """An HTTP error in place of an answer; once ``over`` is set, what follows is answered."""

    status: int
    message: str
    kind: str
    over: threading.Event | None = None


Block = Text | Tool
Planned = Block | Callable[[dict[str, Any]], Tool]  # which reads what was asked first
Reply = Sequence[Block] | Refused


class Model(models.Model):
    """A prompt says ``play:NAME``; its replies come in turn as tools report, the last repeated."""

    def __init__(self) -> None:
        self.plays: dict[str, Sequence[Sequence[Planned] | Refused]] = {
            "hello": [[Text("Hello from the scripted model.")]],
            "notified": [[Text("The background job is done.")]],
        }
        self.requests: list[dict[str, Any]] = []  # but for the small ones of the agent's own
        super().__init__(_Handler)

    def play(self, name: str, *replies: Sequence[Planned] | Refused) -> str:
        """Learn a play; the prompt that has it played."""
        self.plays[name] = replies
        return f"Please play:{name}"

    def reply(self, body: dict[str, Any]) -> Reply:
        if not body.get("tools"):
            return [Text("A title")]  # the agent asks small things of its own
        name, step = _place(body)
        replies = self.plays[name]
        self.requests.append(body)
        reply = replies[min(step, len(replies) - 1)]
        if isinstance(reply, Refused) and reply.over is not None and reply.over.is_set():
            reply = replies[step + 1]
        if isinstance(reply, Refused):
            return reply
        return [one if isinstance(one, Text | Tool) else one(body) for one in reply]


def _place(body: dict[str, Any]) -> tuple[str, int]:
    """The play that was last asked for, and how many tools have reported since."""
    results = 0
    for role, text in reversed(models.anthropic_prompts(body)):
        if role == "tool":
            results += 1
        elif role == "user" and NOTIFICATION in text:
            return "notified", results
        elif role == "user" and (found := MARK.findall(text)):
            return found[-1], results
    return "hello", 0


class _Handler(models.Handler):
    model: Model

    def anthropic(self, body: dict[str, Any]) -> None:
        reply = self.model.reply(body)
        if isinstance(reply, Refused):
            error = {"type": reply.kind, "message": reply.message}
            return self.json({"type": "error", "error": error}, reply.status)
        whole = models.anthropic_message(list(map(_content, reply)), USAGE, body["model"])
        if not body.get("stream"):
            return self.json(whole)
        return self.stream(models.anthropic_events(whole, map(_deltas, reply)), named=True)


USAGE = {"input_tokens": 100, "output_tokens": 20}
USAGE |= dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens"), 0)


def _content(block: Block) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    return models.tool_use(block.name, block.input)


def _deltas(block: Block) -> Iterator[dict[str, Any]]:
    if isinstance(block, Tool):
        text = json.dumps(block.input)
        for begin in range(0, len(text), 20):
            yield {"type": "input_json_delta", "partial_json": text[begin : begin + 20]}
        return
    for word in WORDS.findall(block.text):
        yield {"type": "text_delta", "text": word}
