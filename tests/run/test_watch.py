"""The client side of the conversation, against a scripted server: TLS and pin, joining,
acknowledging, coming back (D43).
"""

from __future__ import annotations

import asyncio
import contextlib
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


def message(type_: str, payload: Message, id_: str | None = None) -> Message:
    return {"type": type_, "id": id_ or str(uuid.uuid4()), "timestamp": NOW, "payload": payload}


def event(session_id: str, prompt: str, id_: str | None = None) -> Message:
    name = "UserPromptSubmit"
    body = {"event": name, "event_type": name, "event_id": "e", "session_id": session_id}
    return message("agent_event", body | {"timestamp": NOW, "payload": {"prompt": prompt}}, id_)


@dataclass
class Script:
    """A bridge that plays along. ``heard``: everything received, over all connections; ``live``:
    sent after a join, once for each connection.
    """

    sessions: list[str] = field(default_factory=list)
    health: Message = field(default_factory=lambda: HEALTHY)
    refusal: Message | None = None
    backlog: list[Message] = field(default_factory=list)
    live: dict[str, list[Message]] = field(default_factory=dict)
    answers_pings: bool = True
    heard: list[Message] = field(default_factory=list)
    connections: list[ServerConnection] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
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
        name = payload.get("session_id")
        match received["type"]:
            case "auth" if self.refusal:
                return [message("connection_error", self.refusal, id_)]
            case "auth":
                named = [{"session_id": s, "agent": "a", "title": s.upper()} for s in self.sessions]
                about = {"server_version": "1", "connection_mode": "local_only"}
                greeting = about | {"active_sessions": named}
                return [message("connection_ack", greeting, id_), *self.backlog]
            case "health_check":
                return [message("health_status", self.health, id_)]
            case "acknowledge_warning":
                accepted = {"warning_code": payload["warning_code"], "session_timeout": "8h"}
                return [message("acknowledgment_accepted", accepted | {"ready": True}, id_)]
            case "session_start" if payload["resume"]:
                refused = {"code": "SESS_NOT_FOUND", "message": "unknown", "recoverable": False}
                return [message("error", refused | {"session_id": name}, id_)]
            case "session_start":
                ready = {"session_id": name, "agent": "a", "working_directory": "/w"}
                return [message("session_ready", ready, id_), *self.live.get(name, [])]
            case "heartbeat_ping" if self.answers_pings:
                return [{"type": "heartbeat_pong", "timestamp": NOW}]
        return []

    async def hears(self, enough: Callable[[list[Message]], Any]) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: enough(self.heard))

    def acknowledged(self) -> list[str]:
        return [
            id_
            for one in self.heard
            if one["type"] == "notification_ack"
            for id_ in one["payload"]["notification_ids"]
        ]

    def joined(self) -> list[str]:
        return [
            one["payload"]["session_id"] for one in self.heard if one["type"] == "session_start"
        ]


@dataclass
class Bridge:
    script: Script
    target: Target


@pytest.fixture(scope="module")
def certificate() -> trustme.LeafCert:
    return trustme.CA().issue_cert("127.0.0.1")


