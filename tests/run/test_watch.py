"""The client side of the conversation, against a scripted server: TLS and pin, joining,
acknowledging, coming back (D43).
"""

import asyncio
import contextlib
import functools
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from bridge_project.kernel import limits
from bridge_project.network.certificate_files import pin_of
from bridge_project.terminal.client import Client, Lost, Refused, Target
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.watcher import Watcher

NOW = "2026-01-31T12:00:00.000Z"
Message = dict[str, Any]
HEALTHY: Message = {"ready": True, "status": "healthy", "warnings": [], "warning_details": {}}
WARNED: Message = HEALTHY | {
    "ready": False,
    "warnings": ["DIRECT_PUBLIC_CONNECTION"],
    "warning_details": {"DIRECT_PUBLIC_CONNECTION": "Public."},
}


def message(type_: str, payload: Message, id_: str | None = None) -> Message:
    return {"type": type_, "id": id_ or str(uuid.uuid4()), "timestamp": NOW, "payload": payload}


def event(prompt: str, id_: str) -> Message:
    name = "UserPromptSubmit"
    body = {"event": name, "event_type": name, "event_id": "e", "session_id": "one"}
    return message("agent_event", body | {"timestamp": NOW, "payload": {"prompt": prompt}}, id_)


@dataclass
class Bridge:
    """One that plays along, and has a session "one". ``heard``: everything received, over all
    connections; ``backlog`` is sent with the greeting, ``history`` after a join.
    """

    target: Target = field(default_factory=lambda: Target(url="", token="t"))
    health: Message = field(default_factory=lambda: HEALTHY)
    refusal: Message | None = None
    backlog: list[Message] = field(default_factory=list)
    history: list[Message] = field(default_factory=list)
    answers_pings: bool = True
    heard: list[Message] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in connection:
                received = json.loads(text)
                for answer in self.answers(received):
                    await connection.send(json.dumps(answer))
                if received["type"] == "auth" and self.refusal:
                    await connection.close(4401)
                async with self.changed:
                    self.heard.append(received)
                    self.changed.notify_all()

    def answers(self, received: Message) -> list[Message]:
        id_, payload = received.get("id"), received.get("payload", {})
        match received["type"]:
            case "auth" if self.refusal:
                return [message("connection_error", self.refusal, id_)]
            case "auth":
                listed = [{"session_id": "one", "agent": "a", "title": "One"}]
                about: Message = {"server_version": "1", "connection_mode": "local_only"}
                about["active_sessions"] = listed
                return [message("connection_ack", about, id_), *self.backlog]
            case "health_check":
                return [message("health_status", self.health, id_)]
            case "acknowledge_warning":
                accepted = {"warning_code": payload["warning_code"], "session_timeout": "8h"}
                return [message("acknowledgment_accepted", accepted | {"ready": True}, id_)]
            case "session_start":
                ready = {"session_id": "one", "agent": "a", "working_directory": "/w"}
                return [message("session_ready", ready, id_), *self.history]
            case "heartbeat_ping" if self.answers_pings:
                return [{"type": "heartbeat_pong", "timestamp": NOW}]
        return []

    def of(self, type_: str) -> list[Message]:
        """The payloads of what was received."""
        return [one.get("payload", {}) for one in self.heard if one["type"] == type_]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(condition)

    async def hears(self, type_: str, count: int = 1) -> None:
        await self.until(lambda: len(self.of(type_)) >= count)

    async def acknowledges(self, count: int) -> None:
        acks = functools.partial(self.of, "notification_ack")
        await self.until(lambda: sum(len(one["notification_ids"]) for one in acks()) == count)


@pytest.fixture
async def bridge() -> AsyncIterator[Bridge]:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    pin = pin_of(ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode()))
    made = Bridge()
    async with serve(made.serve, "127.0.0.1", 0, ssl=context, ping_interval=None) as server:
        url = f"wss://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/api/v1/ws"
        made.target = Target(url=url, token="t", pin=pin, device_id="d")
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECONNECT_DELAYS_SECONDS", (0, 0.01))


class Paired(Identity):
    """Somebody who is paired already; asked where, each time it connects."""

    def __init__(self, where: Callable[[], Target]) -> None:
        self.where = where
        self.known = {"paired_at": "2026-01-31T00:00:00.000Z"}

    def target(self) -> Target:
        return self.where()


Shown = tuple[list[str], list[str]]  # lines, and notes of its own


