"""Track sessions and approvals in ``watch``, from the messages that arrive."""

from typing import Final

from bridge_project.terminal import render
from bridge_project.terminal.client import Client, Message
from bridge_project.terminal.render import clean, plain

ANSWER_CHARS: Final = 8000  # of what an agent says at once


class Console:
    """Track sessions and approvals, and write messages as lines."""

    def __init__(self) -> None:
        self.client: Client | None = None  # once commands can be sent over it
        # id → open session, as the bridge showed it last; the newest of its list first
        self.sessions: dict[str, Message] = {}
        self.titles: dict[str, str] = {}
        self.current: str | None = None  # the session that commands are about
        self.pending: dict[tuple[str, str], Message] = {}  # (session, call) → approval_required
        self.name: str | None = None  # this device's, whose own decisions are not shown
        self._answers: dict[str, str] = {}  # message_id → what the agent has said of it so far

    def learn(self, message: Message) -> None:
        """Update sessions and approvals from a message."""
        payload = message.get("payload") or {}
        call = payload.get("data") or payload
        key = str(payload.get("session_id")), str(call.get("tool_call_id"))
        match message["type"]:
            case "connection_ack":
                self.sessions, self.name = {}, payload.get("device_name")
                self.pending.clear()  # what still waits comes again
                for one in payload["active_sessions"]:
                    self._learn_session(one)
            case "session_started" if message["timestamp"] < self._updated_at(key[0]):
                pass  # missed, and older than what connection_ack has told
            case "session_started" | "session_update":
                self._learn_session(payload.get("session") or payload)
            case "session_ready" if key[0] in self.sessions:  # it may have ended meanwhile
                self.current = self.current or key[0]
            case "session_end":
                self.titles[key[0]] = payload.get("title") or self.titles.get(key[0], key[0][:8])
                self._forget_session(key[0])
            case "approval_required" if "decision" not in payload:
                self.pending[key] = payload
            case "approval_recorded" | "tool_result" | "tool_error":
                self.pending.pop(key, None)
            case "notification" if payload["notification_type"] == "approval_decided":
                self.pending.pop(key, None)

    def _updated_at(self, session_id: str) -> str:
        return str(self.sessions.get(session_id, {}).get("last_activity_at", ""))

    def _learn_session(self, one: Message) -> None:
        self.titles[one["session_id"]] = one.get("title") or one["session_id"][:8]
        if one.get("session_status") == "closed":
            self._forget_session(one["session_id"])
        else:
            self.sessions[one["session_id"]] = one

    def _forget_session(self, session_id: str) -> None:
        self.sessions.pop(session_id, None)
        self.pending = {key: one for key, one in self.pending.items() if key[0] != session_id}
        self.current = None if self.current == session_id else self.current

    def called(self, session_id: str) -> str:
        """Return a session's id, title and present work, as `watch` names it."""
        one = self.sessions.get(session_id, {})
        does = one.get("turn", "idle")
        if (status := one.get("session_status")) in ("paused", "error"):
            does = f"{status}: `resume` has it go on"
        title = plain(self.titles.get(session_id, ""), 80)
        return f"{clean(session_id)}  {title}" + (f"  ({does})" if does != "idle" else "")

    def line(self, message: Message, *, colour: bool = False) -> str | None:
        """Return a new message as a line; an answer's chunks become one, at its end."""
        payload = message.get("payload") or {}
        if message["type"] == "stream_chunk" and not payload["is_tool_use"]:
            answer = self._answers.get(payload["message_id"], "") + payload["content"]
            self._answers[payload["message_id"]] = answer[:ANSWER_CHARS]
        if message["type"] == "stream_end":
            answer = self._answers.pop(payload["message_id"], "")
            if not answer.strip() and payload["finish_reason"] == "tool_call":
                return None
            message = {**message, "type": "answer", "payload": {**payload, "content": answer}}
        by = (payload.get("data") or {}).get("device")
        if payload.get("notification_type") == "approval_decided" and by and by == self.name:
            return None
        session_id = str(payload.get("session_id") or "")
        return render.line(message, self.titles.get(session_id, session_id[:8]), colour=colour)
