"""Remove from an agent's text the parts meant for its model alone.

Standard library only: the forwarder of another machine carries this module in its one file. The
patterns were seen in claude-code 2.1.330.
"""

from __future__ import annotations

import re

# what an agent's program puts around a prompt that no person wrote (D65)
WRAPPERS = (
    "task-notification",
    "agent-message",
    "cross-session-message",
    "teammate-message",
    "channel",
)
_TASK = "<task-notification>"
_WRAPPED = re.compile(rf"<({'|'.join(WRAPPERS)})(?:\s[^<>]*)?>")
_SUMMARY = re.compile(r"(?:<analysis>.*?</analysis>)?\s*<summary>(.*)</summary>", re.DOTALL)
_ERROR = re.compile(r"<tool_use_error>(.*)</tool_use_error>", re.DOTALL)
_HAND_BACK = re.compile(r"^\[Subagent hand-back\][^\n]*\n", re.MULTILINE)
_AGENT_ID = re.compile(r"\nagentId: \w+(?: \([^\n]*\))?")
_REMINDER, _REMINDER_ENDS = "<system-reminder>", "</system-reminder>"
_NOTE = re.compile(
    r"\(file state is current in your context[^)\n]*\)|\(\w+ completed with no output\)"
)


def made_prompt(prompt: str) -> str | None:
    """Return a prompt that a program made as text, None for a person's own (D65).

    It begins with one of WRAPPERS, or has it below one line that ends with a colon, and its end tag
    follows. Of a background job's report the summary and the result are returned, of another prompt
    all but the tags.
    """
    body, first = prompt.strip(), ""
    line, _, rest = body.partition("\n")
    if not line.startswith("<") and line.rstrip().endswith(":"):
        first, body = line.strip(), rest.lstrip()
    begin = _WRAPPED.match(body)
    inside, ends, after = body[begin.end() :].partition(f"</{begin[1]}>") if begin else ("", "", "")
    if not ends:
        return None
    if body.startswith(_TASK):
        return _report(inside)
    parts = (first, inside.strip(), after.strip())
    return "\n".join(part for part in parts if part) or "Another agent writes."


def _report(text: str) -> str:
    """Return a background job's summary and result."""
    parts = (_between(text, f"<{name}>", f"</{name}>") for name in ("summary", "result"))
    return ": ".join(part.strip() for part in parts if part) or "A background job reports."


def for_person(text: str) -> str:
    """Return an agent's text without the markup for its model.

    It takes time that grows with the text and no faster: a tool may have printed anything.
    """
    if text.lstrip().startswith(_TASK):
        return _report(text)
    bare = text.strip()
    if bare.endswith("</summary>") and (found := _SUMMARY.fullmatch(bare)):
        return found[1].strip()
    if found := _ERROR.fullmatch(text):
        return found[1].strip()
    lines = f"\n{text}".rstrip()
    if (at := lines.rfind("\nagentId: ")) >= 0:
        usage = lines.find("<usage>", at) if lines.endswith("</usage>") else -1
        if _AGENT_ID.fullmatch(lines[at : usage if usage >= 0 else None].rstrip()):
            text = text[: max(at - 1, 0)].rstrip()
    if frame := _HAND_BACK.search(text):  # each line of the report is indented, and nothing else
        report = text[frame.end() :].splitlines()
        text = "\n".join(line[2:] for line in report if line.startswith("  ") or not line)
    at = _note(text.rstrip())
    return text if at < 0 else text[:at].rstrip()


def _between(text: str, begin: str, end: str) -> str:
    """Return what is between the first ``begin`` and the next ``end``, else ""."""
    inside, ends, _ = text.partition(begin)[2].partition(end)
    return inside if ends else ""


def _note(text: str) -> int:
    """Return where the note begins with which a text ends, else -1."""
    if text.endswith(_REMINDER_ENDS):
        before = text.rfind(_REMINDER_ENDS, 0, -len(_REMINDER_ENDS))
        return text.find(_REMINDER, max(before, 0))
    at = text.rfind("(")
    return at if at >= 0 and _NOTE.fullmatch(text, at) else -1
