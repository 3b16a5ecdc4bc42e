"""Rebuild what came before a session's log from the agent's records (D29, D60)."""

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bridge_project.kernel import limits, pictures
from bridge_project.kernel.text import clean
from bridge_project.protocol import server_messages as s
from bridge_project.protocol.base import ServerPayload
from bridge_project.protocol.catalogue import encode
from bridge_project.protocol.types import now_text
from sessions_app.agents import registry
from sessions_app.agents.driver import HistoryMessage
from sessions_app.agents.inbox import prompt_event
from sessions_app.agents.supervisor import supervisor
from sessions_app.log.reader import COLUMNS, Row, size_of
from sessions_app.models import LogRow, Session

_PROMPT = '"UserPromptSubmit"'
_IDS = uuid.UUID("0d6c1d0e-8a53-4f0b-9a35-6a1f3c1d7b52")  # the namespace of the messages' ids


def frames_before(feed_id: int) -> list[str]:
    """Return the conversation before the log's rows of a session that began elsewhere."""
    if not Session.objects.filter(feed_id=feed_id, began_elsewhere=True).exists():
        return []
    prompts = LogRow.objects.filter(feed=feed_id, type="agent_event", frame__contains=_PROMPT)
    return frames_of(feed_id, [Row(*row) for row in prompts.order_by("seq").values_list(*COLUMNS)])


def frames_of(feed_id: int, rows: Sequence[Row]) -> list[str]:
    """Return the conversation before ``rows`` as messages, the newest that fit.

    The same words have the same ids each time. Empty when the agent has kept nothing.
    """
    session = Session.objects.filter(feed_id=feed_id).first()
    if session is None:
        return []
    frames: list[str] = []
    left = limits.REPLAY_BUFFER_BYTES
    kind = registry.KINDS.get(session.agent_type)
    if kind is not None and kind.history is not None and session.resume_id:
        messages = kind.history(session.resume_id)
    else:
        messages = supervisor.history(session.pk)
    for message in reversed(_messages(session, _before(messages, rows))):
        left -= sum(map(size_of, message))
        if left < 0:
            break
        frames = [*message, *frames]
    return frames


def _before(messages: Sequence[HistoryMessage], rows: Sequence[Row]) -> Sequence[HistoryMessage]:
    """Return what was said before the first prompt in ``rows``."""
    events = [json.loads(row.frame)["payload"] for row in rows if row.type == "agent_event"]
    prompts = [
        clean(str(event["payload"].get("prompt", ""))).strip()
        for event in events
        if event["event"] == "UserPromptSubmit"
    ]
    if not prompts:
        return messages
    first = HistoryMessage(prompts[0], by_agent=False)
    places = [place for place, one in enumerate(messages) if one == first]
    known = prompts.count(prompts[0])  # the same words may have been said before
    return messages[: places[-known]] if len(places) >= known else messages


def _messages(session: Session, messages: Sequence[HistoryMessage]) -> list[list[str]]:
    """Return each prompt and answer as the messages in which it was first sent."""
    found, seen = [], Counter[HistoryMessage]()
    # Agents do not say when; all of it is older than the rows that the log has.
    began = now_text(session.created_at)
    for one in messages:
        seen[one] += 1
        key = f"{session.session_id}\n{one.by_agent}\n{seen[one]}\n{one.text}"
        payloads = _payloads(session.session_id, one, str(uuid.uuid5(_IDS, key)), began)
        ids = (str(uuid.uuid5(_IDS, f"{key}\n{number}")) for number in range(len(payloads)))
        sent = zip(payloads, ids, strict=True)
        found.append([encode(payload, id=id_, timestamp=began).text for payload, id_ in sent])
    return found


def _payloads(
    session_id: str, message: HistoryMessage, own_id: str, began: str
) -> list[ServerPayload]:
    text = pictures.name_in_text(message.text)
    if len(text) > limits.STREAM_CHUNK_CHARS:
        text = f"{text[: limits.STREAM_CHUNK_CHARS]}\n[cut: {len(text)} characters in all]"
    if not message.by_agent:
        prompt = prompt_event(
            session_id, prompt=text, source="agent", device=None, message_id=own_id, queued=False
        )
        return [prompt.model_copy(update={"event_id": own_id, "timestamp": began})]
    ids: dict[str, Any] = {"session_id": session_id, "message_id": own_id}
    return [
        s.StreamStart(**ids),
        s.StreamChunk(**ids, content=text, is_tool_use=False),
        s.StreamEnd(**ids, finish_reason="stop"),
    ]
