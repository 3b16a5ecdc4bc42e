"""Words of the tests about sessions that the bridge runs: the demo agent, and what it is told."""

import json
from pathlib import Path
from typing import Any

from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import PATIENCE, Message, Phone

AGENT = "demo"


def start(
    phone: Phone,
    directory: Path | str,
    session_id: str | None = None,
    *,
    resume: bool = False,
    agent: str = AGENT,
    timeout: float = PATIENCE,
) -> Message:
    """The answer to a session_start, whichever it is."""
    return phone.answer_to(send_start(phone, directory, session_id, agent, resume=resume), timeout)


def resume(bridge: Bridge, phone: Phone, session_id: str) -> Message:
    return start(phone, bridge.root, session_id, resume=True)


def send_start(
    phone: Phone, directory: Path | str, session_id: str | None, agent: str, *, resume: bool = False
) -> str:
    """A session_start without waiting for the answer; its id."""
    body = {"agent": agent, "session_id": session_id, "resume": resume}
    return phone.send("session_start", body | {"working_directory": str(directory)})


def begin(bridge: Bridge, phone: Phone, session_id: str | None = None, agent: str = AGENT) -> str:
    """A session that works in the bridge's root, joined; its id."""
    ready = start(phone, bridge.root, session_id, agent=agent)
    assert ready["type"] == "session_ready", ready
    return str(ready["payload"]["session_id"])


def say(phone: Phone, session_id: str, content: str) -> str:
    """Send a message; its id."""
    body = {"session_id": session_id, "content": content, "role": "user"}
    return phone.send("message", body)


def ask(phone: Phone, session_id: str, content: str) -> list[Message]:
    """A prompt and its whole answer: the session's messages up to the end of the turn."""
    before = len(phone.messages)
    say(phone, session_id, content)
    phone.until(
        lambda message: (
            message["type"] == "stream_end"
            and message["payload"]["session_id"] == session_id
            and message["payload"]["finish_reason"] != "tool_call"
        ),
        f"the end of {content!r}",
    )
    return [
        message
        for message in phone.messages[before:]
        if message["type"] != "replay_buffer" and message["payload"].get("session_id") == session_id
    ]


def words(messages: list[Message]) -> str:
    return "".join(
        message["payload"]["content"] for message in messages if message["type"] == "stream_chunk"
    )


def answers(phone: Phone, session_id: str) -> list[str]:
    """The answers that have ended, in words."""
    found: dict[str, str] = {}
    for one in of(phone, "stream_chunk", session_id):
        payload = one["payload"]
        found[payload["message_id"]] = found.get(payload["message_id"], "") + payload["content"]
    ended = [one["payload"] for one in of(phone, "stream_end", session_id)]
    assert {one["finish_reason"] for one in ended} <= {"stop", "error"}
    return [found.get(one["message_id"], "") for one in ended]


def tool(phone: Phone, session_id: str, name: str = "Bash", /, **params: Any) -> dict[str, Any]:
    """Have the agent ask for a tool call; the payload of its approval_required."""
    say(phone, session_id, f"/tool {name} {json.dumps(params or {'command': 'make test'})}")
    return question(phone, session_id)


def asked(phone: Phone, session_id: str, content: str = "/ask make test") -> str:
    """Have the scripted agent ask for a call; the call's id."""
    say(phone, session_id, content)
    return str(question(phone, session_id)["tool_call_id"])


def question(phone: Phone, session_id: str) -> dict[str, Any]:
    """The payload of its approval_required."""
    return dict(phone.expect("approval_required", session_id=session_id)["payload"])


def end(phone: Phone, session_id: str) -> Message:
    return phone.request("session_end", {"session_id": session_id, "reason": "user_request"})


def log_of(phone: Phone, session_id: str) -> list[Message]:
    """Everything that is kept of the session, as replay_request gives it."""
    answer = phone.request("replay_request", {"session_id": session_id})
    assert answer["type"] == "replay_buffer", answer
    return list(answer["payload"]["messages"])


def reasons(phone: Phone, session_id: str) -> list[str]:
    return [message["payload"]["finish_reason"] for message in of(phone, "stream_end", session_id)]
