"""A device that speaks the bridge's protocol: every wait has a condition and a deadline."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from websockets.exceptions import ConnectionClosed

from tests.conformance.https import Dial, Https, assert_now, assert_types, parse_time, strict_json
from tests.conformance.samples import new_id, now
from tests.servers import PATIENCE
from tests.websocket import WebSocket

__all__ = ["PATIENCE", "Closed", "Message", "Phone", "brief", "check_envelope"]

Message = dict[str, Any]


class Closed(Exception):
    """The server closed the connection; 1006: without a close frame."""

    def __init__(self, error: ConnectionClosed) -> None:
        self.code = error.rcvd.code if error.rcvd else 1006
        super().__init__(f"closed with {self.code}")


@dataclass(eq=False)
class Phone:
    """One connection of a device at a time; `messages` is everything received on it, in order."""

    port: int
    token: str
    pin: str | None = None
    _: KW_ONLY
    device_id: str | None = None
    client_version: str = "1.2.3"
    plain: bool = False
    source: str | None = None
    dial: Dial | None = None
    compress: bool = False  # offer permessage-deflate

    host = "127.0.0.1"
    messages: list[Message] = field(default_factory=list, init=False)
    untaken: list[Message] = field(default_factory=list, init=False)
    # views of sessions, which come whenever they like (D54)
    updates: list[Message] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.socket: WebSocket | None = None

    # connecting

    @property
    def connected(self) -> bool:
        return self.socket is not None and not self.socket.ended

    def connect(self, *, headers: dict[str, str] | None = None) -> Phone:
        """Upgrade only. Raises websockets' InvalidStatus when refused."""
        self.messages, self.untaken, self.updates = [], [], []
        stream = self.stream()
        scheme = "ws" if self.plain else "wss"
        uri = f"{scheme}://{self.host}:{self.port}/api/v1/ws"
        try:
            self.socket = WebSocket(stream, uri, headers=headers, compress=self.compress)
        except BaseException:
            stream.close()
            raise
        return self

    def stream(self) -> socket.socket:
        https = Https(self.port, self.pin, source=self.source, plain=self.plain, dial=self.dial)
        return https.stream()

    def auth(self, **payload: Any) -> Message:
        """Send auth and return the answer, whichever it is."""
        body = {"token": self.token, "client_version": self.client_version, "platform": "ios"}
        if self.device_id is not None:
            body["device_id"] = self.device_id
        return self.request("auth", body | payload)

    def health_check(self, **payload: Any) -> Message:
        body = {
            "timestamp": now(),
            "client_nonce": new_id(),
            "client_capabilities": ["health_v1", "acknowledgment_v1"],
        }
        return self.request("health_check", body | payload)

    def ready(self) -> Phone:
        """connect, auth and health_check; AssertionError unless it is ready then."""
        self.connect()
        acknowledged = self.auth()
        assert acknowledged["type"] == "connection_ack", acknowledged
        status = self.health_check()
        assert status["type"] == "health_status" and status["payload"]["ready"] is True, status
        return self

    def again(self) -> Phone:
        self.close()
        return self.ready()

    def join(self, session_id: str, *, resume: bool = False) -> Message:
        answer = self.start(session_id, resume=resume)
        assert answer["type"] == "session_ready", answer
        return answer

    def start(self, session_id: str | None, *, resume: bool = False) -> Message:
        session = {"agent": "primary-agent", "session_id": session_id, "working_directory": "/"}
        return self.request("session_start", session | {"resume": resume})

    def leave(self, session_id: str) -> None:
        """session_end of an observed session has no answer: a pong after it says it is done."""
        self.send("session_end", {"session_id": session_id, "reason": "user_request"})
        self.ping()

    # sending

    def send(self, type_: str, payload: Any, **envelope: Any) -> str:
        message = {"type": type_, "id": new_id(), "timestamp": now(), "payload": payload} | envelope
        self.send_raw(json.dumps(message))
        return str(message["id"])

    def send_raw(self, data: str | bytes) -> None:
        assert self.socket is not None
        try:
            self.socket.send(data)
        except ConnectionClosed as error:
            raise Closed(error) from None

    def request(self, type_: str, payload: Any, timeout: float = PATIENCE) -> Message:
        """Send and wait for the message that carries the request's id (D4)."""
        return self.answer_to(self.send(type_, payload), timeout, type_)

    def answer_to(self, sent: str, timeout: float = PATIENCE, what: str = "it") -> Message:
        return self.until(lambda message: message.get("id") == sent, f"answer to {what}", timeout)

    def ping(self) -> Message:
        self.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
        return self.until(lambda message: message["type"] == "heartbeat_pong", "heartbeat_pong")

    def ack(self, *what: Message | str) -> None:
        """Acknowledge messages or ids; its pong says that they are read, not yet stored."""
        ids = [item if isinstance(item, str) else item["id"] for item in what]
        self.send("notification_ack", {"notification_ids": ids})
        self.ping()

    # receiving

    def receive(self, timeout: float = PATIENCE) -> Message:
        """The next frame. Raises TimeoutError, or Closed."""
        assert self.socket is not None
        try:
            text = self.socket.recv(timeout)
        except ConnectionClosed as error:
            raise Closed(error) from None
        assert isinstance(text, str), f"a binary frame: {text!r}"
        message = strict_json(text)
        check_envelope(message)
        if message["type"] == "session_update":
            self.updates.append(message["payload"]["session"])
        else:
            self.messages.append(message)
            self.untaken.append(message)
        return dict(message)

    def _receive_by(self, deadline: float, what: str) -> None:
        try:
            self.receive(max(0.01, deadline - time.monotonic()))
        except TimeoutError:
            raise AssertionError(f"not in time: {what}; received {brief(self.messages)}") from None

    def until(
        self, wanted: Callable[[Message], bool], what: str, timeout: float = PATIENCE
    ) -> Message:
        """Take the oldest message not taken yet that is `wanted`."""
        deadline, looked_at = time.monotonic() + timeout, 0
        while True:
            for message in self.untaken[looked_at:]:
                if wanted(message):
                    self.untaken.remove(message)
                    return message
            looked_at = len(self.untaken)
            try:
                self._receive_by(deadline, what)
            except Closed as closed:
                said = f"{closed} while waiting for {what}; received {brief(self.messages)}"
                raise AssertionError(said) from closed

    def expect(self, type_: str, timeout: float = PATIENCE, **fields: Any) -> Message:
        """The oldest message not taken yet of that type whose payload has those fields."""

        def wanted(message: Message) -> bool:
            return message["type"] == type_ and all(
                message["payload"].get(name) == value for name, value in fields.items()
            )

        return self.until(wanted, f"{type_} {fields or ''}", timeout)

    def collect(self, enough: Callable[[], bool], what: str, timeout: float = PATIENCE) -> None:
        """Receive until `enough` of what is in `messages`."""
        deadline = time.monotonic() + timeout
        while not enough():
            self._receive_by(deadline, what)

    def numbers(self, session_id: str) -> list[Any]:
        """`payload.number` of each agent_event of that session on this connection, in order."""
        return [event["payload"]["payload"].get("number") for event in self.events(session_id)]

    def events(self, session_id: str) -> list[Message]:
        events = [message for message in self.messages if message["type"] == "agent_event"]
        return [event for event in events if event["payload"]["session_id"] == session_id]

    def wait_numbers(
        self, session_id: str, expected: Iterable[Any], timeout: float = PATIENCE
    ) -> list[Message]:
        """Receive as many agent_events of the session as expected; they must be these, in order."""
        numbers = list(expected)
        self.collect(
            lambda: len(self.events(session_id)) >= len(numbers), f"events {numbers}", timeout
        )
        assert self.numbers(session_id) == numbers
        return self.events(session_id)

    def wait_closed(self, timeout: float = PATIENCE) -> int:
        """Receive until the server closes; the close code."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._receive_by(deadline, "the end of the connection")
            except Closed as closed:
                return closed.code

    def forget(self) -> None:
        self.messages.clear()
        self.untaken.clear()

    def stay(self, seconds: float) -> None:
        """Let so much time pass, and show now and then that it is there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.ping()
            with suppress(TimeoutError):
                self.receive(min(0.2, max(0.01, until - time.monotonic())))

    # leaving

    def close(self) -> None:
        """Close in order, as far as the server plays along."""
        if self.socket is not None:
            with suppress(TimeoutError):
                self.socket.close(timeout=2)

    def vanish(self) -> None:
        """Let the network go away: no close frame."""
        if self.socket is not None:
            self.socket.abort()


def brief(messages: list[Message]) -> str:
    last = [f"{one['type']} {json.dumps(one.get('payload'))[:200]}" for one in messages[-12:]]
    return json.dumps(last, indent=1)


def check_envelope(message: Message) -> None:
    """Every message has type, id, timestamp and payload; a heartbeat the first and third (D4)."""
    if message.get("type") == "heartbeat_pong":
        assert set(message) == {"type", "timestamp"}, message
        assert_now(message["timestamp"])
        return
    assert_types(message, type=str, id=str, payload=dict)
    assert message["id"]
    parse_time(message["timestamp"])
