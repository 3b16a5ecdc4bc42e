"""A scripted Messages API on loopback, with what the agent asked of it."""

import contextlib
import json
import re
import threading
import uuid
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATIENCE = 60.0
MARK = re.compile(r"play:([a-z_]+)")
NOTIFICATION = "<task-notification>"
WORDS = re.compile(r"\S+\s*")


class Text(NamedTuple):
    """Streamed word by word; before the last one the model waits for ``hold``."""

    text: str
    hold: threading.Event | None = None


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
Reply = Sequence[Block] | Refused


class Request(NamedTuple):
    play: str
    body: dict[str, Any]


class Model:
    """A prompt says ``play:NAME``; its replies come in turn as tools report, the last repeated."""

    def __init__(self) -> None:
        self.plays: dict[str, Sequence[Reply]] = {
            "hello": [[Text("Hello from the scripted model.")]],
            "notified": [[Text("The background job is done.")]],
        }
        self.requests: list[Request] = []
        handler = type("Bound", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def play(self, name: str, *replies: Reply) -> str:
        """Learn a play; the prompt that has it played."""
        self.plays[name] = replies
        return f"Please play:{name}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reply(self, body: dict[str, Any]) -> Reply:
        if not body.get("tools"):
            return [Text("A title")]  # the agent asks small things of its own
        name, step = _place(body.get("messages", []))
        replies = self.plays[name]
        self.requests.append(Request(name, body))
        reply = replies[min(step, len(replies) - 1)]
        if isinstance(reply, Refused) and reply.over is not None and reply.over.is_set():
            reply = replies[step + 1]
        return reply


def _place(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The play that was last asked for, and how many tools have reported since."""
    results = 0
    for block in _said_backwards(messages):
        if block.get("type") == "tool_result":
            results += 1
        elif NOTIFICATION in str(block.get("text")):
            return "notified", results
        elif found := MARK.findall(str(block.get("text"))):
            return found[-1], results
    return "hello", 0


def _said_backwards(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in reversed(messages):
        content = message.get("content")
        if message.get("role") == "user" and content:
            whole = [{"type": "text", "text": content}]
            yield from reversed(whole if isinstance(content, str) else content)


class _Handler(BaseHTTPRequestHandler):
    model: Model
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer({})

    def do_GET(self) -> None:
        self._answer({}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            return self._answer({"input_tokens": 100})
        if path != "/v1/messages":
            return self._answer({}, 404)
        reply = self.model.reply(body)
        if isinstance(reply, Refused):
            error = {"type": reply.kind, "message": reply.message}
            return self._answer({"type": "error", "error": error}, reply.status)
        whole = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [_content(block) for block in reply],
            "stop_reason": _stop_reason(reply),
            "stop_sequence": None,
            "usage": USAGE,
        }
        if not body.get("stream"):
            return self._answer(whole)
        # the agent was interrupted, or killed
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._stream(whole | {"content": [], "stop_reason": None}, reply)
        return None

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, message: dict[str, Any], reply: Sequence[Block]) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self._event("message_start", message=message)
        for index, block in enumerate(reply):
            begun = _content(Text("") if isinstance(block, Text) else block._replace(input={}))
            self._event("content_block_start", index=index, content_block=begun)
            for delta in _deltas(block):
                self._event("content_block_delta", index=index, delta=delta)
            self._event("content_block_stop", index=index)
        delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        self._event("message_delta", delta=delta, usage=USAGE)
        self._event("message_stop")

    def _event(self, kind: str, **fields: Any) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads what it served; `requests` has it."""


USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 20,
}


def _stop_reason(reply: Sequence[Block]) -> str:
    return "tool_use" if any(isinstance(block, Tool) for block in reply) else "end_turn"


def _content(block: Block) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    id_ = f"toolu_{uuid.uuid4().hex}"
    return {"type": "tool_use", "id": id_, "name": block.name, "input": block.input}


def _deltas(block: Block) -> Iterator[dict[str, Any]]:
    if isinstance(block, Tool):
        text = json.dumps(block.input)
        for begin in range(0, len(text), 20):
            yield {"type": "input_json_delta", "partial_json": text[begin : begin + 20]}
        return
    words = WORDS.findall(block.text)
    for number, word in enumerate(words, 1):
        if number == len(words) and block.hold is not None:
            block.hold.wait(PATIENCE)
        yield {"type": "text_delta", "text": word}
