"""Translates what claude-agent-sdk says into the neutral events of ``base``. Pure: it waits for
nothing and writes nothing.

Which calls ask, and what becomes of each message of the SDK, is said in docs/agents.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from bridge_project.protocol.resources import ToolErrorDetails, ToolOutcome
from bridge_project.protocol.risk import risk_of
from bridge_project.protocol.types import FinishReason
from sessions_app.agents.claude.diff import unified_diff
from sessions_app.agents.driver import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Chunk,
    Event,
    SessionIdentified,
    ToolFailed,
    ToolStarted,
    ToolSucceeded,
    TurnEnded,
    Verdict,
)
from sessions_app.agents.sanitize import clean
from sessions_app.approvals.tool_call import Call, describe

# What only looks, plans or hands on to an agent whose own calls ask. Whatever is not here asks:
# also a tool that nobody knew when this was written.
UNASKED = frozenset({
    *("Read", "NotebookRead", "Glob", "Grep", "LS"),
    *("TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "EnterPlanMode", "ReportFindings"),
    *("TaskOutput", "BashOutput", "ListAgents", "CronList", "ToolSearch"),
    *("Agent", "Task"),
})  # fmt: skip
REJECTED = "The user rejected this call."
INTERRUPTED = "The call was interrupted."
IN_BACKGROUND = "It works in the background; what comes of it will be said."
_FINISHED: Mapping[str | None, FinishReason] = {
    None: "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
}
_LENGTH = "max_output_tokens"
_WRAPPED = re.compile(r"^<tool_use_error>(.*)</tool_use_error>$", re.DOTALL)
_EXIT = re.compile(r"^(?:Error: )?Exit code (\d+)\n?")
_TIMED_OUT = re.compile(r"\btimed out after \d")
_WHY = {
    "error_max_turns": "The agent reached its limit of turns.",
    "error_max_budget_usd": "The agent reached its limit of cost.",
    "error_during_execution": "The agent failed in the middle of its turn.",
}
_USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def asks(tool: str) -> bool:
    """Whether a person is asked about each call of this tool, by our own rule; the agent's rules
    may make it ask about others too.
    """
    return tool not in UNASKED


@dataclass(slots=True)
class _Open:
    """A call without a result yet. ``told``: the runtime knows of it; ``waiting``: a person
    decides; ``refused``: why it does not run.
    """

    call: Call
    begun: float
    told: bool = False
    waiting: bool = False
    refused: str = ""


class Translation:
    """Of one session. Every method returns the events that follow, in order."""

    def __init__(
        self, resume_id: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._resume_id = resume_id
        self._prompt: str | None = None  # the id of the message whose turn runs
        self._interrupted = False
        self._said = False  # something since the last Ended
        self._streamed: str | None = None  # the message that comes in pieces
        self._error: str | None = None  # the agent's own name of what went wrong in this turn
        self._open: dict[str, _Open] = {}
        self._readers: Mapping[type[Any], Callable[[Any], Iterable[Event]]] = {
            SystemMessage: self._system,
            StreamEvent: self._stream,
            AssistantMessage: self._assistant,
            UserMessage: self._user,
            ResultMessage: self._result,
        }

    # -- what we do --------------------------------------------------------------------------------

    def begin(self, prompt_id: str) -> None:
        """A prompt is given to the agent, under this id."""
        self._prompt, self._interrupted, self._error = prompt_id, False, None

    def interrupt(self) -> None:
        """The agent is told to stop: its turn's result, and that of its calls, is not a failure."""
        self._interrupted = True

    def knows(self, call_id: str) -> bool:
        return call_id in self._open

    def ask(
        self, call_id: str, tool: str, params: Mapping[str, Any], reason: str | None = None
    ) -> list[Event]:
        """The agent waits for a decision; ``reason``: why it asks, in its words."""
        found = self._open.setdefault(call_id, _Open(_call(call_id, tool, params), self._clock()))
        found.call = _call(call_id, tool, params, reason)
        found.told = found.waiting = self._said = True
        return [ApprovalAsked(found.call)]

    def decide(self, call_id: str, verdict: Verdict) -> None:
        """The decision is handed on."""
        if (found := self._open.get(call_id)) is not None:
            found.waiting, found.begun = False, self._clock()
            found.refused = (verdict.reason or REJECTED) if verdict.decision == "rejected" else ""

    def withdraw(self, call_id: str) -> list[Event]:
        """The agent no longer waits. Nothing, if that has been said."""
        found = self._open.get(call_id)
        if found is None or not found.waiting:
            return []
        found.waiting, found.refused = False, INTERRUPTED
        return [ApprovalWithdrawn(call_id)]

    # -- what the agent says -----------------------------------------------------------------------

    def read(self, message: object) -> list[Event]:
        """What a message of the SDK means; of one that says nothing to us, nothing."""
        reader = self._readers.get(type(message))
        events = list(reader(message)) if reader is not None else []
        self._said = self._said or any(
            isinstance(event, Chunk | ToolStarted | ApprovalAsked | ToolSucceeded | ToolFailed)
            for event in events
        )
        if any(isinstance(event, TurnEnded) for event in events):
            self._said = False
        return events

    def _system(self, message: SystemMessage) -> Iterable[Event]:
        """``init`` begins each turn, and carries the id of the session, which /clear changes."""
        session_id = message.data.get("session_id")
        if (
            message.subtype == "init"
            and isinstance(session_id, str)
            and session_id != self._resume_id
        ):
            self._resume_id = session_id
            yield SessionIdentified(session_id)

    def _stream(self, message: StreamEvent) -> Iterable[Event]:
        """The pieces of an answer; a subagent's talk is its own."""
        event = message.event
        if message.parent_tool_use_id is not None:
            return
        if event.get("type") == "message_start":
            self._streamed = event.get("message", {}).get("id")
        delta = event.get("delta", {}) if event.get("type") == "content_block_delta" else {}
        if delta.get("type") == "text_delta" and delta.get("text"):
            yield Chunk(clean(delta["text"]))
        elif delta.get("type") == "input_json_delta" and delta.get("partial_json"):
            yield Chunk(clean(delta["partial_json"]), is_tool_use=True)

    def _assistant(self, message: AssistantMessage) -> Iterable[Event]:
        if message.error is not None:  # its text comes again with the result
            self._error = message.error
            return
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                yield from self._tool_use(block)
            elif (
                isinstance(block, TextBlock)
                and message.parent_tool_use_id is None
                and message.message_id != self._streamed
                and block.text
            ):
                yield Chunk(clean(block.text))  # what no model said: the answer to a /command

    def _tool_use(self, block: ToolUseBlock) -> Iterable[Event]:
        found = self._open.setdefault(
            block.id, _Open(_call(block.id, block.name, block.input), self._clock())
        )
        if not asks(block.name) and not found.told:
            found.told = True
            yield ToolStarted(found.call)

    def _user(self, message: UserMessage) -> Iterable[Event]:
        for block in message.content if isinstance(message.content, list) else ():
            if isinstance(block, ToolResultBlock):
                yield from self._tool_result(block, message.tool_use_result)

    def _tool_result(self, block: ToolResultBlock, result: object) -> Iterable[Event]:
        yield from self.withdraw(block.tool_use_id)
        found = self._open.pop(block.tool_use_id, None)
        if found is None:
            return
        if not found.told:  # refused by the agent itself before anybody was asked
            yield ToolStarted(found.call)
        took, text = (
            max(0, round((self._clock() - found.begun) * 1000)),
            clean(_text(block.content)),
        )
        if block.is_error and (found.refused or self._interrupted):
            yield _stopped(found, took)
        elif block.is_error:
            yield _failed(found.call, text, took)
        else:
            diff = unified_diff(result)
            # theirs is meant for the model alone
            text = (
                IN_BACKGROUND
                if isinstance(result, Mapping) and result.get("isAsync") is True
                else text
            )
            yield ToolSucceeded(
                found.call,
                ToolOutcome(
                    success=True,
                    content=text,
                    diff=None if diff is None else clean(diff),
                    duration_ms=took,
                ),
            )

    # -- the turn ----------------------------------------------------------------------------------

    def _result(self, message: ResultMessage) -> Iterable[Event]:
        """A turn of the agent's is over: that of the prompt, or one that it began itself when a
        background job was done.

        The second kind ends what it has said, and never the turn of a prompt that waits behind it.
        No approval outlives a turn.
        """
        ours = self._prompt is not None and (self._interrupted or self._answers(message))
        if not ours and (self._prompt is not None or not self._said):
            return
        for call_id in tuple(self._open):
            yield from self.withdraw(call_id)
            if self._interrupted and (found := self._open.pop(call_id)).told:
                yield _stopped(found, None)
        yield self._ended(message)
        self._prompt, self._error = None, None

    def _answers(self, message: ResultMessage) -> bool:
        answered = message.user_message_uuids or (
            [message.user_message_uuid] if message.user_message_uuid else None
        )
        if answered:
            return self._prompt in answered
        # a result that does not say
        return message.origin is None or message.origin.get("kind") == "human"

    def _ended(self, message: ResultMessage) -> TurnEnded:
        usage = _usage(message)
        if self._interrupted:
            return TurnEnded("stop", usage)
        if self._error == _LENGTH:
            return TurnEnded("length", usage)
        if message.is_error or message.subtype != "success":
            errors = "; ".join(message.errors or ())
            return TurnEnded(
                "error",
                usage,
                clean(
                    message.result
                    or errors
                    or _WHY.get(message.subtype, f"The agent failed: {message.subtype}.")
                ),
            )
        reason = _FINISHED.get(message.stop_reason, "error")
        return TurnEnded(
            reason, usage, f"The model stopped: {message.stop_reason}." if reason == "error" else ""
        )


