"""How `watch` connects (D15, D23, D24, D43), and what it makes of messages for a terminal."""

import asyncio
import contextlib
import json
import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge_project.docs import asyncapi
from bridge_project.kernel import limits
from bridge_project.terminal import render
from bridge_project.terminal.client import Lost, Message, Target
from bridge_project.terminal.console import Console
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.watcher import Watcher
from tests.faults.quick import QuickBridge
from tests.run.terminal import Program
from tests.servers import wait_until

pytestmark = pytest.mark.slow

CONNECTED = "WebSocket /api/v1/ws connected"


def watch(bridge: QuickBridge, *words: str, terminal: bool = False) -> Program:
    return Program(bridge.environment, "watch", *words, terminal=terminal)


def test_it_connects_when_it_may(tmp_path: Path) -> None:
    """Not without consent to a warning; when there is room; another key gets no byte of HTTP."""
    settings = {"BRIDGE_PUBLIC_URL": "https://bridge.example", "BRIDGE_MAX_WEBSOCKETS": "1"}
    with QuickBridge(tmp_path, **settings) as bridge:
        with watch(bridge) as program:
            program.until("DIRECT_PUBLIC_CONNECTION: ", "with --yes")
            assert program.ended() == 1
        with watch(bridge, terminal=True) as program:
            program.until("DIRECT_PUBLIC_CONNECTION: ", "Go on? [y/N]")
            program.ask("n", "The warning was not accepted.")
            assert program.ended() == 1
        with watch(bridge, terminal=True) as program:
            program.until("Go on? [y/N]")
            program.ask("y", "connected to")
            bridge.kill()
            with closing(sqlite3.connect(bridge.data / "bridge.sqlite3")) as database, database:
                database.execute("UPDATE devices_app_device SET warning_acknowledged_until = NULL")
            bridge.start()  # eight hours later it asks again, while a command is awaited
            program.until("Go on? [y/N]")
            program.ask("y", "connected to")
            assert "no such command" not in program.ask("sessions", "No session is open.")
        assert bridge.phone().connect().auth()["type"] == "connection_ack"
        with watch(bridge, "--yes") as program:
            program.until("RATE_LIMITED: ", "trying again in 1 s")
            bridge.hang_up()
            program.until("connected to")
        here = json.loads((bridge.data / "server.json").read_text())
        (bridge.data / "server.json").write_text(json.dumps(here | {"pin": "ab" * 32}))
        log = bridge.data / "logs/bridge.log"
        before = log.read_text().count(CONNECTED)
        assert before > 2
        with watch(bridge) as program:
            program.until("another key than the bridge; trying again in 1 s")
    assert log.read_text().count(CONNECTED) == before


def test_a_command_is_not_carried_out_after_the_connection_it_was_meant_for(tmp_path: Path) -> None:
    """But for the first, which waits for a bridge that is only being started."""
    with QuickBridge(tmp_path) as bridge:
        bridge.kill()
        with watch(bridge) as program:
            program.say("start demo")
            program.until("trying again")
            bridge.start()
            program.until("connected to", "-- started ")
            bridge.kill_all()
            program.until("trying again")
            program.ask("say Hello?", "-- There is no connection at the moment.")
            bridge.start()
            program.until("connected to", "-- chosen: ")
            program.ask("resume", "-- resumed ")
            assert "Hello?" not in program.ask("say Are you there?", "you say: Are you there?")


class Unpaired:
    def target(self) -> Target:
        raise Lost("not there yet")

    def remedy(self) -> str:
        return ""


@pytest.mark.spec("limit.reconnect")
async def test_the_delays_are_the_specifications(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.RECONNECT_DELAYS_SECONDS == (1, 2, 5, 10, 30)
    monkeypatch.setattr(limits, "RECONNECT_DELAYS_SECONDS", (0.001, 0.002, 0.005))
    notes: list[str] = []
    watcher = Watcher(cast(Identity, Unpaired()), show=notes.append, note=notes.append)
    running = asyncio.create_task(watcher.run())
    await asyncio.to_thread(wait_until, lambda: len(notes) >= 5)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    delays = [note.rpartition(" in ")[2] for note in notes[:5]]
    assert delays == ["0.001 s", "0.002 s", *["0.005 s"] * 3]


AT = "2026-01-31T12:00:00.000Z"


def line(message: Message, **how: Any) -> str:
    one = Console()
    one.learn(message)
    return one.line(message, **how) or ""


def event(name: str, payload: Message, session: str = "s-1") -> Message:
    body = {"event": name, "session_id": session, "timestamp": AT, "payload": payload}
    return {"type": "agent_event", "id": "i", "timestamp": AT, "payload": body}


@pytest.mark.parametrize("message", asyncapi.messages(), ids=lambda message: message.name)
def test_every_message_is_one_line_or_none(message: asyncapi.Message) -> None:
    assert "\n" not in line(json.loads(message.example))


def test_a_long_command_is_shown_once_and_whole_where_it_is_decided() -> None:
    command = f"make {'x' * 300} && rm -r build"
    long = {"tool": "Bash", "params": {"command": command}, "description": f"Bash: {command}"}
    told = line(
        {"type": "approval_required", "timestamp": AT, "payload": long | {"risk_level": "high"}}
    )
    assert told.endswith(f"Bash {command} [high]") and told.count("make") == 1
    told = line({"type": "tool_call", "timestamp": AT, "payload": long})
    assert told.endswith("x…") and told.count("make") == 1


@given(st.text())
@example("\033[31mred \x9b31m \a\x7f\u202etxt\u2028x\ud800")
def test_what_moves_a_terminal_is_made_harmless(text: str) -> None:
    """Of a session, and of a repository."""
    change = {"path": text, "status": "modified", "additions": 0, "deletions": 0}
    state = {"branch": text, "is_clean": False, "changes": [change]}
    told = line(event("UserPromptSubmit", {"prompt": text}, session=f"s{text}"))
    for shown in [told, *render.status(state)]:
        assert not [c for c in shown if unicodedata.category(c)[0] == "C" and c != "\t"]
    told = line(event("UserPromptSubmit", {"prompt": "a \033[31m z"}), colour=True)
    assert "\033[36m" in told and "\033[31m" not in told, "colours are ours alone"
