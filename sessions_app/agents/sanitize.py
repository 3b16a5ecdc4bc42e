"""Make agents' output fit to be stored and sent: bounded and valid. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from bridge_project.kernel import limits, pictures
from bridge_project.kernel.text import valid
from sessions_app.agents.events import Chunk, Event
from sessions_app.approvals.tool_call import Call, usable_id
from sessions_app.approvals.tool_result import Failure

_CUT = re.compile(r"\n\[cut: [0-9]+ bytes in all\]\Z")
SHOWN_PARAMS, SHOWN_CHARS = 20, 10_000  # of a call that is too large to be sent


def coalesce(events: Iterable[Event]) -> list[Event]:
    """Join adjacent chunks of one kind, but for those with pictures; drop empty ones."""
    found: list[Event] = []
    kept = (event for event in events if not isinstance(event, Chunk) or event.content)
    for is_tool_use, group in groupby(kept, _joined_as):
        if is_tool_use is None:
            found.extend(group)
        else:
            text = "".join(event.content for event in group if isinstance(event, Chunk))
            found.append(Chunk(text, is_tool_use))
    return found


def _joined_as(event: Event) -> bool | None:
    return event.is_tool_use if isinstance(event, Chunk) and not event.pictures else None


def truncate(text: str) -> str:
    """Name pictures, and cut to TOOL_OUTPUT_BYTES with ``[cut: N bytes in all]``.

    The output of a command that was cut when it was read ends so already, and N stays.
    """
    found = _CUT.search(text)
    mark = found[0] if found else ""
    data = valid(pictures.name_in_text(text.removesuffix(mark))).encode()
    if len(data) > limits.TOOL_OUTPUT_BYTES:
        mark = mark or f"\n[cut: {len(data)} bytes in all]"
        data = data[: limits.TOOL_OUTPUT_BYTES]
    return data.decode("utf-8", "ignore") + mark


def storable_reason(text: str) -> str:
    """Make the reason of a failure fit for the database."""
    return valid(text).replace("\x00", "")[: limits.AGENT_REASON_MAX_CHARS]


def is_too_large(params: Mapping[str, Any]) -> bool:
    """Return whether parameters exceed AGENT_CALL_BYTES, the most a device is sent."""
    return len(json.dumps(params, default=str)) > limits.AGENT_CALL_BYTES


def storable_call(call: Call) -> Call:
    """Make a call fit to be stored and sent, whatever its agent put into it."""
    params = call.params
    if is_too_large(params):
        texts = {name: value for name, value in params.items() if isinstance(value, str)}
        cut = {name[:SHOWN_CHARS]: value[:SHOWN_CHARS] for name, value in texts.items()}
        params = dict(list(cut.items())[:SHOWN_PARAMS]) | {"cut": "These are not all parameters."}
    return replace(
        call,
        id=usable_id(call.id),
        tool=valid(call.tool),
        params=plain(params),
        description=valid(call.description),
        reasoning=call.reasoning and valid(call.reasoning),
    )


def storable_failure(failure: Failure) -> Failure:
    """Truncate what a failure says."""
    out, err = failure.details.stdout, failure.details.stderr
    texts = {"stdout": out and truncate(out), "stderr": err and truncate(err)}
    details = failure.details.model_copy(update=texts)
    return replace(failure, message=truncate(failure.message), details=details)


def plain(value: Any) -> Any:
    """Make a value plain JSON: no NaN, lone surrogates or foreign types."""
    text = valid(json.dumps(value, ensure_ascii=False, default=str))
    return json.loads(text, parse_constant=lambda _: None)