@contextlib.asynccontextmanager
async def watching(where: Callable[[], Target], **options: Any) -> AsyncIterator[Shown]:
    """A watcher that runs for as long as the context lasts; an error of its own comes out at the
    end.
    """
    lines: list[str] = []
    notes: list[str] = []
    watcher = Watcher(Paired(where), show=lines.append, note=notes.append, **options)
    task = asyncio.create_task(watcher.run())
    try:
        yield lines, notes
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_what_an_agent_tells_of_the_past_is_marked(bridge: Bridge) -> None:
    """D60: a replay_buffer whose source is the agent."""
    told = {"session_id": "one", "messages": [event("long ago", "id-1")], "complete": False}
    bridge.history = [message("replay_buffer", told | {"source": "agent"})] * 2
    async with watching(lambda: bridge.target) as (lines, notes):
        await bridge.acknowledges(2)
    assert notes.count("-- from the agent's own history:") == 1
    assert len([line for line in lines if "long ago" in line]) == 1


@pytest.mark.spec("limit.reconnect")
async def test_the_delays_are_the_specifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert limits.RECONNECT_DELAYS_SECONDS == (1, 2, 5, 10, 30)
    monkeypatch.setattr(limits, "RECONNECT_DELAYS_SECONDS", (0.001, 0.002, 0.005))

    def nothing_yet() -> Target:
        raise Lost("not there yet")

    async with watching(nothing_yet) as (_, notes):
        while len(notes) < 5:
            await asyncio.sleep(0.01)
    delays = [note.rpartition(" in ")[2] for note in notes[:5]]
    assert delays == ["0.001 s", "0.002 s", *["0.005 s"] * 3]


@pytest.mark.spec("limit.pong_wait")
async def test_a_heartbeat_without_an_answer_means_a_new_connection(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARTBEAT_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(limits, "PONG_WAIT_SECONDS", 0.05)
    bridge.answers_pings = False
    async with watching(lambda: bridge.target) as (_, notes):
        await bridge.hears("auth", 2)
    assert any("does not answer the heartbeat" in note for note in notes)


async def test_another_key_is_refused_before_anything_is_sent(bridge: Bridge) -> None:
    with pytest.raises(Refused, match="another key"):
        async with Client.open(Target(url=bridge.target.url, token="t", pin="0" * 64)):
            pass
    assert bridge.heard == []


async def test_a_limit_is_waited_for(bridge: Bridge) -> None:
    bridge.refusal = {"code": "RATE_LIMITED", "message": "Too many."}
    async with watching(lambda: bridge.target) as (_, notes):
        await bridge.hears("auth", 2)
        bridge.refusal = None
        await bridge.hears("health_check")
    assert "RATE_LIMITED: Too many.; trying again" in notes[0]


async def test_a_warning_is_accepted_when_the_person_agrees(bridge: Bridge) -> None:
    bridge.health = WARNED
    asked: list[str] = []

    async def agree(question: str) -> bool:
        asked.append(question)
        return True

    async with watching(lambda: bridge.target, ask=agree):
        await bridge.hears("session_start")
    assert asked == ["DIRECT_PUBLIC_CONNECTION: Public. Go on?"]
    (accepted,) = bridge.of("acknowledge_warning")
    assert accepted["warning_code"] == "DIRECT_PUBLIC_CONNECTION"
    assert accepted["acknowledged"] is True


async def _decline(_question: str) -> bool:
    return False


@pytest.mark.parametrize(("ask", "words"), [(None, "with --yes"), (_decline, "was not accepted")])
async def test_a_warning_that_nobody_accepts_ends_it(
    bridge: Bridge, ask: Callable[[str], Awaitable[bool]] | None, words: str
) -> None:
    bridge.health = WARNED
    watcher = Watcher(Paired(lambda: bridge.target), show=print, note=print, ask=ask)
    with pytest.raises(Refused, match=words):
        async with asyncio.timeout(60):
            await watcher.run()
    assert not bridge.of("acknowledge_warning")


async def test_a_backlog_larger_than_any_buffer_does_not_block_the_answers(bridge: Bridge) -> None:
    bridge.backlog = [event(f"n{number}", f"id-{number}") for number in range(3000)]
    async with watching(lambda: bridge.target) as (lines, _):
        await bridge.acknowledges(3000)
    told = [line.rpartition("  ")[2] for line in lines]
    assert told == [f"n{number}" for number in range(3000)]
