"""What an agent says as the log can hold it and a phone can take it: bounded, whole, and no more
pieces than needed. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bridge_project.kernel import limits
from sessions_app.agents import driver
from sessions_app.approvals.tool_call import Call, usable_id


def coalesce(events: Iterable[driver.Event]) -> list[driver.Event]:
    """Adjacent chunks of a kind as one; empty ones are dropped."""
    found: list[driver.Event] = []
    pieces: list[str] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, driver.Chunk):
            if not event.content:
                continue
            if isinstance(last, driver.Chunk) and last.is_tool_use == event.is_tool_use:
                pieces.append(event.content)
                continue
        _join(found, pieces)
        found.append(event)
    _join(found, pieces)
    return found


def _join(found: list[driver.Event], pieces: list[str]) -> None:
    if pieces:
        last = found[-1]
        assert isinstance(last, driver.Chunk)
        found[-1] = driver.Chunk("".join([last.content, *pieces]), last.is_tool_use)
        pieces.clear()


def whole(text: str) -> str:
    """Text that can be sent as UTF-8: what an agent cut in the middle of a character becomes a
    question mark.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean(text: str) -> str:
    """Text that can be sent, and that a database can hold: no half of a character, no NUL."""
    return whole(text).replace("\x00", "\ufffd")


def bounded(text: str) -> str:
    """Of more than the limit, the beginning and a sign."""
    text = whole(text)
    data = text.encode()
    if len(data) <= limits.TOOL_OUTPUT_BYTES:
        return text
    return f"{data[: limits.TOOL_OUTPUT_BYTES].decode('utf-8', 'ignore')}\n[cut: {len(data)} bytes in all]"


def reason_of(text: str) -> str:
    """Why something failed, as a database can hold it."""
    return whole(text).replace("\x00", "")[: limits.AGENT_REASON_MAX_CHARS]


def storable(call: Call) -> Call:
    """The call as it can be kept and sent, whatever its agent put into it."""
    reasoning = call.reasoning and whole(call.reasoning)
    return replace(
        call,
        id=usable_id(call.id),
        tool=whole(call.tool),
        params=plain(call.params),
        description=whole(call.description),
        reasoning=reasoning,
    )


def plain(value: Any) -> Any:
    """A value as JSON can say it and a database can hold it: without NaN, lone surrogates, and what
    is no JSON at all.
    """
    return json.loads(
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"),
        parse_constant=lambda _: None,
    )
