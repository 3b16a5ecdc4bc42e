"""Read the content of ACP messages, which each agent shapes its own way. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from acp import schema

from bridge_project.protocol.resources import ToolErrorDetails

NAME_MAX_CHARS = 64  # of what is taken for the name of a tool


def text_of(block: Any) -> str:
    """Return a block of content as text; name the kind of any other."""
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return block.uri
    if isinstance(block, schema.EmbeddedResourceContentBlock):
        return getattr(block.resource, "text", "") or f"[{block.resource.uri}]"
    return f"[{getattr(block, 'type', 'content')}]"


def name_of(meta: Mapping[str, Any] | None) -> str:
    """Return the tool's own name, where an agent adds it to the protocol."""
    for holder in (meta, (meta or {}).get("claudeCode")):
        name = holder.get("toolName") if isinstance(holder, dict) else None
        if isinstance(name, str) and 0 < len(name) <= NAME_MAX_CHARS and name.isprintable():
            return name
    return ""


def readable(output: Any) -> str:
    """Return a tool's raw output as text."""
    if output is None or isinstance(output, str):
        return output or ""
    if isinstance(output, dict):
        for name in ("output", "content", "stdout", "error", "message"):
            if output.get(name) and isinstance(output[name], str):
                return str(output[name])
    return json.dumps(output, ensure_ascii=False, default=str)


def details_of(output: Any) -> ToolErrorDetails:
    """Return how a tool failed, from its raw output."""
    said = output if isinstance(output, dict) else {}
    codes = [said[name] for name in ("exit_code", "exitCode") if isinstance(said.get(name), int)]
    texts = {name: said[name] for name in ("stdout", "stderr") if isinstance(said.get(name), str)}
    return ToolErrorDetails(exit_code=codes[0] if codes else None, **texts)


def usage_of(answer: schema.PromptResponse, cost: dict[str, Any] | None) -> dict[str, Any]:
    """Return the tokens of a turn, where the agent reports them, and the session's cost so far."""
    found: dict[str, Any] = {}
    if answer.usage:
        found = answer.usage.model_dump(exclude_none=True, exclude={"field_meta"})
    quota = (answer.field_meta or {}).get("quota")
    tokens = quota.get("token_count") if isinstance(quota, dict) else None
    if not found and isinstance(tokens, dict):  # as gemini does it, beside the protocol
        found = {name: count for name, count in tokens.items() if isinstance(count, int)}
    return found | ({"cost": cost} if cost else {})


def added(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Add the usage of two prompts; what is no number is the later one's."""
    return {
        name: first[name] + second[name]
        if isinstance(first.get(name), int) and isinstance(second.get(name), int)
        else second.get(name, first.get(name))
        for name in {**first, **second}
    }
