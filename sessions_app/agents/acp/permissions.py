"""Answer an ACP agent's permission requests as a person decides (D38, D59).

ACP knows no "modified": such a call is rejected, and when the agent has ended its turn it is told
the changed parameters in a follow-up prompt. It then asks anew, and the person sees what will run.
"""

import json
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from acp import schema

from sessions_app.agents.acp.record import Record
from sessions_app.agents.acp.tool_calls import ToolCalls
from sessions_app.agents.driver import REJECTED, PendingApprovals, Verdict
from sessions_app.agents.events import EventQueue, ToolFailed, ToolStarted
from sessions_app.approvals.tool_call import Call
from sessions_app.approvals.tool_result import INTERRUPTED, Failure

CHANGED = (
    "The call was not run as it was asked for: when the agent has ended its turn it is told "
    "which parameters the call should have."
)
_CHANGED_MEANWHILE = "The agent changed the command while its question waited, so it was rejected."
_ONLY_ALWAYS = "The agent offers no way to allow this call once, so it was rejected."


class Permissions:
    """Ask a person to allow or refuse the tool calls of one session's agent."""

    def __init__(self, approvals: PendingApprovals, calls: ToolCalls, events: EventQueue) -> None:
        self._approvals = approvals
        self._calls = calls
        self._events = events
        self._changes: deque[str] = deque()  # the follow-up prompts of this turn

    async def answer(self, update: Any, options: list[Any]) -> schema.RequestPermissionResponse:
        """Answer an ACP agent's permission request with the person's decision.

        The request is ``session/request_permission``. An option is chosen by its kind, never by its
        name; only this one call is ever allowed.
        """
        if self._calls.interrupted:  # nobody is shown what is not asked any more
            return _choose({})
        if former := self._calls.asked_before(update):
            self._approvals.withdraw(former.key)
            self._calls.stop(former)
        record = self._calls.ask(update)
        times = Counter(option.option_id for option in options)
        # several options with one id: none of them is used
        clear = [option for option in options if times[option.option_id] == 1]
        of_kind = {option.kind: option.option_id for option in reversed(clear)}
        if "allow_once" not in of_kind:
            record.over, record.refused = True, record.call
            self._events.put(ToolStarted(record.call))
            self._events.put(ToolFailed(record.call, Failure(_ONLY_ALWAYS)))
            return _choose(of_kind, "reject_once", "reject_always")
        verdict = await self.ask(record)
        if verdict is None:
            return _choose({})
        if verdict.decision == "approved" and record.other_command:
            verdict = Verdict("rejected", reason=_CHANGED_MEANWHILE)
        if verdict.decision == "approved":
            record.allowed = True
            return _choose(of_kind, "allow_once")
        record.refused = record.call
        self._calls.stop(record, reason_of(verdict))
        return _choose(of_kind, "reject_once", "reject_always")

    async def ask(self, record: Record) -> Verdict | None:
        """Ask a person about a call; None when it has ended meanwhile, as by an interrupt."""
        verdict = await self._approvals.ask(call := record.call)
        if record.over:
            return None
        if verdict is not None and self._calls.interrupted:  # between the decision and here
            return Verdict("rejected", reason=INTERRUPTED)
        if verdict is not None and verdict.decision == "modified":
            self._changes.append(_follow_up(call, verdict.modifications or {}))
        return verdict

    def withdraw(self) -> None:
        """Cancel pending questions, and forget what was changed."""
        self._changes.clear()
        self._approvals.withdraw()

    def next_follow_up(self) -> str | None:
        """Return the next prompt telling the agent how a person changed its call."""
        return self._changes.popleft() if self._changes else None


def reason_of(verdict: Verdict) -> str:
    """Return the text that tells an agent why its call was not approved."""
    return CHANGED if verdict.decision == "modified" else verdict.reason or REJECTED


def _follow_up(call: Call, params: Mapping[str, Any]) -> str:
    wanted = json.dumps(dict(params), ensure_ascii=False, indent=2)
    return (
        f"I did not approve the call of {call.tool} as you asked for it ({call.description}), "
        "but I do want it with other parameters. "
        f"Please make the same call once more, with exactly these parameters:\n\n{wanted}"
    )


def _choose(of_kind: dict[str, str], *kinds: str) -> schema.RequestPermissionResponse:
    """Choose the first offered option of these kinds; without one, answer "cancelled"."""
    for kind in kinds:
        if kind in of_kind:
            selected = schema.AllowedOutcome(outcome="selected", option_id=of_kind[kind])
            return schema.RequestPermissionResponse(outcome=selected)
    return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