def _call(call_id: str, tool: str, params: Mapping[str, Any], reason: str | None = None) -> Call:
    """What a call is to a person: what it does in our words, never only in the agent's; those are
    the ``reasoning``.
    """
    said = params.get("description") if tool not in ("Agent", "Task") else None
    reasons = [text for text in (said, reason) if isinstance(text, str) and text.strip()]
    return Call(
        call_id,
        tool,
        params,
        describe(tool, params),
        risk_of(tool, params),
        clean(". ".join(reasons)) or None,
    )


def _stopped(found: _Open, took: int | None) -> ToolSucceeded:
    return ToolSucceeded(
        found.call,
        ToolOutcome(
            success=False, content="", error=clean(found.refused) or INTERRUPTED, duration_ms=took
        ),
    )


def _failed(call: Call, text: str, took: int) -> ToolFailed:
    """The agent tells the model of a failure in one text; a command's has its exit code, and both
    of its outputs as one.
    """
    wrapped = _WRAPPED.match(text)
    text = wrapped[1] if wrapped else text
    code = _EXIT.match(text)
    details = ToolErrorDetails(execution_time_ms=took)
    if code is not None:
        details = ToolErrorDetails(
            exit_code=int(code[1]), stderr=text[code.end() :], execution_time_ms=took
        )
    return ToolFailed(
        call,
        text or "The tool failed.",
        "TOOL_TIMEOUT" if _TIMED_OUT.search(text) else "TOOL_EXECUTION_FAILED",
        details,
    )


def _text(content: str | Sequence[Any] | None) -> str:
    """A result as text; of what is none, which kind it is."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [part if isinstance(part, Mapping) else {} for part in content]
    return "\n".join(
        str(part["text"])
        if isinstance(part.get("text"), str)
        else f"[{part.get('type', 'unknown')}]"
        for part in parts
    )


def _usage(message: ResultMessage) -> dict[str, Any]:
    """Of this turn, but for ``total_cost_usd``: of the session since it was started, resumed or
    cleared.
    """
    used = (
        {name: message.usage[name] for name in _USAGE if isinstance(message.usage.get(name), int)}
        if message.usage
        else {}
    )
    cost = {} if message.total_cost_usd is None else {"total_cost_usd": message.total_cost_usd}
    return used | cost | {"duration_ms": message.duration_ms, "num_turns": message.num_turns}
