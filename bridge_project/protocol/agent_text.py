"""Remove from an agent's text the parts meant for its model alone.

Standard library only: the forwarder of another machine carries this module in its one file. The
patterns were seen in claude-code 2.1.330.
"""

from __future__ import annotations

import re

_TASK = re.compile(r"\s*<task-notification>.*", re.DOTALL)
_TASK_PART = r"<{0}>(.*?)</{0}>"
_SUMMARY = re.compile(r"\s*(?:<analysis>.*?</analysis>)?\s*<summary>(.*)</summary>\s*", re.DOTALL)
_ERROR = re.compile(r"<tool_use_error>(.*)</tool_use_error>", re.DOTALL)
_HAND_BACK = re.compile(r"^\[Subagent hand-back\][^\n]*\n", re.MULTILINE)
_AGENT_ID = re.compile(
    r"\s*^agentId: \w+(?: \([^\n]*\))?\s*(?:<usage>.*</usage>\s*)?\Z", re.MULTILINE | re.DOTALL
)
_NOTE = re.compile(
    r"\s*(?:<system-reminder>(?:(?!</system-reminder>).)*</system-reminder>"
    r"|\(file state is current in your context[^)\n]*\)|\(\w+ completed with no output\))\s*\Z",
    re.DOTALL,
)


def is_task_notification(prompt: str) -> bool:
    """Return whether the agent wrote a prompt to itself, about a background job."""
    return _TASK.fullmatch(prompt) is not None


def for_person(text: str) -> str:
    """Return an agent's text without the markup for its model."""
    if is_task_notification(text):
        parts = (
            re.search(_TASK_PART.format(name), text, re.DOTALL) for name in ("summary", "result")
        )
        return ": ".join(part[1].strip() for part in parts if part) or "A background job reports."
    for whole in (_SUMMARY, _ERROR):
        if found := whole.fullmatch(text):
            return found[1].strip()
    text = _AGENT_ID.sub("", text)
    if frame := _HAND_BACK.search(text):  # each line of the report is indented, and nothing else
        lines = text[frame.end() :].splitlines()
        text = "\n".join(line[2:] for line in lines if line.startswith("  ") or not line)
    return _NOTE.sub("", text)
