"""Track sessions and approvals in ``watch``, and send its requests."""

from collections.abc import Callable
from typing import Any, Final

from bridge_project.terminal import render
from bridge_project.terminal.client import Client, Message
from bridge_project.terminal.render import clean, plain

ANSWER_CHARS: Final = 8000  # of what an agent says at once


class Wrong(Exception):
    """Report why a command cannot be carried out."""


class Console:
    """Track sessions and approvals from arriving messages; send requests."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self.client: Client | None = None
        # id → open session, as the bridge showed it last; the newest of its list first
        self.sessions: dict[str, Message] = {}
        self.titles: dict[str, str] = {}
        # the session that commands are about
        self.current: str | None = None
        # (session, call) → the approval_required that waits
        self.pending: dict[tuple[str, str], Message] = {}
        # this device's name: notifications of its own decisions are not shown
        self.name: str | None = None
        # message_id → what the agent has said of it so far
        self._answers: dict[str, str] = {}

    def learn(self, message: Message) -> None:
        """Update sessions and approvals from a message."""
        payload = message.get("payload") or {}
        session_id, call_id = str(payload.get("session_id")), str(payload.get("tool_call_id"))
        match message["type"]:
            case "connection_ack":
                self.sessions, self.name = {}, payload.get("device_name")
                self.pending.clear()  # what still waits comes again
                for one in payload["active_sessions"]:
                    self._learn_session(one)
            case "session_started" | "session_update":
                self._learn_session(payload.get("session") or payload)
            case "session_ready":
                self.current = self.current or session_id
            case "session_end":
                self._forget_session(session_id)
            case "approval_required" if "decision" not in payload:
                self.pending[session_id, call_id] = payload
            case "approval_recorded" | "tool_result" | "tool_error":
                self.pending.pop((session_id, call_id), None)
            case "notification" if payload["notification_type"] == "approval_decided":
                self.pending.pop((session_id, str(payload["data"].get("tool_call_id"))), None)

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

    def line(self, message: Message, *, colour: bool = False) -> str | None:
        """Return a new message as a line; an answer's chunks become one, at its end."""
        payload = message.get("payload") or {}
        if message["type"] == "stream_chunk" and not payload["is_tool_use"]:
            said = self._answers.get(payload["message_id"], "") + payload["content"]
            self._answers[payload["message_id"]] = said[:ANSWER_CHARS]
        if message["type"] == "stream_end":
            said = self._answers.pop(payload["message_id"], "")
            if not said.strip() and payload["finish_reason"] == "tool_call":
                return None
            message = {**message, "type": "answer", "payload": {**payload, "content": said}}
        session_id = str(payload.get("session_id") or "")
        by = (payload.get("data") or {}).get("device")
        if payload.get("notification_type") == "approval_decided" and by and by == self.name:
            return None
        return render.line(message, self.titles.get(session_id, session_id[:8]), colour=colour)

    async def ask(self, type_: str, **payload: Any) -> Message:
        """Send a request about the chosen session; return its answer's payload.

        Raises Wrong with the error's words.
        """
        answer = await self._connected.request(type_, self._about(payload))
        self.learn(answer)
        body: Message = answer.get("payload") or {}
        if answer["type"] == "error":
            raise Wrong(f"{body.get('code')}: {clean(body.get('message'))}")
        return body

    async def send(self, type_: str, **payload: Any) -> None:
        """Send a message without an answer, about the chosen session."""
        await self._connected.send(type_, self._about(payload))

    def show(self, *lines: str) -> None:
        for line in lines:
            self._show(line)

    def _about(self, payload: Message) -> Message:
        return payload if "session_id" in payload else {"session_id": self.session} | payload

    @property
    def _connected(self) -> Client:
        if self.client is None:
            raise Wrong("There is no connection at the moment.")
        return self.client

    @property
    def session(self) -> str:
        """Return the session that commands are about. Raises Wrong."""
        if self.current is None:
            raise Wrong("No session is chosen: `sessions` lists them, `use N` chooses one.")
        return self.current

    def called(self, session_id: str) -> str:
        """Return a session's id and title, what its agent does, or that it is paused."""
        one = self.sessions.get(session_id, {})
        turn, doing = one.get("turn", "idle"), one.get("doing") or {}
        does = f"({turn}) {plain(doing.get('summary', ''), 80)}" if turn != "idle" else ""
        if (status := one.get("session_status")) in ("paused", "error"):
            does = f"({status}: `resume` has it go on)"
        title = plain(self.titles.get(session_id, ""), 80)
        return "  ".join(filter(None, [clean(session_id), title, does])).rstrip()

    def named(self, word: str) -> str:
        """Return the session of a number in `sessions`, else the one with that id."""
        number = int(word) if word.isdecimal() else 0
        return list(self.sessions)[number - 1] if 1 <= number <= len(self.sessions) else word

    def waiting(self, number: str, *, question: bool = False) -> Message:
        """Return the approval of that number, or the only one, or the only question.

        Raises Wrong.
        """
        asked = list(self.pending.values())
        fitting = [one for one in asked if not question or render.questions(one)]
        if not fitting:
            raise Wrong("No question waits." if question else "Nothing waits for a decision.")
        if not number and len(fitting) == 1:
            return fitting[0]
        chosen = int(number) if number.isdecimal() else 0
        if not 1 <= chosen <= len(asked):
            raise Wrong(f"{len(fitting)} wait: `approvals` lists them; say which number.")
        return asked[chosen - 1]
