"""Map failures of ACP agents and tools to codes (D50, SPEC Tool retry policy)."""

from collections.abc import Iterable
from typing import Any, NoReturn

from acp import RequestError

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.text import printable
from sessions_app.agents.acp.recipes import Recipe
from sessions_app.agents.process import shell
from sessions_app.approvals.tool_result import Failure

AUTH_REQUIRED = -32000  # the protocol's own
AUTH_METHODS, AUTH_METHOD_CHARS = 8, 200  # of the ways to log in that an agent names
REFUSED = -32001  # no number of the protocol's: the agent shows the message


def failure_of(error: Exception) -> Failure:
    """Describe a failure of what the bridge does for an agent."""
    if _timed_out(error):
        return Failure(_words(error), "TOOL_TIMEOUT")
    return Failure(_words(error), retries=shell.retries_of_error(error))


def refuse(error: Exception, what: str) -> NoReturn:
    """Raise a failure as an ACP error whose text the agent's model can act on."""
    if is_missing(error):
        raise RequestError.resource_not_found(what)
    raise RequestError(REFUSED, f"{_words(error)} ({what[:200]})")


def is_missing(error: Exception) -> bool:
    """Return whether an error means that a file does not exist."""
    return isinstance(error, BridgeError) and error.code == "FILE_NOT_FOUND"


def _words(error: Exception) -> str:
    if isinstance(error, BridgeError):
        return error.message
    if _timed_out(error):
        return "It took longer than the bridge allows."
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _timed_out(error: Exception) -> bool:
    """Return whether the bridge's own limit has passed: the system's has an errno."""
    return isinstance(error, TimeoutError) and error.errno is None


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
