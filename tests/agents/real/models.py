"""A language model that does what the prompt's last ``do:`` says, on loopback.

It speaks OpenAI's two interfaces, Anthropic's and Gemini's, since each agent has one of them.

``do: say TEXT``, ``do: run COMMAND``, ``do: write PATH TEXT``, ``do: edit PATH OLD NEW`` (the tools
that it takes, one of which reads before an edit, then "All done."; a space in the path is %20),
``do: count N`` (a word each 50 ms), ``do: hold
TEXT`` (the first word, and the others when ``go_on`` is set), ``do: fail``.
"""

import json
import re
import shlex
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Json = dict[str, Any]

ORDER = re.compile(r"do: (say|run|write|edit|count|hold|fail)\b ?([^\n\"]*)")
WORD_SECONDS = 0.05
HOLD_SECONDS = 120.0  # at most
IN, OUT = 11, 7  # tokens
FAILURE = {"message": "the model was told to fail", "type": "invalid_request_error"}


@dataclass(slots=True)
class Reply:
    """What the model says: words, and then perhaps one call of a tool."""

    words: list[str]
    tool: str = ""
    arguments: Json = field(default_factory=dict)
    pause: float = 0.0
    held: bool = False
    fails: bool = False

    @property
    def text(self) -> str:
        return "".join(self.words)

    def spoken(self, go_on: threading.Event) -> Iterator[str]:
        """The words, each at its time."""
        for word in self.words:
            yield word
            time.sleep(self.pause)
            if self.held:
                go_on.wait(HOLD_SECONDS)


# What agents call the tool that runs a command and the one that writes a file.
COMMANDS = ("run_shell_command", "bash", "Bash", "exec_command", "shell_command", "Execute")
WRITERS = ("write_file", "write", "Write", "create", "Create")
READERS = ("read_file", "read", "Read", "view", "ReadFile")
PATHS = ("file_path", "filePath", "path")
PATCHER = "apply_patch"  # codex's, with one text
EDITORS = ("edit", "Edit", "replace", "edit_file", "search_replace", "StrReplaceFile")


def reply_to(prompts: list[tuple[str, str]], tools: dict[str, Json]) -> Reply:
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


def _obey(verb: str, rest: str, *, done: int, tools: dict[str, Json]) -> Reply:
    if verb == "fail":
        return Reply([], fails=True)
    if verb in ("say", "hold"):
        return Reply(re.findall(r"\S+\s*", rest), held=verb == "hold")
    if verb == "count":
        return Reply([f"{number} " for number in range(int(rest))], pause=WORD_SECONDS)
    path, _, text = rest.partition(" ")
    path = unquote(path)
    if verb == "edit" and set(EDITORS) & tools.keys() and set(READERS) & tools.keys():
        if not done:  # many refuse to edit what was not read
            return _call(READERS, dict.fromkeys(PATHS, path), tools)
        done -= 1
    if done:
        return Reply(["All ", "done."])
    if verb == "run":
        return _call(COMMANDS, _running(rest), tools)
    if verb == "edit" and set(EDITORS) & tools.keys():
        return _call(EDITORS, _editing(path, *text.split()[:2]), tools)
    if verb == "edit" and PATCHER in tools:
        old, new = text.split()[:2]
        whole = Path(path).read_text()
        lines = [f"-{whole.rstrip()}", f"+{whole.replace(old, new).rstrip()}"]
        patch = ["*** Begin Patch", f"*** Update File: {path}", "@@", *lines, "*** End Patch", ""]
        return Reply(["I ", "will. "], PATCHER, {"input": "\n".join(patch)})
    if not set(WRITERS) & tools.keys():  # codex writes by commands
        line = f"printf %s {shlex.quote(text)} >{shlex.quote(path)}"
        return _call(COMMANDS, _running(line), tools)
    write = dict.fromkeys(PATHS, path) | {"content": text, "file_text": text}
    return _call(WRITERS, write, tools)


def _editing(path: str, old: str, new: str) -> Json:
    """What agents call the parameters of an edit."""
    names = {"old_string": old, "oldString": old, "old_str": old, "new_string": new}
    more = {
        "newString": new,
        "new_str": new,
        "instruction": "As told",
        "edit": {"old": old, "new": new},
    }
    return dict.fromkeys(PATHS, path) | names | more


def _running(command: str) -> Json:
    """What agents call the parameters of a command."""
    more = {"is_background": False, "yield_time_ms": 10_000, "timeout": 10_000}
    return {"command": command, "cmd": command, "description": "As told"} | more


