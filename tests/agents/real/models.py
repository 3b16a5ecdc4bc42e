"""A language model that does what the prompt's last ``do:`` says, on loopback.

It speaks OpenAI's two interfaces, Anthropic's and Gemini's, since each agent has one of them.

``do: say TEXT``, ``do: run COMMAND``, ``do: write PATH TEXT`` (a tool call, then "All done."),
``do: count N`` (a word each 50 ms), ``do: fail``.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ORDER = re.compile(r"do: (say|run|write|count|fail)\b ?([^\n\"]*)")
WORD_SECONDS = 0.05
USAGE = (11, 7)  # tokens in and out


@dataclass(slots=True)
class Reply:
    """What the model says: words, and then perhaps one call of a tool."""

    words: list[str]
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    pause: float = 0.0
    status: int = 200


# What agents call the tool that runs a command and the one that writes a file.
COMMANDS = ("run_shell_command", "bash", "Bash", "exec_command", "shell_command")
WRITERS = ("write_file", "write", "Write")


def reply_to(prompts: list[tuple[str, str]], tools: dict[str, dict[str, Any]]) -> Reply:
    """Answer the last order of the user.

    ``prompts``: (role, text) in order, role ``tool`` for a result; ``tools``: name → the JSON
    schema of its parameters.
    """
    done = 0
    for role, text in reversed(prompts):
        if role == "tool":
            done += 1
        elif role == "user" and (orders := ORDER.findall(text)):
            return _obey(*orders[-1], done=done, tools=tools)
    return Reply(["ok"])


def _obey(verb: str, rest: str, *, done: int, tools: dict[str, dict[str, Any]]) -> Reply:
    if verb == "fail":
        return Reply([], status=400)
    if verb == "say":
        return Reply(re.findall(r"\S+\s*", rest))
    if verb == "count":
        return Reply([f"{number} " for number in range(int(rest))], pause=WORD_SECONDS)
    if done:
        return Reply(["All ", "done."])
    if verb == "run":
        return _call(
            COMMANDS,
            {
                "command": rest,
                "cmd": rest,
                "description": "As told",
                "is_background": False,
                "timeout": 10_000,
                "yield_time_ms": 10_000,
            },
            tools,
        )
    path, _, text = rest.partition(" ")
    return _call(
        WRITERS, {"file_path": path, "filePath": path, "path": path, "content": text}, tools
    )


def _call(
    names: tuple[str, ...], arguments: dict[str, Any], tools: dict[str, dict[str, Any]]
) -> Reply:
    """Call the first of these tools that there is, with the parameters that it knows."""
    name = next((name for name in names if name in tools), None)
    if name is None:
        return Reply([f"There is none of {names} in {sorted(tools)}."])
    known = tools[name].get("properties", {})
    optional = ("timeout",)  # given only where the tool demands it
    wanted = {
        key: value
        for key, value in arguments.items()
        if key in known and (key not in optional or key in tools[name].get("required", ()))
    }
    return Reply(["I ", "will. "], name, wanted)


class Model:
    """The server; ``asked`` are the paths of all requests, ``url`` its address."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        model = self

        class Handler(_Handler):
            asked = model.asked

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[str]

    def log_message(self, format: str, *args: Any) -> None:
        """The tests' output is theirs."""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self._json(404, {})

    def do_POST(self) -> None:
        self.asked.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ways: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
            ("/chat/completions", self._openai),
            ("/responses", self._responses),
            ("/v1/messages", self._anthropic),
            ("/count_tokens", lambda _: self._json(200, {"input_tokens": USAGE[0]})),
            (":streamGenerateContent", self._gemini),
            (":generateContent", self._gemini_whole),
            (":countTokens", lambda _: self._json(200, {"totalTokens": USAGE[0]})),
        ]
        way = next(
            (way for ending, way in ways if self.path.partition("?")[0].endswith(ending)), None
        )
        if way is None:
            self._json(404, {})
        else:
            way(body)

    # -- OpenAI ------------------------------------------------------------------------------------

    def _openai(self, body: dict[str, Any]) -> None:
        tools = {
            tool["function"]["name"]: tool["function"].get("parameters", {})
            for tool in body.get("tools") or []
        }
        reply = reply_to(
            [(message["role"], _plain(message.get("content"))) for message in body["messages"]],
            tools,
        )
        if reply.status != 200:
            self._json(
                reply.status,
                {
                    "error": {
                        "message": "the model was told to fail",
                        "type": "invalid_request_error",
                    }
                },
            )
        elif body.get("stream"):
            self._stream(self._openai_events(reply), end=b"data: [DONE]\n\n")
        else:
            message = {"role": "assistant", "content": "".join(reply.words)}
            self._json(200, _completion("chat.completion", {"message": message}, "stop"))

    def _openai_events(self, reply: Reply) -> Iterator[dict[str, Any]]:
        def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return _completion("chat.completion.chunk", {"delta": delta}, finish)

        yield event({"role": "assistant", "content": ""})
        for word in reply.words:
            yield event({"content": word})
            time.sleep(reply.pause)
        if reply.tool:
            call = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
            yield event(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": f"call_{time.monotonic_ns()}",
                            "type": "function",
                            "function": call,
                        }
                    ]
                }
            )
        yield event({}, "tool_calls" if reply.tool else "stop")

    # -- OpenAI's newer interface ------------------------------------------------------------------

    def _responses(self, body: dict[str, Any]) -> None:
        tools = {
            tool["name"]: tool.get("parameters", {})
            for tool in body.get("tools") or []
            if tool.get("type") == "function"
        }
        items = body["input"]
        prompts = [
            ("tool", "")
            if item.get("type") == "function_call_output"
            else (item.get("role", ""), _plain(item.get("content")))
            for item in items
        ]
        reply = reply_to(prompts, tools)
        if reply.status != 200:
            self._json(
                reply.status,
                {
                    "error": {
                        "message": "the model was told to fail",
                        "type": "invalid_request_error",
                    }
                },
            )
        else:
            self._stream(self._response_events(reply))

    def _response_events(self, reply: Reply) -> Iterator[dict[str, Any]]:
        words = {
            "type": "message",
            "role": "assistant",
            "id": "m1",
            "content": [{"type": "output_text", "text": "".join(reply.words)}],
        }
        yield {"type": "response.created", "response": {"id": "r1"}}
        yield {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": words | {"content": []},
        }
        for word in reply.words:
            yield {
                "type": "response.output_text.delta",
                "item_id": "m1",
                "output_index": 0,
                "content_index": 0,
                "delta": word,
            }
            time.sleep(reply.pause)
        yield {"type": "response.output_item.done", "output_index": 0, "item": words}
        if reply.tool:
            call = {
                "type": "function_call",
                "id": "f1",
                "call_id": f"call_{time.monotonic_ns()}",
                "name": reply.tool,
                "arguments": json.dumps(reply.arguments),
            }
            yield {"type": "response.output_item.done", "output_index": 1, "item": call}
        usage = {"input_tokens": USAGE[0], "output_tokens": USAGE[1], "total_tokens": sum(USAGE)}
        yield {"type": "response.completed", "response": {"id": "r1", "usage": usage}}

    # -- Anthropic ---------------------------------------------------------------------------------

    def _anthropic(self, body: dict[str, Any]) -> None:
        tools = {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools") or []}
        prompts = []
        for message in body["messages"]:
            parts = (
                message["content"]
                if isinstance(message["content"], list)
                else [{"type": "text", "text": message["content"]}]
            )
            prompts += [
                ("tool" if part["type"] == "tool_result" else message["role"], part.get("text", ""))
                for part in parts
            ]
        reply = reply_to(prompts, tools) if tools else Reply(["A title"])
        if reply.status != 200:
            self._json(
                reply.status,
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": "the model was told to fail",
                    },
                },
            )
        elif body.get("stream"):
            self._stream(self._anthropic_events(reply), named=True)
        else:
            self._json(200, _said_at_once(reply))

    def _anthropic_events(self, reply: Reply) -> Iterator[dict[str, Any]]:
        whole = _said_at_once(reply)
        yield {"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}
        yield {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        }
        for word in reply.words:
            yield {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            }
            time.sleep(reply.pause)
        yield {"type": "content_block_stop", "index": 0}
        if reply.tool:
            call = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
            yield {
                "type": "content_block_start",
                "index": 1,
                "content_block": whole["content"][1] | {"input": {}},
            }
            yield {"type": "content_block_delta", "index": 1, "delta": call}
            yield {"type": "content_block_stop", "index": 1}
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": whole["stop_reason"]},
            "usage": {"output_tokens": USAGE[1]},
        }
        yield {"type": "message_stop"}

    # -- Gemini ------------------------------------------------------------------------------------

    def _gemini_reply(self, body: dict[str, Any]) -> Reply:
        tools = {}
        for group in body.get("tools") or []:
            for tool in group.get("functionDeclarations", []):
                tools[tool["name"]] = (
                    tool.get("parametersJsonSchema") or tool.get("parameters") or {}
                )
        parts = [
            (content.get("role", "user"), part)
            for content in body["contents"]
            for part in content.get("parts", [])
        ]
        prompts = [
            ("tool" if "functionResponse" in part else role, part.get("text", ""))
            for role, part in parts
        ]
        return reply_to(prompts, tools)

    def _gemini(self, body: dict[str, Any]) -> None:
        reply = self._gemini_reply(body)
        if reply.status != 200:
            self._json(
                reply.status,
                {
                    "error": {
                        "code": reply.status,
                        "message": "the model was told to fail",
                        "status": "INVALID_ARGUMENT",
                    }
                },
            )
        else:
            self._stream(self._gemini_events(reply))

    def _gemini_events(self, reply: Reply) -> Iterator[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"text": word} for word in reply.words]
        if reply.tool:
            parts.append({"functionCall": {"name": reply.tool, "args": reply.arguments}})
        for number, part in enumerate(parts, 1):
            yield _candidate([part], last=number == len(parts))
            time.sleep(reply.pause)

    def _gemini_whole(self, body: dict[str, Any]) -> None:
        """What the agent asks on the side, such as which model to take: any answer that is JSON
        will do.
        """
        wants = body.get("generationConfig", {})
        if wants.get("responseMimeType") == "application/json":
            names = (wants.get("responseJsonSchema") or {}).get("properties", {})
            self._json(
                200,
                _candidate(
                    [
                        {
                            "text": json.dumps(
                                {
                                    name: 1 if kind.get("type") in ("number", "integer") else "x"
                                    for name, kind in names.items()
                                }
                            )
                        }
                    ]
                ),
            )
        else:
            self._json(200, _candidate([{"text": word} for word in self._gemini_reply(body).words]))

    # -- answers -----------------------------------------------------------------------------------

    def _json(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(
        self, events: Iterator[dict[str, Any]], end: bytes = b"", *, named: bool = False
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for event in events:
                name = f"event: {event['type']}\n".encode() if named else b""
                self.wfile.write(name + b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.flush()
            self.wfile.write(end)
        except (BrokenPipeError, ConnectionResetError):
            return  # the agent was interrupted


def _completion(kind: str, choice: dict[str, Any], finish: str | None) -> dict[str, Any]:
    usage = {"prompt_tokens": USAGE[0], "completion_tokens": USAGE[1], "total_tokens": sum(USAGE)}
    return {
        "id": "1",
        "object": kind,
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "finish_reason": finish, **choice}],
        "usage": usage,
    }


def _said_at_once(reply: Reply) -> dict[str, Any]:
    """A reply as a whole message of Anthropic's interface."""
    content: list[dict[str, Any]] = [{"type": "text", "text": "".join(reply.words)}]
    if reply.tool:
        content.append(
            {
                "type": "tool_use",
                "id": f"toolu_{time.monotonic_ns()}",
                "name": reply.tool,
                "input": reply.arguments,
            }
        )
    return {
        "id": f"msg_{time.monotonic_ns()}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": "tool_use" if reply.tool else "end_turn",
        "usage": {"input_tokens": USAGE[0], "output_tokens": USAGE[1]},
    }


def _candidate(parts: list[dict[str, Any]], *, last: bool = True) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0} | (
        {"finishReason": "STOP"} if last else {}
    )
    usage = {
        "promptTokenCount": USAGE[0],
        "candidatesTokenCount": USAGE[1],
        "totalTokenCount": sum(USAGE),
    }
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
