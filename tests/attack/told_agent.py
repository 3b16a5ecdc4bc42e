"""An ACP agent that does whatever its prompt says, which is Python: the attacks are in the tests.

Standard library only. `SESSION` is the id that it names in what it sends; a prompt may set another.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SESSION = ""
answers: dict[Any, Any] = {}
numbers = iter(range(1, 10**9))


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
    sys.stdout.flush()


def update(what: str, **parts: Any) -> None:
    send(
        method="session/update",
        params={"sessionId": SESSION, "update": {"sessionUpdate": what} | parts},
    )


def say(text: str) -> None:
    update("agent_message_chunk", content={"type": "text", "text": text})


def request(method: str, **params: Any) -> int:
    """Ask the bridge for something; the number of the answer."""
    number = next(numbers)
    send(id=number, method=method, params={"sessionId": SESSION} | params)
    return number


def ask(call_id: str, **call: Any) -> int:
    """Ask for permission, and do not wait."""
    kinds = ("allow_once", "reject_once")
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]
    call = {"toolCallId": call_id, "status": "pending"} | call
    return request("session/request_permission", toolCall=call, options=options)


def answer(number: int) -> dict[str, Any]:
    """What the bridge answered; empty when it refused."""
    while number not in answers:
        message = json.loads(sys.stdin.readline())
        if "method" not in message:
            answers[message["id"]] = message.get("result") or {}
    return dict(answers[number])


def allowed(number: int) -> bool:
    return bool(answer(number).get("outcome", {}).get("optionId") == "allow_once")


def main() -> None:
    global SESSION
    while line := sys.stdin.readline():
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if method == "initialize":
            send(id=id_, result={"protocolVersion": 1, "agentCapabilities": {}})
        elif method == "session/new":
            SESSION = f"told-{id(message)}"
            send(id=id_, result={"sessionId": SESSION})
        elif method == "session/prompt":
            exec(message["params"]["prompt"][0]["text"], globals())
            send(id=id_, result={"stopReason": "end_turn"})


if __name__ == "__main__":
    main()
