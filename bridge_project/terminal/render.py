"""Write messages and answers as safe lines for a terminal. Pure."""

import json
from typing import Any, Final

from bridge_project.kernel.terminal_output import shown_output
from bridge_project.kernel.text import terminal_safe
from bridge_project.protocol.types import parse_timestamp
from sessions_app.approvals.tool_call import MAIN_PARAMETERS, Question, questions_of

Message = dict[str, Any]

UNNAMED: Final = "primary-agent"  # the protocol's name of an agent without another
CALL_CHARS: Final = 600  # longest description of a call that waits for a decision
DIM, BOLD, RED, GREEN, YELLOW, CYAN = 2, 1, 31, 32, 33, 36


def clean(text: object, most: int = 1000) -> str:
    """Return one line, tabs included, with control characters replaced."""
    safe = terminal_safe(str(text or "").rstrip("\r\n")[: most + 1], keep="\t")
    return safe if len(safe) <= most else safe[: most - 1] + "…"


def plain(text: object, most: int = 200) -> str:
    """Return one line of at most ``most`` characters, with single spaces."""
    return clean(" ".join(str(text or "").split()), most)


def output(text: object, most: int = 200) -> str:
    """Return what a program wrote, as a terminal shows it, in one line."""
    return plain(shown_output(str(text or "")), most)


def paint(text: str, style: int) -> str:
    return f"\033[{style}m{text}\033[0m" if style else text


def line(message: Message, title: str, *, colour: bool = False) -> str | None:
    """Return a message's time, session and content; None when nothing is shown."""
    payload = _object(message.get("payload"))
    name, body = str(message["type"]), payload
    if name == "agent_event":
        name, body = str(payload.get("event")), _object(payload.get("payload"))
        if _object(body.get("context")).get("synthetic") is True:
            name, body = "SubagentStop", {"result": body.get("prompt")}
    if (content := _content(name, body)) is None:
        return None
    kind, style, text = content
    moment = parse_timestamp(payload.get("timestamp") or message["timestamp"])
    text = ("\n" + " " * 10).join(map(clean, text.splitlines()))
    columns = (
        (f"{moment.astimezone():%H:%M:%S}", DIM),
        (plain(title, 24).ljust(24), CYAN),
        (kind.ljust(7), style),
    )
    shown = [paint(column, style if colour else 0) for column, style in columns]
    return "  ".join([*shown, text]).rstrip()


def agent(one: Message) -> str:
    """Return the name of a session's agent."""
    return "an agent" if one.get("agent") == UNNAMED else clean(one.get("agent"))


def _content(name: str, body: Message) -> tuple[str, int, str] | None:
    """Return a message's kind, colour and text; None for what another message says."""
    match name:
        case "session_started":
            one = _object(body.get("session"))
            where = one.get("working_directory") or "an unknown directory"
            return "started", GREEN, plain(f"{agent(one)} in {where}")
        case "session_end":
            return "ended", GREEN, plain(body.get("reason"))
        case "UserPromptSubmit":
            queued = " (queued)" if body.get("queued") is True else ""
            return "prompt", BOLD, plain(body.get("prompt")) + queued
        case "tool_call":
            label = _object(body.get("rule")).get("label")
            return "calls", DIM, _call(body) + (f" [by your rule: {plain(label)}]" if label else "")
        case "approval_required":
            return "asks", YELLOW, _asks(body)
        case "tool_result":
            return "result", DIM, _result(body)
        case "answer" | "Stop":
            return "answer", 0, _answer(body)
        case "SubagentStop":
            return "report", DIM, output(body.get("result"))
        case "notification":
            return _notice(body)
        case "error":
            return "error", RED, output(f"{body.get('code')}: {body.get('message')}")
    return None


def _object(value: object) -> Message:
    return value if isinstance(value, dict) else {}


def questions(body: Message) -> list[Question]:
    """Return the questions that a call asks a person."""
    return questions_of(str(body.get("tool")), _object(body.get("params")))


