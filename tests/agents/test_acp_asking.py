"""What the ACP driver does about changed parameters, which the protocol does not know
(docs/agents.md).
"""

from __future__ import annotations

import asyncio

from bridge_project.kernel import limits
from sessions_app.agents.acp.permissions import CHANGED, TOO_MANY, Asking, why_not
from sessions_app.agents.driver import ApprovalAsked, Event, Verdict
from sessions_app.approvals.tool_call import Call


async def test_more_changes_than_one_turn_may_have() -> None:
    """Those that fit are said to the agent, in order; of one more nobody is told that the agent
    knows it.
    """
    said: list[Event] = []
    asking = Asking(said.append)
    ids = [f"call-{number}" for number in range(limits.ACP_FOLLOW_UPS + 1)]
    waiting = [
        asyncio.create_task(asking.ask(Call(id_, "Bash", {"command": id_}, f"Bash: {id_}")))
        for id_ in ids
    ]
    while len(said) < len(ids):
        await asyncio.sleep(0)
    assert [event.call.id for event in said if isinstance(event, ApprovalAsked)] == ids
    assert all(
        asking.decide(id_, Verdict("modified", {"command": f"changed {id_}"})) for id_ in ids
    )
    verdicts = [verdict for verdict in await asyncio.gather(*waiting) if verdict is not None]
    assert [why_not(verdict) for verdict in verdicts] == [CHANGED] * limits.ACP_FOLLOW_UPS + [
        TOO_MANY
    ]
    told = [asking.follow_up() for _ in ids]
    assert (
        all(
            f"changed {id_}" in (prompt or "")
            for id_, prompt in zip(ids[:-1], told[:-1], strict=True)
        )
        and told[-1] is None
    )
