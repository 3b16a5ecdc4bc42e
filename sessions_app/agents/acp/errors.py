"""Describe the failures of ACP agents."""

import json
import re
from collections.abc import Iterable
from typing import Any

from acp import RequestError

from bridge_project.kernel import limits
from bridge_project.kernel.text import printable
from sessions_app.agents.acp.recipes import Recipe

AUTH_REQUIRED = -32000  # the protocol's own
# the words of agents that do something by themselves when a prompt comes
_BUSY = re.compile(r"\b(?:already (?:processing|running)|busy|in progress)\b", re.IGNORECASE)
AUTH_METHODS, AUTH_METHOD_CHARS = 8, 200  # of the ways to log in that an agent names


def is_busy(error: RequestError) -> bool:
    """Return whether an agent refused a prompt as it is busy by itself (D71)."""
    said = json.dumps([str(error), error.data], default=str)[: limits.AGENT_REASON_MAX_CHARS]
    return _BUSY.search(said) is not None


def text_of_error(error: RequestError) -> str:
    """Return an agent's error text, with the details that some put beside it."""
    data, text = error.data if isinstance(error.data, dict) else {}, str(error)
    for name in ("details", "message", "error"):
        if isinstance(details := data.get(name), str):
            text = f"{text}: {details}" if details and details not in text else text
            break
    return text[: limits.AGENT_REASON_MAX_CHARS]


def how_to_log_in(recipe: Recipe | None, methods: Iterable[Any] | None) -> str:
    """Describe how to log an agent in, by its command and its ``authMethods``."""
    first = f"Run `{recipe.log_in}`" if recipe is not None else "Log in with its own program,"
    text = f"{first} in a terminal on the bridge's machine, as the user who runs the bridge."
    ways = []
    for method in list(methods or ())[:AUTH_METHODS]:
        name, about = printable(method.name), printable(method.description or "").rstrip(".")
        ways.append((f"{name} ({about})" if about and about != name else name)[:AUTH_METHOD_CHARS])
    return f"{text} The ways that it names: {'; '.join(ways)}." if ways else text
