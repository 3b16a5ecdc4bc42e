"""How `watch` connects: a public bridge's warning, a full one, another key (D15, D23, D24, D43)."""

import asyncio
import contextlib
import json
import ssl
from pathlib import Path
from typing import cast

import pytest
import trustme
from websockets.asyncio.client import ClientConnection

from bridge_project.kernel import limits
from bridge_project.terminal.client import Client, Lost, Message, Refused, Target, converse
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.watcher import Watcher
from tests.faults.quick import QuickBridge
from tests.run.terminal import Program


def watch(bridge: QuickBridge, *words: str, terminal: bool = False) -> Program:
    return Program(bridge.environment, "watch", *words, terminal=terminal)


def test_it_connects_when_it_may(tmp_path: Path) -> None:
    """Not without the person's consent to a warning, nor to another key; when there is room."""
    settings = {"BRIDGE_PUBLIC_URL": "https://bridge.example", "BRIDGE_MAX_WEBSOCKETS": "1"}
    with QuickBridge(tmp_path, **settings) as bridge:
        with watch(bridge) as program:
            program.until("DIRECT_PUBLIC_CONNECTION: ", "with --yes")
            assert program.ended() == 1
        with watch(bridge, terminal=True) as program:
            program.until("DIRECT_PUBLIC_CONNECTION: ", "Go on? [y/N]")
            program.ask("n", "The warning was not accepted.")
            assert program.ended() == 1
        assert bridge.phone().connect().auth()["type"] == "connection_ack"
        with watch(bridge, "--yes") as program:
            program.until("RATE_LIMITED: ", "trying again in 1 s")
            bridge.hang_up()
            program.until("connected to")
        here = json.loads((bridge.data / "server.json").read_text())
        (bridge.data / "server.json").write_text(json.dumps(here | {"pin": "ab" * 32}))
        with watch(bridge) as program:
            program.until("another key than the bridge")
            assert program.ended() == 1


class Scripted:
    """A connection that answers a request with messages which carry its id."""

    def __init__(self, *answers: Message) -> None:
        self.answers = answers
        self.given: asyncio.Queue[Message] = asyncio.Queue()

    async def send(self, text: str) -> None:
        if (sent := json.loads(text))["type"] != "notification_ack":
            for answer in self.answers:
                self.given.put_nowait(answer | {"id": sent["id"]})

    async def recv(self) -> str:
        return json.dumps(await self.given.get())


async def test_what_a_person_asks_for_only_teaches() -> None:
    """Answers are learned, and not taken; a code is one of an error only in an error."""
    taken: list[Message] = []
    learned: list[Message] = []
    read = {"type": "file_content", "payload": {"code": "CONN_REPLACED"}}
    over = {"type": "error", "payload": {"code": "CONN_REPLACED"}}
    connection = cast(ClientConnection, Scripted(read, over))
    client = Client(connection, taken.append, learned.append)
    reading = asyncio.create_task(client.read())
    answer = await client.request("file_read", {})
    assert (answer["type"], learned, taken) == ("file_content", [answer], [])
    with pytest.raises(Refused):
        await reading


async def test_another_key_gets_no_byte_of_http() -> None:
    got: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            got.append(await reader.read(1))
        writer.transport.abort()
        over.set()

    async def talk(client: Client) -> None:
        raise AssertionError("it was let in")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        url = f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/v1/ws"
        nothing: list[Message] = []
        with pytest.raises(Refused, match="another key"):
            await converse(Target(url, "t", "ab" * 32), nothing.append, nothing.append, talk)
        await over.wait()
    assert b"".join(got) == b""


class Unpaired:
    """Whoever cannot connect yet, but was paired at this moment."""

    known = {"paired_at": "2026-01-31T00:00:00.000Z"}

    def target(self) -> Target:
        raise Lost("not there yet")


def watcher(lines: list[str], notes: list[str]) -> Watcher:
    return Watcher(cast(Identity, Unpaired()), show=lines.append, note=notes.append)


@pytest.mark.spec("limit.reconnect")
async def test_the_delays_are_the_specifications(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.RECONNECT_DELAYS_SECONDS == (1, 2, 5, 10, 30)
    monkeypatch.setattr(limits, "RECONNECT_DELAYS_SECONDS", (0.001, 0.002, 0.005))
    notes: list[str] = []
    running = asyncio.create_task(watcher([], notes).run())
    while len(notes) < 5:
        await asyncio.sleep(0.01)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    delays = [note.rpartition(" in ")[2] for note in notes[:5]]
    assert delays == ["0.001 s", "0.002 s", *["0.005 s"] * 3]


def test_what_an_agent_tells_of_the_past_is_marked() -> None:
    """D60: a replay_buffer whose source is the agent; what predates the device is left out."""
    lines: list[str] = []
    notes: list[str] = []
    said = [("id-1", "2026-01-30", "too long ago"), ("id-2", "2026-02-01", "long ago")]
    messages = [
        {
            "type": "agent_event",
            "id": id_,
            "timestamp": f"{day}T12:00:00.000Z",
            "payload": {"event": "UserPromptSubmit", "payload": {"prompt": prompt}},
        }
        for id_, day, prompt in said
    ]
    replay = {"type": "replay_buffer", "payload": {"source": "agent", "messages": messages}}
    made = watcher(lines, notes)
    made.take(replay)
    made.take(replay)
    assert notes == ["-- from the agent's own history:"]
    assert len(lines) == 1 and lines[0].endswith("  long ago")
