"""Read a session's conversation from claude-code's own transcript."""

from collections.abc import Iterator, Sequence
from typing import Any

from claude_agent_sdk import get_session_info, get_session_messages

from bridge_project.kernel import limits
from sessions_app.agents.driver import HistoryMessage
from sessions_app.agents.sanitize import clean

_SUMMARY = "This session is being continued from a previous conversation"  # its own, in our place
_NOT_SAID = (  # in the person's place, by the program
    *("<command-", "<local-command-", "<task-notification>", "<system-reminder>"),
    "[Request interrupted by user",
)


def read_transcript(resume_id: str) -> Sequence[HistoryMessage]:
    """Read the messages of a session's transcript, without tool calls; () if missing.

    It is looked for in all projects: in the project's own the SDK would run git.
    """
    info = get_session_info(resume_id)
    if info is None or (info.file_size or 0) > limits.AGENT_HISTORY_FILE_BYTES:
        return ()
    return [
        HistoryMessage(text, by_agent=message.type == "assistant" or text.startswith(_SUMMARY))
        for message in get_session_messages(resume_id)
        if message.parent_tool_use_id is None
        for text in _texts(message.message)
    ]


def _texts(message: Any) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            text = clean(str(block.get("text", ""))).strip()
            if text and not text.startswith(_NOT_SAID):
                yield text
