"""Translate claude-agent-sdk's messages to events, and transcripts to messages."""

import math
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import claude_agent_sdk as sdk

from bridge_project.kernel import limits
from bridge_project.kernel.picture_files import Picture
from bridge_project.kernel.pictures import name_in
from bridge_project.kernel.text import clean, printable
from bridge_project.protocol.resources import Usage
from sessions_app.agents import events
from sessions_app.agents.claude import program
from sessions_app.agents.diffs import diff_of_result
from sessions_app.agents.driver import HistoryMessage, Verdict, describe_call
from sessions_app.agents.usage import limit_of
from sessions_app.approvals.tool_call import MAIN_AGENT, Agent, Call, usable_id
from sessions_app.approvals.tool_result import INTERRUPTED, blocks_text, failure_of, readable

# Tools that only read, plan, or start a subagent whose own calls ask. Any other tool asks, also one
# that did not exist when this was written.
UNASKED = frozenset({
    *("Read", "NotebookRead", "Glob", "Grep", "LS"),
    *("TodoWrite", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "EnterPlanMode"),
    *("ReportFindings", "TaskOutput", "BashOutput", "CronList", "ToolSearch"),
    *("Agent", "Task"),
})  # fmt: skip
DENIED = "The user rejected this call."
COMPACTED = "\n\nThe conversation was compacted.\n\n"
CLEARED = "The conversation was cleared: the agent knows nothing of what was said before."
_STOPPED = (None, "end_turn", "stop_sequence", "tool_use")
_TOO_LONG = "max_output_tokens"
_NO_LOG_IN = "authentication_failed"
_LOG_IN = (
    "Run `{} /login` in a terminal on the bridge's machine, as the user who runs the bridge, or"
    " give the bridge ANTHROPIC_API_KEY."
)
_WHY_RETRIED = {
    "overloaded": "The model is overloaded",
    "rate_limit": "The model's rate limit is reached",
}
_SUMMARY = "This session is being continued from a previous conversation"  # its own, in our place
_NOT_PROMPTS = (  # in the person's place, by the program
    *("<command-", "<local-command-", "<task-notification>", "<system-reminder>"),
    "[Request interrupted by user",
)
_USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass(slots=True)
class _OpenCall:
    """Hold a call that has no result yet."""

    call: Call
    begun: float
    reported: bool = False
    waiting: bool = False  # for a person's decision
    refused: str = ""  # why it does not run


