"""What waits for a person: an agent's call, and the parameters that one wanted changed: ACP has no
"modified".
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from bridge_project.kernel import limits
from sessions_app.agents.driver import ApprovalAsked, ApprovalWithdrawn, Event, Verdict
from sessions_app.approvals.tool_call import Call

REJECTED = "The call was rejected."
CHANGED = "The call was not run as it was asked for: when the agent has ended its turn it is told which parameters the call should have."
TOO_MANY = "The call was not run, and the agent is not told the changed parameters: it has as many changes to make already as one turn may have."


class Asking:
    """The calls of one session that wait for a decision."""

    def __init__(self, say: Callable[[Event], None]) -> None:
        self._say = say
        self._waiting: dict[str, asyncio.Future[Verdict | None]] = {}
        self._changed: deque[str] = deque()
        # the turn was interrupted: nothing is asked any more until the next one
        self.stopping = False

    async def ask(self, call: Call) -> Verdict | None:
        """A person's decision; None when it is not waited for any more."""
        assert call.id is not None
        if self.stopping:
            return None
        waiting: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = waiting
        self._say(ApprovalAsked(call))
        try:
            verdict = await waiting
        except asyncio.CancelledError:  # the agent, or the session, is gone
            self._say(ApprovalWithdrawn(call.id))
            raise
        finally:
            if self._waiting.get(call.id) is waiting:
                del self._waiting[call.id]
        if verdict is not None and verdict.decision == "modified":
            if len(self._changed) >= limits.ACP_FOLLOW_UPS:
                return Verdict("rejected", reason=TOO_MANY)
            self._changed.append(_with_changes(call, verdict.modifications or {}))
        return verdict

    def decide(self, call_id: str, verdict: Verdict) -> bool:
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(verdict)
        return True

    def withdraw(self) -> None:
        """Nothing is waited for any more: the turn is being stopped."""
        self._changed.clear()
        for call_id, waiting in self._waiting.items():
            if not waiting.done():
                waiting.set_result(None)
                self._say(ApprovalWithdrawn(call_id))

    def follow_up(self) -> str | None:
        """The next prompt that says what a person changed."""
        return self._changed.popleft() if self._changed else None


def why_not(verdict: Verdict) -> str:
    """Why a call is not run, of a verdict that does not approve it."""
    return CHANGED if verdict.decision == "modified" else verdict.reason or REJECTED


def _with_changes(call: Call, params: Mapping[str, Any]) -> str:
    wanted = json.dumps(dict(params), ensure_ascii=False, indent=2)
    return (
        f"I did not approve the call of {call.tool} as you asked for it ({call.description}), but I do want it with other parameters. "
        f"Please make the same call once more, with exactly these parameters:\n\n{wanted}"
    )
