"""Write messages and answers as safe lines for a terminal. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any, Final

from bridge_project.kernel.text import terminal_safe
from bridge_project.protocol.types import parse_timestamp
from sessions_app.approvals.tool_call import TELLING_PARAMETERS

Message = dict[str, Any]
Writer = Callable[[Message], str]

DIM, BOLD, RED, GREEN, YELLOW, BLUE, CYAN = 2, 1, 31, 32, 33, 34, 36


def clean(text: object, most: int = 1000) -> str:
    """Return one line, tabs included, with control characters replaced."""
    shown = str("" if text is None else text).rstrip("\r\n")
    safe = terminal_safe(shown[: most + 1], keep="\t")
    return safe if len(safe) <= most else safe[: most - 1] + "…"


def plain(text: object, most: int = 200) -> str:
    """Return one line of at most ``most`` characters, with single spaces."""
    return clean(" ".join(str(text).split()), most)


def paint(text: str, style: int) -> str:
    return f"\033[{style}m{text}\033[0m" if style else text


def line(
    message: Message, title: str, *, colour: bool = False, zone: tzinfo | None = None
) -> str | None:
    """Return time, session and content of a message; None for a silent one.

    The time is the event's own where it has one: when it happened, not when it came.
    """
    payload = _object(message.get("payload"))
    name, body, writers = str(message.get("type")), payload, _MESSAGES
    if name == "agent_event":
        name, body, writers = str(body.get("event")), _object(body.get("payload")), _EVENTS
    if name in _SILENT or body.get("notification_type") == "approval_required":
        return None
    style, write = writers.get(name, (DIM, _anything))
    try:
        moment = parse_timestamp(str(payload.get("timestamp") or message.get("timestamp")))
        clock = f"{moment.astimezone(zone):%H:%M:%S}"
    except ValueError:
        clock = "--:--:--"
    kind, text = plain(name, 18).ljust(18), "\n".join(map(clean, write(body).splitlines()))
    columns = ((clock, DIM), (plain(title, 24).ljust(24), CYAN), (kind, style))
    shown = [paint(column, style if colour else 0) for column, style in columns]
    return "  ".join([*shown, text.replace("\n", "\n" + " " * 10)]).rstrip()


def _object(value: object) -> Message:
    return value if isinstance(value, dict) else {}


def _call(body: Message) -> str:
    """Describe a tool call: name, main parameter, and the agent's own words."""
    params = _object(body.get("params"))
    telling = next((name for name in TELLING_PARAMETERS if params.get(name)), None)
    shown = params[telling] if telling else json.dumps(params, ensure_ascii=False)
    short = plain(shown, 120) if params else ""
    words = plain(body.get("description") or params.get("description") or "")
    tool = plain(body.get("tool"))
    more = "" if words in ("", short, tool, f"{tool}: {short}") else f"({words})"
    return " ".join(part for part in (tool, short, more) if part)


def _asks(body: Message) -> str:
    """What a person is asked, or was, and where."""
    where = ", asks at the machine" if body.get("source") == "hooks" else ""
    decided = f", {body['decision']} already" if body.get("decision") else ""
    return f"{_call(body)} [{body.get('risk_level')}{decided or where}]"


def _prompt(body: Message) -> str:
    return plain(body.get("prompt") or "") + (" (queued)" if body.get("queued") is True else "")


def _pre_tool(body: Message) -> str:
    waits = ", waits for approval" if body.get("requires_approval") is True else ""
    return f"{_call(body)} [{body.get('risk_level', 'risk unknown')}{waits}]"


def _post_tool(body: Message) -> str:
    if not body.get("success"):
        error = _object(body.get("result")).get("error")
        return f"{_call(body)}: FAILED" + (f": {plain(error)}" if error else "")
    took = body.get("execution_time_ms")
    return f"{_call(body)}: done" + (f" in {took:.0f} ms" if isinstance(took, (int, float)) else "")


def _result(body: Message) -> str:
    outcome = _object(body.get("result"))
    said = plain(outcome.get("content") or outcome.get("error") or "")
    return f"{plain(body.get('tool'))}: {'ok' if outcome.get('success') else 'FAILED'} {said}"


