"""Write messages and answers as safe lines for a terminal. Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from bridge_project.kernel.text import terminal_safe
from bridge_project.protocol.types import parse_timestamp
from sessions_app.approvals.tool_call import TELLING_PARAMETERS, Question, questions_of

Message = dict[str, Any]
Writer = Callable[[Message], str]

ASKED_CHARS: Final = 600  # longest description of a call that waits for a decision
DIM, BOLD, RED, GREEN, YELLOW, CYAN = 2, 1, 31, 32, 33, 36


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


def line(message: Message, title: str, *, colour: bool = False) -> str | None:
    """Return time, session and content of a message; None for a silent one.

    The time is the event's own where it has one: when it happened, not when it came.
    """
    payload = _object(message.get("payload"))
    name, body, writers = str(message.get("type")), payload, _MESSAGES
    if name == "agent_event":
        name, body, writers = str(body.get("event")), _object(body.get("payload")), _EVENTS
        if _object(body.get("context")).get("synthetic") is True:
            name, body = "SubagentStop", {"result": body.get("prompt")}
    about, of_stop = body.get("notification_type"), "reason" in _object(body.get("data"))
    told_already = about == "approval_required" or (about in ("task_complete", "error") and of_stop)
    if name not in writers or told_already:
        return None
    kind, style, write = writers[name]
    try:
        moment = parse_timestamp(str(payload.get("timestamp") or message.get("timestamp")))
        clock = f"{moment.astimezone():%H:%M:%S}"
    except ValueError:
        clock = "--:--:--"
    text = "\n".join(map(clean, write(body).splitlines()))
    columns = ((clock, DIM), (plain(title, 24).ljust(24), CYAN), (kind.ljust(7), style))
    shown = [paint(column, style if colour else 0) for column, style in columns]
    return "  ".join([*shown, text.replace("\n", "\n" + " " * 10)]).rstrip()


def _object(value: object) -> Message:
    return value if isinstance(value, dict) else {}


def questions(body: Message) -> list[Question]:
    """Return the questions that a call asks a person."""
    return questions_of(str(body.get("tool")), _object(body.get("params")))


def _call(body: Message, most: int = 120) -> str:
    """Describe a call: name, main parameter up to ``most``, the agent's own words."""
    params = _object(body.get("params"))
    telling = next((name for name in TELLING_PARAMETERS if params.get(name)), None)
    words = plain(body.get("description") or params.get("description") or "")
    if telling is None and words:
        return words
    value = (params[telling] if telling else json.dumps(params)) if params else ""
    tool, short = plain(body.get("tool")), plain(value, most)
    known = ("", tool, plain(value), plain(f"{tool}: {value}"))
    more = "" if words in known else f"({words})"
    return " ".join(part for part in (tool, short, more) if part)


def _asks(body: Message) -> str:
    """Describe what a person is or was asked, and where."""
    asked = bool(questions(body))
    where = "asks at the machine" if body.get("source") == "hooks" else "answer N" * asked
    notes = [f"{body['decision']} already" if body.get("decision") else where]
    if asked:
        return f"{body.get('description')}\n[{notes[0]}]"
    notes.insert(0, str(body.get("risk_level")))
    return f"{_call(body, ASKED_CHARS)} [{', '.join(filter(None, notes))}]"


def _prompt(body: Message) -> str:
    return plain(body.get("prompt") or "") + (" (queued)" if body.get("queued") is True else "")


def _result(body: Message) -> str:
    outcome = _object(body.get("result"))
    ok, said, why = (outcome.get(name) for name in ("success", "content", "error"))
    return f"{plain(body.get('tool'))}: " + (
        f"ok {plain(said or '')}" if ok else f"FAILED {plain(why or said or '')}"
    )


def _answer(body: Message) -> str:
    """Return the agent's text since the last tool call, and why it ended."""
    said = str(body.get("content") or body.get("message") or "").strip()
    reason = str(body.get("finish_reason") or body.get("reason") or "")
    usual = reason in ("", "tool_call") or (said and reason in ("stop", "task_completed"))
    return f"{said}\n{'' if usual else f'({reason})'}".strip()


def _started(body: Message) -> str:
    one = _object(body.get("session"))
    return plain(
        f"{one.get('agent', '')} in {one.get('working_directory') or 'an unknown directory'}"
    )


def _notice(body: Message) -> str:
    """Return a notification, without its title if the body begins with the same words."""
    title, text = (str(body.get(name) or "") for name in ("title", "body"))
    of = title.partition(":")[0]
    return plain(text if text.startswith(of) else f"{title}: {text}")


def _error(body: Message) -> str:
    text = f"{body.get('code')}: {body.get('message')}"
    return plain(text.replace("session_start with its id and resume true", "`resume`"))


def _field(name: str) -> Writer:
    return lambda body: plain(body.get(name) or "")


# Events that are not listed are not shown: tool calls and results come as messages of their own,
# and a notification says the rest.
_EVENTS: Final[Mapping[str, tuple[str, int, Writer]]] = {
    "UserPromptSubmit": ("prompt", BOLD, _prompt),
    "Stop": ("answer", 0, _answer),
    "SubagentStop": ("report", DIM, _field("result")),
}
_MESSAGES: Final[Mapping[str, tuple[str, int, Writer]]] = {
    "session_started": ("started", GREEN, _started),
    "session_end": ("ended", GREEN, _field("reason")),
    "answer": ("answer", 0, _answer),
    "tool_call": ("calls", DIM, _call),
    "approval_required": ("asks", YELLOW, _asks),
    "tool_result": ("result", DIM, _result),
    "notification": ("notice", YELLOW, _notice),
    "error": ("error", RED, _error),
}


def status(answer: Message) -> list[str]:
    ways = [f", {word} {answer[word]}" for word in ("ahead", "behind") if answer.get(word)]
    return [
        clean(answer["branch"]) + "".join(ways) + (", clean" if answer["is_clean"] else ""),
        *(
            f"  {one['status']:<9} +{one['additions']:<5} -{one['deletions']:<5}"
            f" {clean(one['path'])}"
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
