"""Explain why claude-code is silent while it asks its model again. Pure."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from claude_agent_sdk import SystemMessage

from bridge_project.kernel import limits
from sessions_app.agents.events import ModelRetried

_WHY = {
    "overloaded": "The model is overloaded",
    "rate_limit": "The model's rate limit is reached",
    "server_error": "The model's service fails",
    "authentication_failed": "The model refuses the log-in",
    "cloud_credential_error": "The model refuses the log-in",
}


class Retries:
    """Report the first retry of a turn at once, and then one in MODEL_RETRY_SECONDS."""

    def __init__(self) -> None:
        self._told = -math.inf

    def begin_turn(self) -> None:
        """Report the next retry at once."""
        self._told = -math.inf

    def read(self, message: object) -> Iterator[ModelRetried]:
        """Return the event of a message about a retry; None for any other message."""
        if not isinstance(message, SystemMessage) or message.subtype != "api_retry":
            return
        now = time.monotonic()
        if now - self._told >= limits.MODEL_RETRY_SECONDS:
            self._told = now
            yield ModelRetried(_describe(message.data))


def _describe(data: Mapping[str, Any]) -> str:
    """Say for a person why and when the model is asked again."""
    status = data.get("error_status")
    unknown = "The model answers with an error" if status else "The model cannot be reached"
    why = _WHY.get(str(data.get("error")), unknown) + (f" ({status})" if status else "")
    delay = max(1, round(data.get("retry_delay_ms", 0) / 1000))
    return f"{why}; try {data.get('attempt')} of {data.get('max_retries')} in {delay} s"
