"""A message as one line for a person: pure, and safe whatever a message contains."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any, Final

from bridge_project.protocol.types import parse_timestamp

Message = dict[str, Any]

TITLE_CHARS: Final = 24
TEXT_CHARS: Final = 200
PARAM_CHARS: Final = 120
STYLES: Final = {
    "dim": "2",
    "bold": "1",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}

# The parameter that tells what a tool call does, in the order in which they are looked for.
TELLING: Final = (
    "command",
    "file_path",
    "path",
    "pattern",
    "url",
    "query",
    "description",
    "prompt",
)


def plain(text: object, most: int = TEXT_CHARS) -> str:
    """One line of at most ``most`` characters without what could move a cursor, change colours or
    the direction of writing.
    """
    words = " ".join(str(text).split())
    clean = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] == "C" else c
        for c in words[: most + 1]
    )
    return clean if len(clean) <= most else clean[: most - 1] + "…"


class Renderer:
    """Turns messages into lines; it remembers what sessions are called, since most messages name
    only the id.
    """

    def __init__(self, *, colour: bool, zone: tzinfo | None = None) -> None:
        self.colour = colour
        self.zone = zone
        self.titles: dict[str, str] = {}
        self._titled: set[str] = set()

    def line(self, message: Message) -> str:
        """Time, session, what: one line for one message of the server, of whatever shape."""
        payload = message.get("payload")
        body: Message = payload if isinstance(payload, dict) else {}
        self.learn(message)
        kind, style, text = describe(message)
        name = self.titles.get(str(body.get("session_id")), str(body.get("session_id") or "")[:8])
        title = plain(name, TITLE_CHARS).ljust(TITLE_CHARS)
        return f"{self._paint('dim', self._clock(message))}  {self._paint('cyan', title)}  {self._paint(style, plain(kind, 18).ljust(18))}  {text}".rstrip()

    def note(self, text: str, style: str = "dim") -> str:
        """A line of the client's own."""
        return self._paint(style, f"-- {plain(text, 400)}")

    def learn(self, message: Message) -> None:
        """Take a session's title from whatever tells it: the list after connecting, its first
        prompt, else its directory (D6).
        """
        payload = message.get("payload")
        if not isinstance(payload, dict):
            return
        for session in (
            payload.get("active_sessions") or [] if message.get("type") == "connection_ack" else []
        ):
            self.titles[session["session_id"]] = session.get("title") or session["session_id"]
            self._titled.add(session["session_id"])
        session_id = str(payload.get("session_id"))
        inner = payload.get("payload")
        facts = inner if isinstance(inner, dict) else payload
        prompt = str(facts.get("initial_prompt") or facts.get("prompt") or "").strip()
        if message.get("type") == "agent_event" and prompt and session_id not in self._titled:
            self.titles[session_id] = prompt.splitlines()[0]
            self._titled.add(session_id)
        elif facts.get("working_directory") and session_id not in self.titles:
            self.titles[session_id] = (
                os.path.basename(str(facts["working_directory"]).rstrip("/")) or "/"
            )

    def _clock(self, message: Message) -> str:
        """The event's own time where it has one: what was missed shows when it happened. Local
        time, or the zone that was given.
        """
        payload = message.get("payload")
        own = payload.get("timestamp") if isinstance(payload, dict) else None
        try:
            moment = parse_timestamp(str(own or message.get("timestamp")))
        except ValueError:
            return "--:--:--"
        return f"{moment.astimezone(self.zone):%H:%M:%S}"

    def _paint(self, style: str, text: str) -> str:
        return f"\033[{STYLES[style]}m{text}\033[0m" if self.colour and style else text


def describe(message: Message) -> tuple[str, str, str]:
    """What a message is, its style, and what it says; the text is plain."""
    type_ = str(message.get("type"))
    payload = message.get("payload")
    body: Message = payload if isinstance(payload, dict) else {}
    if type_ == "agent_event":
        name = str(body.get("event"))
        inner = body.get("payload")
        style, tell = _EVENTS.get(name, ("", _anything))
        return name, style, plain(tell(inner if isinstance(inner, dict) else {}))
    style, tell = _MESSAGES.get(type_, ("dim", _anything))
    return type_, style, plain(tell(body))


