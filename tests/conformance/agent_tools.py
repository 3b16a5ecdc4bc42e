"""What tests of agents see of them from outside: the scripted agent's command lines, its journal,
and the processes that it leaves.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agents import begin, end, say
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Message, Phone
from tests.faults.quick import QuickBridge, nursery

CHAT = {"content": "hi", "role": "user"}  # a message, but for its session
PROGRAM = Path(__file__).with_name("scripted_agent.py")


class Script:
    """The scripted agent (scripted_agent.py) in several modes, each an agent of its own for the
    bridge; the journal that all of them keep.
    """

    def __init__(self, directory: Path, *modes: str) -> None:
        # named in every command line, so processes are found by it
        self.journal = directory / f"journal-{uuid.uuid4().hex}"
        self.go = Path(f"{self.journal}-go")  # what the mode `told` waits for
        words = {
            mode: [sys.executable, "-IS", str(PROGRAM), mode, str(self.journal)] for mode in modes
        }
        self.setting = ";".join(f"{mode}={shlex.join(line)}" for mode, line in words.items())

    def lines(self, what: str) -> list[dict[str, Any]]:
        """What the agents were told, of that kind, in order."""
        if not self.journal.exists():
            return []
        return [
            line
            for line in map(json.loads, self.journal.read_text().splitlines())
            if line["what"] == what
        ]

    def prompts(self) -> list[str]:
        return [line["text"] for line in self.lines("prompt")]

    def processes(self) -> dict[int, str]:
        """pid → command line of all that lives of these agents, and of what they started."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes()
                except OSError:
                    continue  # it has just ended
                if str(self.journal).encode() in command:
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode()
        return found

    def assert_gone(self, seconds: float = 60) -> None:
        eventually(lambda: not self.processes() or None, seconds)


@contextmanager
def served(bridge: QuickBridge, *scripts: Script) -> Iterator[Bridge]:
    """The bridge, running; nothing is left of the scripts' agents when it has been stopped."""
    try:
        bridge.start()
        bridge.pin = bridge.pairing().pin
        yield bridge
        bridge.stop()
        for script in scripts:
            script.assert_gone()
    finally:
        nursery.forget(bridge.environment)


@contextmanager
def quick_bridge(directory: Path, *scripts: Script, **settings: str) -> Iterator[Bridge]:
    """A bridge that may be killed often, with the scripts' agents."""
    agents = ";".join(script.setting for script in scripts)
    with served(QuickBridge(directory, BRIDGE_ACP_AGENTS=agents, **settings), *scripts) as bridge:
        yield bridge


@contextmanager
def tidied(
    request: pytest.FixtureRequest, *bridges: Bridge, spared: Collection[str] = ()
) -> Iterator[None]:
    """When the test in between fails, its bridges run again after it and its sessions are ended, so
    that the tests after it find what they expect.
    """
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed == failed:
        return
    for bridge in bridges:
        bridge.hang_up()
        if bridge.process is None or bridge.process.poll() is not None:
            bridge.start()
    with bridges[0].phones(1) as (phone,):
        for listed in bridges[0].get("/api/v1/sessions", bridges[0].admin_token).json()["sessions"]:
            ours = (
                str(listed["working_directory"]).startswith(str(bridges[0].root))
                and listed["id"] not in spared
            )
            if ours and listed["status"] in ("created", "active"):
                phone.join(listed["id"])
                end(phone, listed["id"])


def figure(text: str) -> None:
    """What was measured, for whoever reads along (`-s`, or the output of a test that failed)."""
    sys.stdout.write(f"\n{text}\n")


def children(pid: int) -> list[int]:
    """List child processes, also those that nobody has waited for; threads may end meanwhile."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def status(bridge: Bridge, session_id: str) -> str:
    """The session's state, as GET /sessions/:id has it."""
    return str(bridge.session(session_id)["status"])


def wait_status(bridge: Bridge, session_id: str, wanted: str, seconds: float = 60) -> None:
    eventually(lambda: status(bridge, session_id) == wanted, seconds)


def stream(messages: list[Message], session_id: str) -> list[Message]:
    """The stream messages of a session, in order."""
    return [
        message
        for message in messages
        if message["type"].startswith("stream_") and message["payload"]["session_id"] == session_id
    ]


def begun(bridge: Bridge, phone: Phone, prompt: str, agent: str) -> str:
    """A session that is in the middle of a turn: something has been said."""
    session_id = begin(bridge, phone, agent=agent)
    say(phone, session_id, prompt)
    phone.expect("stream_chunk", session_id=session_id)
    return session_id


def http_say(bridge: Bridge, session_id: str, body: Any, token: str | None = None) -> Any:
    """POST /sessions/:id/events."""
    return bridge.https().post(
        f"/api/v1/sessions/{session_id}/events", token=token or bridge.admin_token, json_body=body
    )


def alive(phone: Phone) -> None:
    """The connection still does what it is for."""
    phone.ping()
    assert phone.health_check()["type"] == "health_status"


def restart(bridge: Bridge, how: str) -> None:
    """`stop` is SIGTERM, when the phones have just gone, `kill` SIGKILL while they are there."""
    if how == "stop":
        bridge.stop()
    else:
        bridge.kill()
    bridge.start()


def wait_for(seconds: float, phone: Phone) -> None:
    """So much time, in which the phone shows that it is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        phone.ping()
        try:
            phone.receive(min(0.2, max(0.01, until - time.monotonic())))
        except TimeoutError:
            continue