class Translation:
    """Hold what one session's agent has reported so far."""

    def __init__(self, resume_id: str | None = None) -> None:
        self._resume_id = resume_id
        self._prompts: set[str] = set()  # ids of the messages whose turn runs
        self._interrupted = False
        self._reported = False  # something since the last TurnEnded
        self._streamed: str | None = None  # the message that comes in pieces
        self._error: str | None = None  # the agent's own name of what went wrong in this turn
        self._retry_told = -math.inf  # when a retry of this turn was reported last
        self._context: int | None = None  # tokens, as of its last message
        self._open: dict[str, _OpenCall] = {}

    # -- what we do --------------------------------------------------------------------------------

    def begin(self, prompt_id: str) -> None:
        self._prompts, self._interrupted, self._error = {prompt_id}, False, None
        self._retry_told = -math.inf

    def steer(self, prompt_id: str) -> None:
        """Note a message to the turn that runs: one result may answer both."""
        if self._prompts:
            self._prompts.add(prompt_id)

    def interrupt(self) -> None:
        """Note an interrupt: the turn's and its calls' ends are no failures."""
        self._interrupted = True

    def has_call(self, call_id: str) -> bool:
        return call_id in self._open

    def ask(
        self, call_id: str, tool: str, params: Mapping[str, Any], reason: str | None = None
    ) -> Call:
        """Note that the agent waits for a decision, and return the call.

        ``reason`` says why it asks, in its words.
        """
        found = self._opened(call_id, tool, params)
        found.call = replace(_call(call_id, tool, params, reason), agent=found.call.agent)
        found.reported = found.waiting = self._reported = True
        return found.call

    def decide(self, call_id: str, verdict: Verdict) -> None:
        if (found := self._open.get(call_id)) is not None:
            found.waiting, found.begun = False, time.monotonic()
            found.refused = (verdict.reason or DENIED) if verdict.decision == "rejected" else ""

    def withdraw(self, call_id: str) -> list[events.Event]:
        """Note that the agent no longer waits for a decision, if it did."""
        found = self._open.get(call_id)
        if found is None or not found.waiting:
            return []
        found.waiting, found.refused = False, INTERRUPTED
        return [events.ApprovalWithdrawn(call_id)]

    def _opened(
        self, call_id: str, tool: str, params: Mapping[str, Any], parent: str | None = None
    ) -> _OpenCall:
        """Return an open call; ``parent``: the call whose subagent makes it."""
        if (found := self._open.get(call_id)) is None:
            call = replace(_call(call_id, tool, params), agent=self._subagent(parent))
            found = self._open[call_id] = _OpenCall(call, time.monotonic())
        return found

    def _subagent(self, parent: str | None) -> Agent:
        """Name a subagent by the call that has started it."""
        if (id_ := usable_id(parent)) is None:
            return MAIN_AGENT
        params = self._open[id_].call.params if id_ in self._open else {}
        return Agent(id_, printable(str(params.get("subagent_type") or "")))

    # -- what the agent says -----------------------------------------------------------------------

    def read(self, message: object) -> list[events.Event]:
        reported = list(self._translate(message))
        if any(isinstance(event, events.TurnEnded) for event in reported):
            self._reported = False
        else:
            unseen = events.SessionIdentified | events.ApprovalWithdrawn | events.ModelRetried
            unseen |= events.UsageChanged
            self._reported |= not all(isinstance(event, unseen) for event in reported)
        return reported

    def _translate(self, message: object) -> Iterable[events.Event]:
        match message:
            case sdk.SystemMessage(subtype="init"):
                return self._identify(message.data.get("session_id"))
            case sdk.SystemMessage(subtype="compact_boundary"):
                return (events.Chunk(COMPACTED),)
            case sdk.SystemMessage(subtype="api_retry"):
                return self._retry(message.data)
            case sdk.ConversationResetMessage():
                return (events.Chunk(CLEARED),)
            case sdk.StreamEvent(parent_tool_use_id=None):  # a subagent's talk is its own
                return self._stream(message.event)
            case sdk.AssistantMessage():
                return self._assistant(message)
            case sdk.UserMessage() if isinstance(message.content, list):
                results = [
                    part for part in message.content if isinstance(part, sdk.ToolResultBlock)
                ]
                result = message.tool_use_result
                return [event for part in results for event in self._tool_result(part, result)]
            case sdk.ResultMessage():
                return self._result(message)
            case sdk.RateLimitEvent() if limit := limit_of(message.rate_limit_info.raw):
                return (events.UsageChanged(Usage(limits=[limit])),)
        return ()

    def _identify(self, session_id: object) -> Iterable[events.Event]:
        """Report the id of the session, which /clear changes."""
        if isinstance(session_id, str) and session_id != self._resume_id:
            self._resume_id = session_id
            yield events.SessionIdentified(session_id)

    def _retry(self, data: Mapping[str, Any]) -> Iterable[events.Event]:
        """Report the first retry of a turn at once, and then one in MODEL_RETRY_SECONDS."""
        now = time.monotonic()
        if now - self._retry_told < limits.MODEL_RETRY_SECONDS:
            return
        self._retry_told, status = now, data.get("error_status")
        unknown = "The model answers with an error" if status else "The model cannot be reached"
        why = _WHY_RETRIED.get(str(data.get("error")), unknown) + (f" ({status})" if status else "")
        delay = max(1, round(data.get("retry_delay_ms", 0) / 1000))
        tries = f"try {data.get('attempt')} of {data.get('max_retries')}"
        yield events.ModelRetried(f"{why}; {tries} in {delay} s")

    def _stream(self, event: Mapping[str, Any]) -> Iterable[events.Event]:
        if event.get("type") == "message_start":
            self._streamed = event.get("message", {}).get("id")
        delta = event.get("delta", {}) if event.get("type") == "content_block_delta" else {}
        if delta.get("type") == "text_delta" and delta.get("text"):
            yield events.Chunk(delta["text"])
        elif delta.get("type") == "input_json_delta" and delta.get("partial_json"):
            yield events.Chunk(delta["partial_json"], is_tool_use=True)

    def _assistant(self, message: sdk.AssistantMessage) -> Iterable[events.Event]:
        if message.error is not None:  # its text comes again with the result
            self._error = message.error
            return
        if message.parent_tool_use_id is None and (used := message.usage):
            counts = [used.get(name) for name in _USAGE]
            self._context = sum(filter(_is_count, counts)) or self._context
        # what no model said, such as the answer to a /command, is not streamed
        whole = message.parent_tool_use_id is None and message.message_id != self._streamed
        for block in message.content:
            if isinstance(block, sdk.ToolUseBlock):
                found = self._opened(block.id, block.name, block.input, message.parent_tool_use_id)
                if block.name in UNASKED and not found.reported:
                    found.reported = True
                    yield events.ToolStarted(found.call)
            elif isinstance(block, sdk.TextBlock) and whole and block.text:
                yield events.Chunk(block.text)

    def _tool_result(self, block: sdk.ToolResultBlock, result: object) -> Iterable[events.Event]:
        yield from self.withdraw(block.tool_use_id)
        found = self._open.pop(block.tool_use_id, None)
        if found is None:
            return
        if not found.reported:  # refused by the agent itself before anybody was asked
            yield events.ToolStarted(found.call)
        duration_ms = max(0, round((time.monotonic() - found.begun) * 1000))
        said = block.content or ""
        text = clean(said if isinstance(said, str) else blocks_text(said))
        if block.is_error and (found.refused or self._interrupted):
            yield _stopped(found, duration_ms)
        elif block.is_error:
            yield events.ToolFailed(found.call, failure_of(text, duration_ms))
        else:
            # one of a subagent's calls has no structured result
            result = result if isinstance(result, Mapping) else None
            content, diff = clean(readable(result, text)), diff_of_result(result)
            diff = None if diff is None else clean(diff)
            taken: list[Picture] = []
            name_in(said, taken)
            yield events.ToolSucceeded(
                found.call, content, diff, duration_ms=duration_ms, pictures=taken
            )

    # -- the turn ----------------------------------------------------------------------------------

    def _result(self, message: sdk.ResultMessage) -> Iterable[events.Event]:
        """End a prompt's turn, or one that the agent began for a background job.

        The second kind ends what it has said, and never the turn of a prompt that waits behind it.
        No approval outlives a turn.
        """
        ours = bool(self._prompts) and (self._interrupted or self._answers(message))
        if not ours and (self._prompts or not self._reported):
            return
        if (used := self._used(message)) != Usage():
            yield events.UsageChanged(used)
        for call_id in tuple(self._open):
            yield from self.withdraw(call_id)
            if self._interrupted and (found := self._open.pop(call_id)).reported:
                yield _stopped(found, None)
        yield replace(self._ended(message), own=not ours)
        self._prompts, self._error = set(), None

    def _used(self, message: sdk.ResultMessage) -> Usage:
        """Return what the session has used by the end of a turn."""
        windows = [one.get("contextWindow") for one in (message.model_usage or {}).values()]
        return Usage(
            context_tokens=self._context,
            # a subagent's model may have another one
            context_window=max(filter(_is_count, windows), default=None),
            cost_usd=message.total_cost_usd,
        )

    def _answers(self, message: sdk.ResultMessage) -> bool:
        """Return whether a result is that of the prompt whose turn runs."""
        if answered := message.user_message_uuids or message.user_message_uuid:
            ids = [answered] if isinstance(answered, str) else answered
            return not self._prompts.isdisjoint(ids)
        # a result that does not say
        return message.origin is None or message.origin.get("kind") == "human"

    def _ended(self, message: sdk.ResultMessage) -> events.TurnEnded:
        usage = _usage(message)
        if self._interrupted:
            return events.TurnEnded("stop", usage)
        failed = message.is_error or message.subtype != "success"
        if self._error == _TOO_LONG or (message.stop_reason == "max_tokens" and not failed):
            return events.TurnEnded("length", usage)
        if failed:
            why = message.result or "; ".join(message.errors or ())
            why = clean(why or f"The agent failed: {message.subtype}.")
            if self._error == _NO_LOG_IN:  # no phone can do `/login`
                # that of the SDK is in no PATH
                own = program.PROGRAM.path() and "claude"
                why += f". {_LOG_IN.format(own or shlex.quote(str(program.program())))}"
            return events.TurnEnded("error", usage, why)
        if message.stop_reason in _STOPPED:
            return events.TurnEnded("stop", usage)
        return events.TurnEnded("error", usage, f"The model stopped: {message.stop_reason}.")


