"""Write a person's decision as a hook of the agent prints it (D66). Pure."""

from typing import Any

from bridge_project.protocol import jsontext
from sessions_app.approvals.tool_call import PLAN

REFUSED = "The user refused this from another device."


def answer_of(tool: str, decided: dict[str, Any]) -> str:
    """Return the output of a PermissionRequest hook.

    ``decided``: decision, modifications and reason. A plan is approved only by an answer with
    parameters; those that are left out stay as they are.
    """
    decision: dict[str, Any] = {"behavior": "allow"}
    if decided["decision"] == "rejected":
        decision = {"behavior": "deny", "message": decided["reason"] or REFUSED}
    elif decided["decision"] == "modified":
        decision["updatedInput"] = decided["modifications"]
    elif tool == PLAN:
        decision["updatedInput"] = {}
    output = {"hookEventName": "PermissionRequest", "decision": decision}
    return jsontext.dumps({"hookSpecificOutput": output})
