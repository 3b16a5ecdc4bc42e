"""A week of use in minutes, and what is left of it in the bridge's memory.

SOAK_EVENTS says how many events: a week has 100,000, and with them 1,000 sessions of hooks, 10,000
connections and 1,000 sessions that the bridge runs.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import time
from typing import Any

import pytest

from hooks_app.producer.translate import translate
from tests.conformance.agent_tools import Script, figure
from tests.conformance.bridge import eventually
from tests.conformance.samples import new_id, new_session, now
from tests.faults.memory import Look, WatchedBridge
from tests.performance.hooks import ASKS, WORK, captured
from tests.performance.sockets import Socket

EVENTS = int(os.environ.get("SOAK_EVENTS", "0"))
pytestmark = [
    pytest.mark.skipif(not EVENTS, reason="a week's use: make soak"),
    pytest.mark.timeout(600 + EVENTS // 20),
]

EACH = 100  # events of a session; with each come ten connections and one session of an agent
CONNECTIONS = 10
POSTERS, PHONES, RUNNERS = 2, 4, 4
PARTS = 10  # of the week
FIRST = 40  # sessions of hooks before it, so that the rows kept at hand are as many as they get
# Objects of a type, and bytes, that each part may leave: in a whole week an object for two
# sessions. What is kept at hand is now more and now less, so the part counts that left the least.
LEFT_OBJECTS = max(POSTERS, EVENTS // EACH // PARTS) // 2
LEFT_RESIDENT = 2**20
PROCESSES = 10  # of so many sessions of an agent one is that of a process
AT_ONCE = 500  # acknowledged in one message
WAITS = 60.0
NAMES = ["SessionStart-startup", *(WORK[number % len(WORK)] for number in range(EACH - 4))]
NAMES += [ASKS, "Stop", "SessionEnd-other"]
RAW = [captured(name) for name in NAMES]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedBridge]:
    script = Script(tmp_path, "plain")
    settings = {"BRIDGE_MAX_WEBSOCKETS": "40", "BRIDGE_ACP_AGENTS": script.setting}
    bridge = WatchedBridge(tmp_path / "week", **settings)
    bridge.start()
    yield bridge
    bridge.stop()
    script.assert_gone()


# -- what comes ------------------------------------------------------------------------------------


def story(session: str) -> list[dict[str, Any]]:
    """A session's events as its captured hooks report them."""
    events, call = [], ""
    for name, captured_one in zip(NAMES, RAW, strict=True):
        if name.startswith(("PreToolUse", "PermissionRequest")):
            call = f"toolu_{new_id()}"
        raw = captured_one | {"session_id": session}
        raw |= {"tool_use_id": call} if "tool_use_id" in raw else {}
        event = translate(raw, now=time(), mtime=time(), event_id=new_id())
        assert event is not None, name
        events.append(event)
    return events


async def post(bridge: WatchedBridge, count: int, recent: list[str], rng: random.Random) -> None:
    """Sessions one after the other, in batches and event by event."""
    https = bridge.https()
    connection = https.open()
    for _ in range(count):
        session = new_session()
        left = story(session)
        while left:
            several = rng.choice((1, 1, 5, 30))
            batch, left = left[:several], left[several:]
            path, body = ("event", batch[0]) if several == 1 else ("batch", {"events": batch})
            more: dict[str, Any] = {"token": bridge.hook_token, "json_body": body}
            more["connection"] = connection
            answer = await asyncio.to_thread(https.post, f"/api/v1/hooks/{path}", **more)
            assert answer.status == 200, answer
        recent.append(session)
    connection.close()


async def take(opened: Socket, *types: str, session: str | None = None) -> dict[str, Any]:
    """The next message of these types and of the session; no end that waits for a tool."""
    async with asyncio.timeout(WAITS):
        while True:
            for message in opened.messages:
                type_, payload = message["type"], message.get("payload", {})
                if (
                    type_ in types
                    and session in (None, payload.get("session_id"))
                    and payload.get("finish_reason") != "tool_call"
                ):
                    opened.messages.remove(message)
                    return message
                assert type_ not in ("error", "connection_error"), message
            opened.came.clear()
            await opened.came.wait()


def acknowledge(opened: Socket) -> int:
    """Acknowledge what came, and forget it; how much it was."""
    ids = [message["id"] for message in opened.messages if "id" in message]
    for start in range(0, len(ids), AT_ONCE):
        opened.tell("notification_ack", notification_ids=ids[start : start + AT_ONCE])
    opened.messages.clear()
    return len(ids)


