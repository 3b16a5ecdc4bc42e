"""Read what codex says of tokens and of the limits of its account (D72). Pure."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bridge_project.kernel.text import printable
from bridge_project.protocol.resources import Usage, UsageLimit
from bridge_project.protocol.types import LimitStatus
from sessions_app.agents.codex.reading import count, part, text
from sessions_app.agents.usage import NAME_CHARS, finite, time_of

_NEAR_SHARE: Final = 0.8  # of a limit; codex says only how much is used
_OK: LimitStatus = "ok"
_NEAR: LimitStatus = "near"
_REACHED: LimitStatus = "reached"
_COUNTS: Final = {
    "inputTokens": "input_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "outputTokens": "output_tokens",
    "reasoningOutputTokens": "reasoning_output_tokens",
    "totalTokens": "total_tokens",
}


def tokens_of(used: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of the model's last answer."""
    last = part(used, "last")
    counts = {ours: count(last, theirs) for theirs, ours in _COUNTS.items()}
    return {name: value for name, value in counts.items() if value is not None}


def context_of(used: Mapping[str, Any]) -> Usage:
    """Return how much of the context is used."""
    context = count(part(used, "last"), "totalTokens")
    return Usage(context_tokens=context, context_window=count(used, "modelContextWindow") or None)


def limits_of(told: Mapping[str, Any]) -> list[UsageLimit]:
    """Return the limits of an account, by their time each."""
    return [*_limits(told)]


def _limits(told: Mapping[str, Any]) -> Iterator[UsageLimit]:
    name = text(told, "limitName") or text(told, "limitId") or "codex"
    reached = bool(text(told, "rateLimitReachedType"))
    windows = [part(told, "primary"), part(told, "secondary")]
    full = max((finite(one.get("usedPercent")) or 0.0 for one in windows), default=0.0)
    for one in windows:
        if (percent := finite(one.get("usedPercent"))) is None:
            continue
        used, status = percent / 100, _OK
        if used >= 1 or (reached and percent == full):
            status = _REACHED
        elif used >= _NEAR_SHARE:
            status = _NEAR
        words = f"{name} {_span(count(one, 'windowDurationMins'))}".strip()
        yield UsageLimit(
            name=printable(words)[:NAME_CHARS],
            status=status,
            used=used,
            resets_at=time_of(one.get("resetsAt")),
        )


def _span(minutes: int | None) -> str:
    if not minutes:
        return ""
    hours = math.ceil(minutes / 60)
    return f"{hours} hours" if hours < 48 else f"{round(hours / 24)} days"