def _call(body: Message) -> str:
    """A tool call: its name, the parameter that tells most, and the agent's own words for it."""
    params = body.get("params")
    known: Message = params if isinstance(params, dict) else {}
    telling = next((name for name in TELLING if known.get(name)), None)
    short = (
        plain(known[telling] if telling else json.dumps(known, ensure_ascii=False), PARAM_CHARS)
        if known
        else ""
    )
    words = body.get("description") or (
        known.get("description") if telling != "description" else ""
    )
    parts = [
        str(body.get("tool")),
        short,
        f"({words})" if words and plain(words) not in (short, str(body.get("tool"))) else "",
    ]
    return " ".join(part for part in parts if part)


def _pre_tool(body: Message) -> str:
    waiting = ", waits for approval" if body.get("requires_approval") is True else ""
    return f"{_call(body)} [{body.get('risk_level', 'risk unknown')}{waiting}]"


def _post_tool(body: Message) -> str:
    took = (
        f" in {body['execution_time_ms']:.0f} ms"
        if isinstance(body.get("execution_time_ms"), (int, float))
        else ""
    )
    return f"{_call(body)}: {'done' if body.get('success') else 'FAILED'}{took}{_failure(body)}"


def _failure(body: Message) -> str:
    result = body.get("result")
    return (
        f": {result['error']}"
        if not body.get("success") and isinstance(result, dict) and result.get("error")
        else ""
    )


def _stop(body: Message) -> str:
    return (
        f"{body.get('reason')}: {body.get('message')}"
        if body.get("message")
        else str(body.get("reason", ""))
    )


def _session_end(body: Message) -> str:
    facts = {
        "exit_reason": "{}",
        "duration_seconds": "{} s",
        "message_count": "{} messages",
        "summary": "{}",
    }
    return ", ".join(
        form.format(body[name]) for name, form in facts.items() if body.get(name) is not None
    )


def _result(body: Message) -> str:
    result = body.get("result")
    outcome: Message = result if isinstance(result, dict) else {}
    return f"{body.get('tool')}: {'ok' if outcome.get('success') else 'FAILED'} {outcome.get('content') or outcome.get('error') or ''}"


def _field(*names: str, between: str = " ") -> Callable[[Message], str]:
    return lambda body: between.join(
        str(body[name]) for name in names if body.get(name) not in (None, "")
    )


def _anything(body: Message) -> str:
    return (
        json.dumps(
            {name: value for name, value in body.items() if name != "session_id"},
            ensure_ascii=False,
        )
        if body
        else ""
    )


def _connected(body: Message) -> str:
    return f"bridge {body.get('server_version')}, {body.get('connection_mode')}, {_count(body.get('active_sessions'))} active sessions"


def _count(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


def _health(body: Message) -> str:
    return f"{body.get('status')} {' '.join(map(str, body['warnings'])) if isinstance(body.get('warnings'), list) else ''}".rstrip()


def _replay(body: Message) -> str:
    return f"{_count(body.get('messages'))} messages that were missed{'' if body.get('complete') else '; older ones are gone'}"


Teller = tuple[str, Callable[[Message], str]]

_EVENTS: Final[Mapping[str, Teller]] = {
    "SessionStart": ("green", _field("working_directory", "initial_prompt", between=": ")),
    "SessionEnd": ("green", _session_end),
    "UserPromptSubmit": ("bold", _field("prompt")),
    "PreToolUse": ("blue", _pre_tool),
    "PostToolUse": ("blue", _post_tool),
    "Stop": ("green", _stop),
    "SubagentStop": ("dim", _field("result", "context")),
    "PreCompact": ("dim", _anything),
    "Notification": ("yellow", _field("level", "message", between=": ")),
}
_MESSAGES: Final[Mapping[str, Teller]] = {
    "connection_ack": ("green", _connected),
    "connection_error": ("red", _field("code", "message", "remediation", between=": ")),
    "health_status": ("dim", _health),
    "session_started": ("green", _field()),
    "session_ready": ("dim", _field("agent", "working_directory", "branch")),
    "session_end": ("green", _field("reason")),
    "tool_call": ("dim", _call),
    "approval_required": ("yellow", lambda body: f"{_call(body)} [{body.get('risk_level')}]"),
    "approval_recorded": ("yellow", _field("decision")),
    "tool_result": ("dim", _result),
    "tool_error": ("red", _field("tool", "code", "message", between=": ")),
    "notification": ("yellow", _field("title", "body", between=": ")),
    "stream_start": ("dim", _field()),
    "stream_chunk": ("", _field("content")),
    "stream_end": ("dim", _field("finish_reason")),
    "replay_buffer": ("dim", _replay),
    "error": ("red", _field("code", "message", between=": ")),
}
