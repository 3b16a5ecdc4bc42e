"""How the bridge failed at what an ACP agent had it do, by the spec's codes and its retry table
(SPEC Tool retry policy, D50), and in words.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from acp import RequestError

from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol.types import ToolErrorCode
from sessions_app.agents.acp.terminal import Terminal
from sessions_app.agents.driver import ToolFailed
from sessions_app.agents.process import shell
from sessions_app.approvals.tool_call import Call

REFUSED = -32001  # no number of the protocol's: the agent shows the message


class Fault(NamedTuple):
    """``retries`` is how often the spec lets it be tried again."""

    code: ToolErrorCode = "TOOL_EXECUTION_FAILED"
    retries: int = 0


# the bridge did nothing, or did it well: why a call failed is known to the agent alone
UNKNOWN = Fault()


def of_error(error: Exception) -> Fault:
    """The bridge's own limit is a TimeoutError without a number; what the system calls a time-out
    has one, and a place in the retry table.
    """
    if _took_too_long(error):
        return Fault("TOOL_TIMEOUT")
    return Fault(retries=shell.retries_of_error(error))


def of_terminal(terminal: Terminal) -> Fault:
    """What the table says of a command that has ended; nothing of one that ended well, or when it
    was told to.
    """
    if terminal.timed_out:
        return Fault("TOOL_TIMEOUT")
    code = terminal.group.returncode
    return (
        Fault(retries=shell.retries_of(code, terminal.output.text))
        if code and not terminal.unwanted
        else UNKNOWN
    )


def failed(call: Call, error: Exception) -> ToolFailed:
    fault = of_error(error)
    return ToolFailed(call, _words(error), fault.code, retries=fault.retries)


def refuse(error: Exception, what: str) -> NoReturn:
    """Tell the agent why not, in words that its model can act on."""
    if is_missing(error):
        raise RequestError.resource_not_found(what)
    raise RequestError(REFUSED, f"{_words(error)} ({what[:200]})")


def is_missing(error: Exception) -> bool:
    return isinstance(error, BridgeError) and error.code == "FILE_NOT_FOUND"


def _words(error: Exception) -> str:
    if isinstance(error, BridgeError):
        return error.message
    if _took_too_long(error):
        return "It took longer than the bridge allows."
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _took_too_long(error: Exception) -> bool:
    return isinstance(error, TimeoutError) and error.errno is None