def _call(names: tuple[str, ...], arguments: Json, tools: dict[str, Json]) -> Reply:
    """Call the first of these tools that there is, with the parameters that it knows."""
    name = next((name for name in names if name in tools), None)
    if name is None:
        return Reply([f"There is none of {names} in {sorted(tools)}."])
    known, required = tools[name].get("properties", {}), tools[name].get("required", ())
    wanted = {
        key: value
        for key, value in arguments.items()
        if key in known and (key != "timeout" or key in required)  # given only where demanded
    }
    for key in set(required) - wanted.keys():  # droid's want a risk and a summary
        wanted[key] = known.get(key, {}).get("enum", ["x"])[0]
    return Reply(["I ", "will. "], name, wanted)


class Model:
    """The server at ``url``; ``heard`` is all it was asked, ``go_on`` lets what it holds go on."""

    def __init__(self, handler: "type[Handler] | None" = None) -> None:
        self.heard: list[str] = []
        self.go_on = threading.Event()
        bound = type("Bound", (handler or Handler,), {"model": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, format: str, *args: Any) -> None:
        """The tests' output is theirs."""

    def do_HEAD(self) -> None:
        self.json({})

    def do_GET(self) -> None:
        self.json({}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        self.model.heard.append(json.dumps(body))
        ways: dict[str, Callable[[Json], None]] = {
            "/chat/completions": self._openai,
            "/responses": self._responses,
            "/v1/messages": self.anthropic,
            "/count_tokens": lambda _: self.json({"input_tokens": IN}),
            ":streamGenerateContent": self._gemini,
            ":generateContent": self._gemini_whole,
            ":countTokens": lambda _: self.json({"totalTokens": IN}),
        }
        for ending, way in ways.items():
            if self.path.partition("?")[0].endswith(ending):
                return way(body)
        return self.json({}, 404)

    # -- OpenAI ------------------------------------------------------------------------------------

    def _openai(self, body: Json) -> None:
        functions = [tool["function"] for tool in body.get("tools") or []]
        prompts = [(one["role"], _plain(one.get("content"))) for one in body["messages"]]
        tools = {one["name"]: one.get("parameters", {}) for one in functions}
        reply = reply_to(prompts, tools)
        if reply.fails:
            self.json({"error": FAILURE}, 400)
        elif body.get("stream"):
            self.stream(self._openai_events(reply), end=b"data: [DONE]\n\n")
        else:
            message = {"role": "assistant", "content": reply.text}
            self.json(_completion("chat.completion", {"message": message}, "stop"))

    def _openai_events(self, reply: Reply) -> Iterator[Json]:
        def event(delta: Json, finish: str | None = None) -> Json:
            return _completion("chat.completion.chunk", {"delta": delta}, finish)

        yield event({"role": "assistant", "content": ""})
        for word in reply.spoken(self.model.go_on):
            yield event({"content": word})
        if reply.tool:
            function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
            call = {"index": 0, "id": _id("call"), "type": "function", "function": function}
            yield event({"tool_calls": [call]})
        yield event({}, "tool_calls" if reply.tool else "stop")

    # -- OpenAI's newer interface ------------------------------------------------------------------

    def _responses(self, body: Json) -> None:
        functions = [tool for tool in body.get("tools") or [] if "name" in tool]
        tools = {one["name"]: one.get("parameters", {}) for one in functions}
        prompts = [
            ("tool", "")
            if str(item.get("type")).endswith("_call_output")
            else (item.get("role", ""), _plain(item.get("content")))
            for item in body["input"]
        ]
        reply = reply_to(prompts, tools)
        if reply.fails:
            self.json({"error": FAILURE}, 400)
        else:
            self.stream(self._response_events(reply))

    def _response_events(self, reply: Reply) -> Iterator[Json]:
        said = {"type": "message", "role": "assistant", "id": "m1"}
        whole = said | {"content": [{"type": "output_text", "text": reply.text}]}
        item = "response.output_item"
        yield {"type": "response.created", "response": {"id": "r1"}}
        yield {"type": f"{item}.added", "output_index": 0, "item": said | {"content": []}}
        for word in reply.spoken(self.model.go_on):
            delta = {"item_id": "m1", "output_index": 0, "content_index": 0, "delta": word}
            yield {"type": "response.output_text.delta"} | delta
        yield {"type": f"{item}.done", "output_index": 0, "item": whole}
        if reply.tool:
            call = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
            call |= {"type": "function_call", "id": "f1", "call_id": _id("call")}
            if reply.tool == PATCHER:
                call |= {"type": "custom_tool_call", "input": reply.arguments["input"]}
            yield {"type": f"{item}.done", "output_index": 1, "item": call}
        usage = {"input_tokens": IN, "output_tokens": OUT, "total_tokens": IN + OUT}
        yield {"type": "response.completed", "response": {"id": "r1", "usage": usage}}

    # -- Anthropic ---------------------------------------------------------------------------------

    def anthropic(self, body: Json) -> None:
        tools = {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools") or []}
        reply = reply_to(anthropic_prompts(body), tools) if tools else Reply(["A title"])
        if reply.fails:
            self.json({"type": "error", "error": FAILURE}, 400)
        elif body.get("stream"):
            spoken = reply.spoken(self.model.go_on)
            words = ({"type": "text_delta", "text": word} for word in spoken)
            call = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
            self.stream(anthropic_events(_anthropic_message(reply), [words, [call]]), named=True)
        else:
            self.json(_anthropic_message(reply))

    # -- Gemini ------------------------------------------------------------------------------------

    def _gemini_reply(self, body: Json) -> Reply:
        tools = {
            tool["name"]: tool.get("parametersJsonSchema") or tool.get("parameters") or {}
            for group in body.get("tools") or []
            for tool in group.get("functionDeclarations", [])
        }
        prompts = [
            ("tool" if "functionResponse" in part else said.get("role", "user"), _plain([part]))
            for said in body["contents"]
            for part in said.get("parts", [])
        ]
        return reply_to(prompts, tools)

    def _gemini(self, body: Json) -> None:
        reply = self._gemini_reply(body)
        if reply.fails:
            error = {"code": 400, "message": FAILURE["message"], "status": "INVALID_ARGUMENT"}
            self.json({"error": error}, 400)
        else:
            self.stream(self._gemini_events(reply))

    def _gemini_events(self, reply: Reply) -> Iterator[Json]:
        for number, word in enumerate(reply.spoken(self.model.go_on), 1):
            last = number == len(reply.words) and not reply.tool
            yield _candidate([{"text": word}], last=last)
        if reply.tool:
            call = {"name": reply.tool, "args": reply.arguments}
            yield _candidate([{"functionCall": call}])

    def _gemini_whole(self, body: Json) -> None:
        """Answer what the agent asks on the side, such as which model to take: any JSON will do."""
        wants = body.get("generationConfig", {})
        if wants.get("responseMimeType") != "application/json":
            self.json(_candidate([{"text": word} for word in self._gemini_reply(body).words]))
            return
        names = (wants.get("responseJsonSchema") or {}).get("properties", {})
        numbers = ("number", "integer")
        answer = {name: 1 if kind.get("type") in numbers else "x" for name, kind in names.items()}
        self.json(_candidate([{"text": json.dumps(answer)}]))

    # -- answers -----------------------------------------------------------------------------------

    def json(self, body: Json, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def stream(self, events: Iterator[Json], end: bytes = b"", *, named: bool = False) -> None:
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


def _id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def _completion(kind: str, choice: Json, finish: str | None) -> Json:
    choices = [{"index": 0, "finish_reason": finish, **choice}]
    usage = {"prompt_tokens": IN, "completion_tokens": OUT, "total_tokens": IN + OUT}
    about = {"id": "1", "object": kind, "created": 1, "model": "scripted"}
    return about | {"choices": choices, "usage": usage}


def _anthropic_message(reply: Reply) -> Json:
    content: list[Json] = [{"type": "text", "text": reply.text}]
    if reply.tool:
        content.append(tool_use(reply.tool, reply.arguments))
    return anthropic_message(content, {"input_tokens": IN, "output_tokens": OUT})


def anthropic_prompts(body: Json) -> list[tuple[str, str]]:
    """(role, text) of each block in order, role ``tool`` for a result."""
    prompts = []
    for message in body["messages"]:
        parts = message["content"]
        for part in parts if isinstance(parts, list) else [{"type": "text", "text": parts}]:
            role = "tool" if part["type"] == "tool_result" else message["role"]
            prompts.append((role, part.get("text", "")))
    return prompts


def tool_use(name: str, arguments: Json) -> Json:
    return {"type": "tool_use", "id": _id("toolu"), "name": name, "input": arguments}


def anthropic_message(content: list[Json], usage: Json, model: str = "scripted") -> Json:
    stop = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    about = {"id": _id("msg"), "type": "message", "role": "assistant", "model": model}
    return about | {"content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def anthropic_events(message: Json, deltas: Iterable[Iterable[Json]]) -> Iterator[Json]:
    """The message as a stream, each block of its content in these pieces."""
    yield {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
    for index, (block, pieces) in enumerate(zip(message["content"], deltas, strict=False)):
        empty: Json = {"text": ""} if block["type"] == "text" else {"input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block | empty}
        for delta in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _candidate(parts: list[Json], *, last: bool = True) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    usage = {"promptTokenCount": IN, "candidatesTokenCount": OUT, "totalTokenCount": IN + OUT}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