def _call(body: Message, most: int = 120) -> str:
    """Describe a call by its main parameter, else by the words that came with it."""
    params = _object(body.get("params"))
    main = next((name for name in MAIN_PARAMETERS if params.get(name)), None)
    if main is None and body.get("description"):
        return plain(body["description"])
    value = params[main] if main else json.dumps(params)
    one_line = str(value).replace("\n", " \u23ce ")  # it may end a comment
    return f"{plain(body.get('tool'))} {plain(one_line, most)}"


def _asks(body: Message) -> str:
    """Describe what a person is or was asked, and where."""
    here = " and here" if body.get("answerable") else ""
    where = f"asks at the machine{here}" if body.get("source") == "hooks" else ""
    where = f"{body['decision']} already" if body.get("decision") else where
    if questions(body):
        return f"{body.get('description')}\n[{where or 'answer N'}]"
    risk = str(body.get("risk_level"))
    ways = [f"\napprove {one['id']}: {one['name']}" for one in body.get("options") or []]
    if not body.get("decision"):
        offers = body.get("remember") or []
        ways += [f"\napprove {one['id']}: {plain(_offer(one), 400)}" for one in offers]
    return f"{_call(body, CALL_CHARS)} [{', '.join(filter(None, (risk, where)))}]{''.join(ways)}"


def _offer(rule: Message) -> str:
    return f"for this session, {rule['label']} ({rule['covers']}; not {rule['not']})"


def rule(one: Message) -> str:
    """Write a rule of a session, who set it and how often it was used."""
    times = "once" if one["used"] == 1 else f"{one['used']} times"
    return f"{plain(one['label'])}  ({plain(one['device'])}, used {times})"


def _result(body: Message) -> str:
    outcome = _object(body.get("result"))
    content = output(outcome.get("content"))
    if outcome.get("success"):
        return f"{plain(body.get('tool'))}: ok {content}"
    return f"{plain(body.get('tool'))}: FAILED {output(outcome.get('error')) or content}"


def _answer(body: Message) -> str:
    """Return the agent's text since the last tool call, and why it ended."""
    text = shown_output(str(body.get("content") or body.get("message") or "")).strip()
    reason = str(body.get("finish_reason") or body.get("reason") or "")
    usual = reason in ("", "tool_call") or (text and reason in ("stop", "task_completed"))
    return f"{text}\n{'' if usual else f'({reason})'}".strip()


def _notice(body: Message) -> tuple[str, int, str] | None:
    """Write a notification, unless the message before it says the same."""
    kind, of_stop = body.get("notification_type"), "reason" in _object(body.get("data"))
    of_call = kind == "approval_required" and "tool_call_id" in _object(body.get("data"))
    if of_call or kind == "task_complete" or (kind == "error" and of_stop):
        return None
    title, text = str(body.get("title")), str(body.get("body"))
    starts_alike = text.startswith(title.partition(":")[0])
    return "notice", YELLOW, plain(text if starts_alike else f"{title}: {text}")


def status(answer: Message) -> list[str]:
    """List branch and changes, of a commit too."""
    ways = [f", {word} {answer[word]}" for word in ("ahead", "behind") if answer.get(word)]
    lines = [clean(answer["branch"]) + "".join(ways) + (", clean" if answer["is_clean"] else "")]
    if made := answer.get("commit"):
        what = f"({made['files_changed']} files, +{made['additions']} -{made['deletions']})"
        lines.insert(0, f"{clean(made['hash'])[:12]}  {clean(made['summary'])}  {what}")
    for one in answer["changes"]:
        counts = f"+{one['additions']:<5} -{one['deletions']:<5}"
        lines.append(f"  {one['status']:<9} {counts} {clean(one['path'])}")
    return lines


def programs(details: Message) -> list[str]:
    """List the programs that a repository brings."""
    return [
        f"  {clean(one['kind'])} {clean(one['name'])}  "
        + clean(one.get("command") or one.get("path"))
        for one in details["programs"]
    ]
