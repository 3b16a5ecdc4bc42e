"""Describe a tool's result for a person, whatever agent reports it. Pure.

claude-code sends the same structured results by its hooks (``tool_response``) and by its SDK
(``tool_use_result``).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from bridge_project.kernel import pictures
from bridge_project.protocol import jsontext
from bridge_project.protocol.agent_text import for_person
from bridge_project.protocol.resources import ToolErrorDetails, ToolOutcome
from bridge_project.protocol.types import ToolErrorCode

TOOL_FAILED = "The tool failed."
INTERRUPTED = "The call was interrupted."
IN_BACKGROUND = "It works in the background; the result will follow."
NOTHING_FOUND = "Nothing was found."
_EXIT = re.compile(r"^(?:Error: )?Exit code (\d{1,9})(?!\d)\n?")
_TIMED_OUT = re.compile(r"\btimed out after \d")
_TEXTS = ("error", "content", "output", "result", "listing", "message")


@dataclass(frozen=True, slots=True)
class Failure:
    """Hold how a tool failed; ``retries``: how often the spec lets it be tried again."""

    message: str
    code: ToolErrorCode = "TOOL_EXECUTION_FAILED"
    details: ToolErrorDetails = field(default_factory=ToolErrorDetails)
    retries: int = 0

    def outcome(self) -> ToolOutcome:
        """Build the result of a call that failed with this failure."""
        duration_ms = self.details.execution_time_ms
        return ToolOutcome(
            success=False,
            content=self.details.stderr or self.details.stdout or self.message,
            error=self.message,
            duration_ms=None if duration_ms is None else round(duration_ms),
        )


def failure_of(text: str, duration_ms: float | None = None) -> Failure:
    """Parse a failure that an agent reports as one text.

    That of a command has its exit code, and both of its outputs as one.
    """
    text = for_person(text)
    details = ToolErrorDetails(execution_time_ms=duration_ms)
    if code := _EXIT.match(text):
        details.exit_code, details.stderr = int(code[1]), text[code.end() :]
    late = _TIMED_OUT.search(text)
    return Failure(
        text or TOOL_FAILED, "TOOL_TIMEOUT" if late else "TOOL_EXECUTION_FAILED", details
    )


def readable(result: Any, text: str = "") -> str:
    """Return a result as text; ``text``: what the agent's model was told, if known."""
    found = _structured(result) if isinstance(result, Mapping) else None
    if found is not None:
        return found
    if text or isinstance(result, str):
        return for_person(text or result)
    if isinstance(result, Mapping):
        for name in _TEXTS:
            if isinstance(said := result.get(name), str) and said:
                return for_person(said)
        if not any(isinstance(value, (Mapping, list)) for value in result.values()):
            return "\n".join(f"{name}: {value}" for name, value in result.items())
    if isinstance(result, list) and result and all(isinstance(one, Mapping) for one in result):
        return blocks_text(result)
    return "" if result is None else jsontext.dumps_unicode(result)


def blocks_text(blocks: Sequence[Any]) -> str:
    """Return blocks of content as text; name the kind of those that are none."""
    parts = [block if isinstance(block, Mapping) else {} for block in blocks]
    texts = [(part.get("text"), _kind(part)) for part in parts]
    return for_person("\n".join(text if isinstance(text, str) else kind for text, kind in texts))


def _kind(block: Mapping[str, Any]) -> str:
    """Return a block's kind in brackets; a picture's with its size."""
    match pictures.named_block(block) or block:
        case {"type": "image", "media_type": str(kind), "size": int(size)}:
            return pictures.label(kind, size)
    return f"[{block.get('type', 'unknown')}]"


def _structured(result: Mapping[str, Any]) -> str | None:
    """Return a result of one of claude-code's own tools as text; None for any other."""
    match result:
        case {"isAsync": True} | {"backgroundTaskId": str()}:
            return IN_BACKGROUND
        case {"stdout": str(out)}:
            err = result.get("stderr")
            printed = (out, err if isinstance(err, str) else "")
            return "\n".join(part.strip("\n") for part in printed if part.strip("\n"))
        case {"agentId": str(), "content": list(blocks)}:
            texts = (block.get("text") for block in blocks if isinstance(block, dict))
            said = [text for text in texts if isinstance(text, str)]
            return "\n".join(text for text in said if not text.startswith("<tools-used"))
        case {"questions": list(), "answers": dict(answers)}:
            lines = (
                f"{question} {', '.join(map(str, one)) if isinstance(one, list) else one}"
                for question, one in answers.items()
            )
            return "\n".join(lines) or "Nobody answered."
        case {"newTodos": list(todos)}:
            marks = {"completed": "x", "in_progress": ">"}
            items = [todo for todo in todos if isinstance(todo, dict)]
            return "\n".join(
                f"[{marks.get(str(one.get('status')), ' ')}] {one.get('content')}" for one in items
            )
        case {"task": {"id": str(id_), "subject": str(subject)}}:
            return f"Task #{id_} created successfully: {subject}"
        case {"taskId": str(id_), "updatedFields": list(names)}:
            return f"Updated task #{id_} {', '.join(map(str, names))}"
        case {"commandName": str(skill), "success": True}:
            return f"Uses the skill {skill}."
        case {"plan": _, "isAgent": _}:
            return "The plan was approved."
        case {"message": str(said)} if said.startswith("Entered plan mode."):
            return "Entered plan mode."  # the rest tells the model what to do there
    return _of_files(result)


def _of_files(result: Mapping[str, Any]) -> str | None:
    """Return the result of reading, writing or finding files as text."""
    match result:
        case {"file": {"content": str(content), **file}}:
            first = file.get("startLine")
            text = StringIO(content.replace("\r\n", "\n"))
            lines = enumerate(text, first if isinstance(first, int) else 1)
            return "".join(f"{number}\t{line}" for number, line in lines).removesuffix("\n")
        case {"file": {"cells": list(cells)}}:
            return "\n\n".join(str(cell.get("source")) for cell in cells if isinstance(cell, dict))
        case {"file": dict(), "type": str()} | {"type": "image", "media_type": str()}:
            return _kind(result)
        case {"filePath": str(path), "structuredPatch": list()}:
            return f"{'Wrote' if 'content' in result else 'Edited'} {path}"
        case {"notebook_path": str(path), "new_source": _}:
            return f"Edited {path}"
        case {"filenames": list(names)}:
            inside = result.get("content")  # the lines themselves, where they were asked for
            found = inside if isinstance(inside, str) else "\n".join(map(str, names))
            return found or NOTHING_FOUND
        case {"matches": list(names), "query": _}:
            return ", ".join(map(str, names)) or NOTHING_FOUND
        case {"results": list(results), "query": _}:
            return "\n".join(_search_result(one) for one in results) or NOTHING_FOUND
    return None


def _search_result(found: Any) -> str:
    if not isinstance(found, dict):
        return str(found)
    links = found.get("content")
    known = [link for link in links if isinstance(link, dict)] if isinstance(links, list) else []
    return "\n".join(f"{link.get('title')}  {link.get('url')}" for link in known)
