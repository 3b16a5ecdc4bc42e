"""Answer an ACP agent's permission requests as a person decides (D38, D59).

ACP knows no "modified" and no reason: such a call is rejected, and when the agent has ended its
turn it is told the changed parameters, or why, in a follow-up prompt. A changed call is asked about
anew, and the person sees what will run.
"""

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from acp import schema

from bridge_project.kernel import limits
from bridge_project.kernel.text import valid
from bridge_project.protocol.resources import ApprovalOption
from bridge_project.protocol.types import OptionKind
from sessions_app.agents.acp.record import Record
from sessions_app.agents.acp.tool_calls import ToolCalls
from sessions_app.agents.driver import NOT_ASKED, REJECTED, PendingApprovals, Verdict
from sessions_app.agents.events import EventQueue, ToolFailed, ToolStarted
from sessions_app.approvals.tool_call import Call, usable_id
from sessions_app.approvals.tool_result import INTERRUPTED, Failure

CHANGED = (
    "The call was not run as it was asked for: when the agent has ended its turn it is told "
    "which parameters the call should have."
)
_REFUSED = "I did not approve the call of {call.tool} ({call.description}): {reason}"
_CHANGED_MEANWHILE = "The agent changed the command while its question waited, so it was rejected."
_ONLY_ALWAYS = "The agent offers no way to allow this call once, so it was rejected."


class Permissions:
    """Ask a person to allow or refuse the tool calls of one session's agent."""

    def __init__(self, approvals: PendingApprovals, calls: ToolCalls, events: EventQueue) -> None:
        self._approvals = approvals
        self._calls = calls
        self._events = events
        self._follow_ups: deque[str] = deque()  # the prompts that follow this one in its turn

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
        verdict = await self._ask(record, _choices(clear))
        if verdict is None:
            return _choose({})
        chosen = verdict.option_id
        of_kind |= {one.kind: one.option_id for one in clear if one.option_id == chosen}
        if verdict.decision == "approved" and record.other_command:
            verdict = Verdict("rejected", reason=_CHANGED_MEANWHILE)
        if verdict.decision == "approved":
            record.allowed = True
            return _choose(of_kind, "allow_once")
        record.refused = record.call
        self._calls.stop(record, reason_of(verdict))
        return _choose(of_kind, "reject_once", "reject_always")

    async def _ask(self, record: Record, options: Sequence[ApprovalOption]) -> Verdict | None:
        """Ask a person about a call; None when it has ended meanwhile, as by an interrupt."""
        verdict = await self._approvals.ask(call := record.call, options)
        if record.over:
            return None
        if verdict is not None and self._calls.interrupted:  # between the decision and here
            return Verdict("rejected", reason=INTERRUPTED)
        if verdict is not None and verdict.decision == "modified":
            self._follow_ups.append(_follow_up(call, verdict.modifications or {}))
        elif verdict is not None and verdict.reason not in ("", NOT_ASKED):
            self._follow_ups.append(_REFUSED.format(call=call, reason=verdict.reason))
        return verdict

    def withdraw(self) -> None:
        """Cancel pending questions, and forget what was changed."""
        self._follow_ups.clear()
        self._approvals.withdraw()

    def next_follow_up(self) -> str | None:
        """Return the next prompt that tells the agent how a person decided."""
        return self._follow_ups.popleft() if self._follow_ups else None


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


def _choices(options: Sequence[schema.PermissionOption]) -> Sequence[ApprovalOption]:
    """Return the options among which a person chooses; none where each kind has one."""
    names = Counter((one.kind, one.name) for one in options)
    found = [
        ApprovalOption(
            id=one.option_id,
            name=_name(one, alone=names[one.kind, one.name] == 1),
            kind=cast(OptionKind, one.kind),
        )
        for one in options
        if one.kind in get_args(OptionKind) and usable_id(one.option_id)
    ][: limits.AGENT_OPTIONS]
    counts = Counter(one.kind for one in found)
    return found if any(count > 1 for count in counts.values()) else ()


def _name(option: schema.PermissionOption, *, alone: bool) -> str:
    """Return an option's name, with its id where others have the same or it is empty."""
    name = valid(option.name).strip()[: limits.AGENT_OPTION_NAME_CHARS]
    return name if name and alone else f"{name} ({option.option_id})" if name else option.option_id


def _choose(of_kind: dict[str, str], *kinds: str) -> schema.RequestPermissionResponse:
    """Choose the first offered option of these kinds; without one, answer "cancelled"."""
    for kind in kinds:
        if kind in of_kind:
            selected = schema.AllowedOutcome(outcome="selected", option_id=of_kind[kind])
            return schema.RequestPermissionResponse(outcome=selected)
    return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
