"""Read the content of ACP messages, which differs from agent to agent. Pure."""

import contextlib
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from acp import schema

from bridge_project.kernel import limits, pictures
from bridge_project.kernel.picture_files import Picture
from bridge_project.kernel.text import clean
from bridge_project.protocol.resources import ToolErrorDetails
from sessions_app.agents.driver import HistoryMessage
from sessions_app.agents.process import shell

TOOL_NAME_MAX_CHARS = 64  # longest text taken for a tool's name
# ACP has kinds where other agents have names of tools; these are the names that the risk rules and
# the phones know.
TOOL_OF_KIND = {
    "read": "Read",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "search": "Search",
    "execute": "Bash",
    "think": "Think",
    "fetch": "WebFetch",
    "switch_mode": "SwitchMode",
}
# calls of these kinds change no file: places that they name beside the parameters are not shown
CHANGES_NOTHING = frozenset({"read", "search", "think", "fetch", "execute", "switch_mode"})
HAS_NO_COMMAND = ("edit", "delete", "move", "other", "")  # its "command" is a word of its own
# the names that agents give the directory of a command
AS_RISKY_AS = {"Search": "Grep", "Think": "TodoWrite"}
_OUTPUTS = ("output", "content", "aggregated_output", "stdout", "error", "message")


# what gemini-cli adds to the prompts that it reports, or replaces in them
_FOR_THE_MODEL = re.compile(
    r"\A\s*(?:<session_context>.*?</session_context>|\[Function Response: .*)", re.DOTALL
)


def text_of(block: Any) -> str:
    """Return a block of content as text; name the kind of any other."""
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return block.uri
    if isinstance(block, schema.EmbeddedResourceContentBlock):
        return getattr(block.resource, "text", "") or f"[{block.resource.uri}]"
    if isinstance(block, schema.ImageContentBlock):
        return pictures.label(block.mime_type, len(block.data) * 3 // 4)
    return f"[{getattr(block, 'type', 'content')}]"


def pictures_of(*blocks: Any) -> list[Picture]:
    """Return the pictures that blocks of content are, or hold as data URLs."""
    taken: list[Picture] = []
    for block in blocks:
        if isinstance(block, schema.ImageContentBlock):
            pictures.named_block({"type": "image", "data": block.data}, taken)
        elif isinstance(block, schema.TextContentBlock):
            pictures.name_in_text(block.text, taken)
    return taken


class HistoryCollector:
    """Collect a resumed agent's old messages; drop the oldest over the limit."""

    def __init__(self) -> None:
        # (whether by the agent, text); with None something else came in between
        self._pieces: deque[tuple[bool | None, str]] = deque()
        self._chars = 0

    def take(self, update: Any) -> None:
        """Add an update's text, the agent's or the person's; call it in update order."""
        if isinstance(update, schema.AgentMessageChunk | schema.UserMessageChunk):
            text = text_of(update.content)
            self._pieces.append((isinstance(update, schema.AgentMessageChunk), text))
            self._chars += len(text)
        elif self._pieces and self._pieces[-1][0] is not None:
            self._pieces.append((None, ""))
        while self._chars > limits.AGENT_HISTORY_CHARS:
            self._chars -= len(self._pieces.popleft()[1])

    def messages(self) -> list[HistoryMessage]:
        """Return the messages so far, with pieces joined; callable in any thread."""
        found = []
        for by_agent, pieces in groupby(tuple(self._pieces), itemgetter(0)):
            text = clean("".join(text for _, text in pieces))
            text = (text if by_agent else _FOR_THE_MODEL.sub("", text)).strip()
            if text:
                found.append(HistoryMessage(text, bool(by_agent)))
        return found


def name_of(meta: Mapping[str, Any] | None) -> str:
    """Return the tool's own name, where an agent adds it to the protocol."""
    for holder in (meta, (meta or {}).get("claudeCode")):
        name = holder.get("toolName") if isinstance(holder, dict) else None
        if isinstance(name, str) and 0 < len(name) <= TOOL_NAME_MAX_CHARS and name.isprintable():
            return name
    return ""


def parameters_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's raw input under the names that people and the risk rules know."""
    params = dict(raw)
    match params.get("command"):
        case [str(program), *arguments] if all(isinstance(one, str) for one in arguments):
            params["command"] = shell.script(program, arguments)
    for name in ("filePath", "filepath"):
        if name in params and "file_path" not in params:
            params = {"file_path": params.pop(name)} | params
    return params


def parameters_in(parts: Sequence[Any]) -> dict[str, Any] | None:
    """Return the parameters that kimi writes as the text of an undecided call."""
    match parts:
        case [schema.ContentToolCallContent(content=schema.TextContentBlock(text=text))]:
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(text)
                return found if isinstance(found, dict) and found else None
    return None


def readable(output: Any) -> str:
    """Return a tool's raw output as text."""
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, dict):
        texts = [output[name] for name in _OUTPUTS if isinstance(output.get(name), str)]
        if texts:
            return str(next(filter(None, texts), ""))
    return json.dumps(output, ensure_ascii=False, default=str)


def details_of(output: Any) -> ToolErrorDetails:
    """Return how a tool failed, from its raw output."""
    data = output if isinstance(output, dict) else {}
    inner = data["metadata"] if isinstance(data.get("metadata"), dict) else {}  # as opencode does
    found = (data.get("exit_code"), data.get("exitCode"), inner.get("exit"))
    codes = [code for code in found if isinstance(code, int)]
    texts = {name: data[name] for name in ("stdout", "stderr") if isinstance(data.get(name), str)}
    return ToolErrorDetails(exit_code=codes[0] if codes else None, **texts)


def tokens_of(answer: schema.PromptResponse) -> dict[str, int]:
    """Return the tokens that a prompt took, as far as the agent says."""
    if (usage := answer.usage) is not None:
        return usage.model_dump(exclude_none=True, exclude={"field_meta"})
    quota = (answer.field_meta or {}).get("quota")
    tokens = quota.get("token_count") if isinstance(quota, dict) else None
    if not isinstance(tokens, dict):  # so gemini does it, beside the protocol
        return {}
    return {name: count for name, count in tokens.items() if isinstance(count, int)}