def _answer(body: Message) -> str:
    """Return the agent's text since the last tool call, and why it ended."""
    said, reason = str(body.get("content") or "").strip(), str(body.get("finish_reason"))
    ended = "" if reason == "tool_call" or (said and reason == "stop") else f"({reason})"
    return f"{said}\n{ended}".strip()


def _fields(*names: str, between: str = ": ") -> Writer:
    return lambda body: plain(
        between.join(str(body[name]) for name in names if body.get(name) not in (None, ""))
    )


def _anything(body: Message) -> str:
    known = {name: value for name, value in body.items() if name != "session_id"}
    return plain(json.dumps(known, ensure_ascii=False)) if known else ""


_SILENT: Final = {
    "connection_ack",
    "health_status",
    "session_ready",
    "session_update",
    "stream_start",
    "stream_chunk",
}
_EVENTS: Final[Mapping[str, tuple[int, Writer]]] = {
    "SessionStart": (GREEN, _fields("working_directory", "initial_prompt")),
    "SessionEnd": (GREEN, _fields("exit_reason", "summary")),
    "UserPromptSubmit": (BOLD, _prompt),
    "PreToolUse": (BLUE, _pre_tool),
    "PostToolUse": (BLUE, _post_tool),
    "Stop": (GREEN, _fields("reason", "message")),
    "SubagentStop": (DIM, _fields("result", "context", between=" ")),
    "Notification": (YELLOW, _fields("level", "message")),
}
_MESSAGES: Final[Mapping[str, tuple[int, Writer]]] = {
    "session_started": (GREEN, _fields()),
    "session_end": (GREEN, _fields("reason")),
    "answer": (0, _answer),
    "tool_call": (DIM, _call),
    "approval_required": (YELLOW, _asks),
    "tool_result": (DIM, _result),
    "tool_error": (RED, _fields("tool", "code", "message")),
    "notification": (YELLOW, _fields("title", "body")),
    "error": (RED, _fields("code", "message")),
}


# -- answers to commands ---------------------------------------------------------------------------


def status(answer: Message) -> list[str]:
    ways = [f", {word} {answer[word]}" for word in ("ahead", "behind") if answer.get(word)]
    return [
        clean(answer["branch"]) + "".join(ways) + (", clean" if answer["is_clean"] else ""),
        *(
            (
                f"  {one['status']:<9} +{one['additions']:<5} -{one['deletions']:<5}"
                f" {clean(one['path'])}"
            )
            for one in answer["changes"]
        ),
    ]


def commit(answer: Message) -> list[str]:
    made = answer.get("commit") or {}
    what = f"{made.get('files_changed')} files, +{made.get('additions')} -{made.get('deletions')}"
    line = f"{clean(made.get('hash'))[:12]}  {clean(made.get('summary'))}  ({what})"
    return [line, *status(answer)]


def diff(answer: Message) -> list[str]:
    signs, lines = {"context": " ", "added": "+", "removed": "-"}, []
    for file in answer["files"]:
        was = f" (was {clean(file['old_path'])})" if file["status"] == "renamed" else ""
        counts = f"+{file['additions']} -{file['deletions']}"
        lines.append(f"{file['status']}: {clean(file['path'])}{was}  {counts}")
        for hunk in file["hunks"]:
            lines.append(clean(hunk["header"]))
            lines += [signs[line["type"]] + clean(line["content"]) for line in hunk["lines"]]
        lines += ["(cut: the file's diff is longer)"] if file.get("truncated") else []
    return lines + (["(cut: there are more files)"] if answer.get("truncated") else [])


def entries(answer: Message) -> list[str]:
    lines = [clean(answer["path"])]
    for one in answer["entries"]:
        end = "/" if one["type"] == "directory" else ""
        lines.append(f"{one.get('size', '')!s:>12}  {clean(one['name'])}{end}")
    return lines + (["(cut: there are more)"] if answer.get("truncated") else [])


def content(answer: Message, offset: int) -> list[str]:
    if answer.get("encoding") == "base64":
        return [f"{clean(answer['path'])}: binary, {answer['size']} bytes"]
    lines = answer["content"].splitlines()
    return [f"{number:>6}  {clean(line)}" for number, line in enumerate(lines, offset + 1)]