async def connect(
    bridge: WatchedBridge, token: str, count: int, recent: list[str], rng: random.Random
) -> None:
    """A phone that comes, and leaves or vanishes: one time of five before it has said who it is."""
    for _ in range(count):
        way = rng.random()
        if way < 0.05:  # speaks no TLS, or goes in the middle of it
            _, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
            writer.write(rng.choice((b"", b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n")))
            with suppress(OSError):
                await writer.drain()
            writer.transport.abort()
            continue
        opened = await Socket.open(bridge.port, deflate=rng.random() < 0.3)
        if way < 0.12:
            opened.tell("auth", token="x" * 43, client_version="1.0.0", platform="ios")
        elif way > 0.2:
            opened.tell("auth", token=token, client_version="1.0.0", platform="ios")
            told = await take(opened, "connection_ack", "connection_error")
            if told["type"] == "connection_error":
                assert told["payload"]["code"] == "CONN_TIMEOUT", told  # the machine was busy
                continue
            about = {"client_nonce": new_id(), "client_capabilities": ["health_v1"]}
            opened.tell("health_check", timestamp=now(), **about)
            await take(opened, "health_status")
            if recent and rng.random() < 0.3:
                await opened.join(recent[-1])
            for _ in range(rng.choice((1, 50))):
                opened.tell("heartbeat_ping")
                await take(opened, "heartbeat_pong")
                if not acknowledge(opened):
                    break  # all that waited has come
            if rng.random() < 0.4:
                opened.close()
        if rng.random() < 0.7:
            opened.transport.abort()
        else:
            opened.close()
        async with asyncio.timeout(WAITS):
            await opened.ended


async def run_agents(bridge: WatchedBridge, token: str, count: int) -> None:
    """Sessions of an agent: a prompt, a tool that is allowed, the end."""
    opened = await (await Socket.open(bridge.port)).ready(token)
    for number in range(count):
        agent, tool = ("plain", "/run") if number % PROCESSES == 0 else ("demo", "/tool Bash")
        new = {"session_id": None, "working_directory": str(bridge.root), "resume": False}
        opened.tell("session_start", agent=agent, **new)
        session = (await take(opened, "session_ready"))["payload"]["session_id"]
        opened.tell("message", session_id=session, content="hello", role="user")
        await take(opened, "stream_end", session=session)
        command = "true" if agent == "plain" else '{"command": "true"}'
        opened.tell("message", session_id=session, content=f"{tool} {command}", role="user")
        asked = (await take(opened, "approval_required", session=session))["payload"]
        about = {"session_id": session, "tool_call_id": asked["tool_call_id"]}
        opened.tell("approval_response", decision="approved", modifications=None, **about)
        await take(opened, "stream_end", session=session)
        opened.tell("session_end", session_id=session, reason="user_request")
        await take(opened, "session_end", session=session)
        acknowledge(opened)
    opened.close()
    await opened.ended


async def part(bridge: WatchedBridge, tokens: list[str], rng: random.Random) -> None:
    sessions, recent = max(POSTERS, EVENTS // EACH // PARTS), list[str]()
    async with asyncio.TaskGroup() as group:
        for _ in range(POSTERS):
            group.create_task(post(bridge, sessions // POSTERS, recent, rng))
        for token in tokens[RUNNERS:]:
            count = sessions * CONNECTIONS // PHONES
            group.create_task(connect(bridge, token, count, recent, rng))
        for token in tokens[:RUNNERS]:
            group.create_task(run_agents(bridge, token, sessions // RUNNERS))


# -- what is left ----------------------------------------------------------------------------------


def settle(bridge: WatchedBridge) -> Look:
    """What it holds once nobody is connected and no session runs."""

    def quiet() -> bool:
        health = bridge.get("/api/v1/health", bridge.admin_token).json()
        return bool(health["active_websockets"] == health["active_sessions"] == 0)

    eventually(quiet, 120)
    return bridge.look()


def test_a_week(watched: WatchedBridge) -> None:
    """Nothing grows with the events, sessions and connections that have been."""
    rng = random.Random(17)
    tokens = [watched.device_token() for _ in range(RUNNERS + PHONES)]
    asyncio.run(post(watched, FIRST, [], rng))
    looks = []
    for number in range(PARTS):
        asyncio.run(part(watched, tokens, rng))
        looks.append(settle(watched))
        figure(f"part {number + 1}: {looks[-1]}")
    figure(looks[-1].more_than(looks[0]))
    steps = list(pairwise(looks))
    assert min(after.trimmed - before.trimmed for before, after in steps) < LEFT_RESIDENT
    grown = {
        name: min(after.types.get(name, 0) - before.types.get(name, 0) for before, after in steps)
        for name in looks[-1].types
    }
    assert {name: count for name, count in grown.items() if count > LEFT_OBJECTS} == {}
    assert not Counter(looks[-1].tasks) - Counter(looks[0].tasks)
    for what in ("files", "threads"):  # pools of threads have their bounds, and open what they use
        counts = [sum(getattr(look, what).values()) for look in looks]
        assert min(after - before for before, after in pairwise(counts)) <= 0, (what, counts)