@pytest.fixture
async def bridge(certificate: trustme.LeafCert) -> AsyncIterator[Bridge]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    pin = pin_of(ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode()))
    script = Script()
    async with serve(script.serve, "127.0.0.1", 0, ssl=context, ping_interval=None) as server:
        url = f"wss://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/api/v1/ws"
        yield Bridge(script, Target(url=url, token="t", pin=pin, device_id="d"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECONNECT_DELAYS_SECONDS", (0, 0.01))


@dataclass
class Screen:
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Fixed(Identity):
    """Somebody who is paired already; asked where, each time it connects."""

    def __init__(self, where: Callable[[], Target]) -> None:
        self.where = where
        self.known = {"paired_at": "2026-01-31T00:00:00.000Z"}

    def target(self) -> Target:
        return self.where()


@contextlib.asynccontextmanager
async def watching(
    bridge: Bridge, where: Callable[[], Target] | None = None, **options: Any
) -> AsyncIterator[Screen]:
    """A watcher that runs for as long as the context lasts; an error of its own comes out at the
    end.
    """
    screen = Screen()
    device = Fixed(where or (lambda: bridge.target))
    options |= {"show": screen.lines.append, "note": screen.notes.append}
    task = asyncio.create_task(Watcher(device, **options).run())
    try:
        yield screen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def ends(bridge: Bridge, **options: Any) -> Refused:
    """The reason for which a watcher gives up."""
    watcher = Watcher(Fixed(lambda: bridge.target), show=print, note=print, **options)
    with pytest.raises(Refused) as caught:
        async with asyncio.timeout(60):
            await watcher.run()
    return caught.value


async def test_what_an_agent_tells_of_the_past_is_marked(bridge: Bridge) -> None:
    """D60: a replay_buffer whose source is the agent."""
    bridge.script.sessions = ["one"]
    told = {"session_id": "one", "messages": [event("one", "long ago", "id-1")], "complete": False}
    buffer = message("replay_buffer", told | {"source": "agent"})
    bridge.script.live = {"one": [buffer, buffer]}
    async with watching(bridge) as screen:
        await bridge.script.hears(lambda _: len(bridge.script.acknowledged()) == 2)
    assert screen.notes.count("-- from the agent's own history:") == 1
    assert len([line for line in screen.lines if "long ago" in line]) == 1


@pytest.mark.spec("limit.reconnect")
async def test_the_delays_are_the_specifications(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert limits.RECONNECT_DELAYS_SECONDS == (1, 2, 5, 10, 30)
    monkeypatch.setattr(limits, "RECONNECT_DELAYS_SECONDS", (0.001, 0.002, 0.005))

    def nothing_yet() -> Target:
        raise Lost("not there yet")

    async with watching(bridge, nothing_yet) as screen:
        while len(screen.notes) < 5:
            await asyncio.sleep(0.01)
    delays = [note.rpartition(" in ")[2] for note in screen.notes[:5]]
    assert delays == ["0.001 s", "0.002 s", *["0.005 s"] * 3]


@pytest.mark.spec("limit.pong_wait")
async def test_a_heartbeat_without_an_answer_means_a_new_connection(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARTBEAT_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(limits, "PONG_WAIT_SECONDS", 0.05)
    bridge.script.answers_pings = False
    async with watching(bridge) as screen:
        await bridge.script.hears(lambda heard: sum(one["type"] == "auth" for one in heard) == 2)
    assert any("does not answer the heartbeat" in note for note in screen.notes)


async def test_another_key_is_refused_before_anything_is_sent(bridge: Bridge) -> None:
    with pytest.raises(Refused, match="another key"):
        async with Client.open(Target(url=bridge.target.url, token="t", pin="0" * 64)):
            pass
    assert bridge.script.connections == []


async def test_a_limit_is_waited_for(bridge: Bridge) -> None:
    bridge.script.refusal = {"code": "RATE_LIMITED", "message": "Too many."}
    async with watching(bridge) as screen:
        await bridge.script.hears(lambda heard: len(heard) == 2)
        bridge.script.refusal = None
        await bridge.script.hears(lambda heard: any(one["type"] == "health_check" for one in heard))
    assert "RATE_LIMITED: Too many.; trying again" in screen.notes[0]


def _warned(script: Script) -> None:
    warned = {"ready": False, "status": "warning", "warnings": ["DIRECT_PUBLIC_CONNECTION"]}
    script.health = warned | {"warning_details": {"DIRECT_PUBLIC_CONNECTION": "Public."}}


async def test_a_warning_is_accepted_when_the_person_agrees(bridge: Bridge) -> None:
    _warned(bridge.script)
    bridge.script.sessions = ["one"]
    asked: list[str] = []

    async def agree(question: str) -> bool:
        asked.append(question)
        return True

    async with watching(bridge, ask=agree):
        await bridge.script.hears(lambda _: bridge.script.joined())
    assert asked == ["DIRECT_PUBLIC_CONNECTION: Public. Go on?"]
    accepted = next(one for one in bridge.script.heard if one["type"] == "acknowledge_warning")
    assert accepted["payload"]["warning_code"] == "DIRECT_PUBLIC_CONNECTION"
    assert accepted["payload"]["acknowledged"] is True


async def _decline(_question: str) -> bool:
    return False


@pytest.mark.parametrize(("ask", "words"), [(None, "with --yes"), (_decline, "was not accepted")])
async def test_a_warning_that_nobody_accepts_ends_it(
    bridge: Bridge, ask: Callable[[str], Awaitable[bool]] | None, words: str
) -> None:
    _warned(bridge.script)
    assert words in str(await ends(bridge, ask=ask))
    assert not [one for one in bridge.script.heard if one["type"] == "acknowledge_warning"]


async def test_a_backlog_larger_than_any_buffer_does_not_block_the_answers(bridge: Bridge) -> None:
    bridge.script.backlog = [event("one", f"n{number}", f"id-{number}") for number in range(3000)]
    async with watching(bridge) as screen:
        await bridge.script.hears(lambda _: len(bridge.script.acknowledged()) == 3000)
    assert [line.rpartition("  ")[2] for line in screen.lines] == [
        f"n{number}" for number in range(3000)
    ]
