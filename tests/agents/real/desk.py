"""A program of a real agent that no bridge has started, and a conversation with it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sessions_app.agents.acp import recipes
from tests.agents.real.place import Place


class DeskProgram:
    """Speaks the protocol with it, one request at a time."""

    def __init__(
        self, place: Place, directory: Path, command: Sequence[str | Path] | None = None
    ) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            command or recipes.ROWS[place.agent.name].command,
            cwd=directory,
            env={**os.environ, **place.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.number += 1
        asked = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # it may print anything
                found = json.loads(line)
                if found.get("id") == self.number and "method" not in found:
                    result: dict[str, Any] = found["result"]
                    return result
        raise AssertionError(f"{method}: it has ended")

    def say(self, text: str) -> str:
        """Begin a session with a prompt; its id."""
        self.ask("initialize", protocolVersion=1, clientCapabilities={})
        made = self.ask("session/new", cwd=str(self.directory), mcpServers=[])
        session = str(made["sessionId"])
        self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
        return session

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.communicate()


@contextlib.contextmanager
def terminal(place: Place, directory: Path) -> Iterator[None]:
    """Its own program in a terminal, once that has drawn something."""
    shown, given = pty.openpty()
    program = recipes.ROWS[place.agent.name].resume.split()[0]
    process = subprocess.Popen(
        ["setsid", "--ctty", program],
        cwd=directory,
        env={**os.environ, **place.environment, "TERM": "xterm-256color"},
        stdin=given,
        stdout=given,
        stderr=given,
    )
    os.close(given)
    try:
        while b"\x1b[" not in os.read(shown, 65536):
            pass
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(shown)


@contextlib.contextmanager
def desk_program(place: Place, directory: Path) -> Iterator[DeskProgram]:
    program = DeskProgram(place, directory)
    try:
        yield program
    finally:
        program.end()
