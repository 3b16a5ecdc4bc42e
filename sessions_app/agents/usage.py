"""Read what agents say of the limits of their accounts (D72). Pure."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bridge_project.kernel.text import printable
from bridge_project.protocol.resources import UsageLimit
from bridge_project.protocol.types import LimitStatus, now_text

NAME_CHARS = 100
# as Claude Code calls them
_STATUSES: dict[str, LimitStatus] = {
    "allowed": "ok",
    "allowed_warning": "near",
    "rejected": "reached",
}


def limit_of(raw: object) -> UsageLimit | None:
    """Return a limit as Claude Code describes it; None for anything else."""
    if not isinstance(raw, Mapping) or str(raw.get("status")) not in _STATUSES:
        return None
    used, at = raw.get("utilization"), raw.get("resetsAt")
    return UsageLimit(
        name=printable(str(raw.get("rateLimitType") or "limit"))[:NAME_CHARS],
        status=_STATUSES[raw["status"]],
        used=finite(used),
        resets_at=time_of(at),
    )


def finite(value: object) -> float | None:
    """Return a number that JSON has too, None for anything else."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def time_of(at: Any) -> str | None:
    """Return a time of seconds since 1970 as messages have it, None for anything else."""
    try:
        return now_text(datetime.fromtimestamp(at, UTC))
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def words_of(limit: UsageLimit) -> str:
    """Describe a limit that is near or reached, for a person."""
    how = "is reached" if limit.status == "reached" else "is nearly reached"
    used = f" ({limit.used:.0%} used)" if limit.used is not None else ""
    until = f". It ends at {limit.resets_at}" if limit.resets_at else ""
    return f"The limit {limit.name.replace('_', ' ')} {how}{used}{until}."
