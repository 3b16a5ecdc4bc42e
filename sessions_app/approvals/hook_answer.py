"""Write a person's decision as a hook of the agent prints it (D66). Pure."""

from collections.abc import Callable
from typing import Any

from bridge_project.protocol import jsontext
from sessions_app.approvals.tool_call import PLAN

REFUSED = "The user refused this from another device."
AS_IT_IS = "The user wants this call with other parameters, which this agent does not take."
# agents that run a call as it is, or not: what a person changed would not be what runs
UNCHANGED = frozenset({"codex", "qwen", "copilot", "droid"})


def answer_of(agent: str, tool: str, decided: dict[str, Any]) -> str:
    """Return the output of the hook with which an agent asks, "" for Claude Code.

    ``decided``: decision, modifications and reason. A plan is approved only by an answer with
    parameters; those that are left out stay as they are.
    """
    decision: dict[str, Any] = {"behavior": "allow"}
    if decided["decision"] == "modified" and agent in UNCHANGED:
        decision = {"behavior": "deny", "message": AS_IT_IS}
    elif decided["decision"] == "rejected":
        decision = {"behavior": "deny", "message": decided["reason"] or REFUSED}
    elif decided["decision"] == "modified":
        decision["updatedInput"] = decided["modifications"]
    elif tool == PLAN and not agent:
        decision["updatedInput"] = {}
    return jsontext.dumps(_FORMS.get(agent, _usual)(decision))


def _usual(decision: dict[str, Any]) -> dict[str, Any]:
    output = {"hookEventName": "PermissionRequest", "decision": decision}
    return {"hookSpecificOutput": output}


def _before_the_call(decision: dict[str, Any]) -> dict[str, Any]:
    """The agent has no event of a question: what is said before a call spares it."""
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision["behavior"]}
    why = {"permissionDecisionReason": decision.get("message", "Allowed from another device.")}
    return {"hookSpecificOutput": output | why}


_FORMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "copilot": dict,
    "droid": _before_the_call,
}