def _call(call_id: str, tool: str, params: Mapping[str, Any], reason: str | None = None) -> Call:
    """Describe a call by what it does; the agent's own words are its ``reasoning``."""
    description = params.get("description") if tool not in ("Agent", "Task") else None
    reasons = [text for text in (description, reason) if isinstance(text, str) and text.strip()]
    return describe_call(call_id, tool, params, reasoning=clean(". ".join(reasons)) or None)


def _stopped(found: _OpenCall, duration_ms: int | None) -> events.ToolStopped:
    return events.ToolStopped(found.call, clean(found.refused) or INTERRUPTED, duration_ms)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and value >= 0


def _usage(message: sdk.ResultMessage) -> dict[str, Any]:
    """Return the turn's usage, and the cost since the session began or was cleared."""
    counts = message.usage or {}
    used = {name: counts[name] for name in _USAGE if isinstance(counts.get(name), int)}
    cost = {} if message.total_cost_usd is None else {"total_cost_usd": message.total_cost_usd}
    return used | cost | {"duration_ms": message.duration_ms, "num_turns": message.num_turns}


def read_transcript(resume_id: str) -> Sequence[HistoryMessage]:
    """Read the messages of a session's transcript, without tool calls; () if missing.

    It is looked for in all projects: in the project's own the SDK would run git.
    """
    info = sdk.get_session_info(resume_id)
    if info is None or (info.file_size or 0) > limits.AGENT_HISTORY_FILE_BYTES:
        return ()
    return [
        HistoryMessage(text, by_agent=message.type == "assistant" or text.startswith(_SUMMARY))
        for message in sdk.get_session_messages(resume_id)
        if message.parent_tool_use_id is None
        for text in _texts(message.message)
    ]


def _texts(message: Any) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            text = clean(str(block.get("text", ""))).strip()
            if text and not text.startswith(_NOT_PROMPTS):
                yield text
