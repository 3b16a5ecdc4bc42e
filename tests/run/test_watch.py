"""How `watch` connects: a public bridge's warning, a full one, another key (D15, D23, D24, D43)."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import cast

import pytest

from bridge_project.kernel import limits
from bridge_project.terminal.client import Lost, Target
from bridge_project.terminal.identity import Identity
from bridge_project.terminal.watcher import Watcher
from tests.faults.quick import QuickBridge
from tests.run.terminal import Program

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
            program.until("another key than the bridge")
            assert program.ended() == 1
    assert log.read_text().count(CONNECTED) == before


class Unpaired:
    """Whoever cannot connect yet."""

    def target(self) -> Target:
        raise Lost("not there yet")


@pytest.mark.spec("limit.reconnect")
async def test_the_delays_are_the_specifications(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.RECONNECT_DELAYS_SECONDS == (1, 2, 5, 10, 30)
    monkeypatch.setattr(limits, "RECONNECT_DELAYS_SECONDS", (0.001, 0.002, 0.005))
    notes: list[str] = []
    watcher = Watcher(cast(Identity, Unpaired()), show=notes.append, note=notes.append)
    running = asyncio.create_task(watcher.run())
    while len(notes) < 5:
        await asyncio.sleep(0.01)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    delays = [note.rpartition(" in ")[2] for note in notes[:5]]
    assert delays == ["0.001 s", "0.002 s", *["0.005 s"] * 3]
