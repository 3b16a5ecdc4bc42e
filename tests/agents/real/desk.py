"""A program of a real agent that no bridge has started, and a conversation with it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.acp import recipes
from tests.agents.real.place import SECONDS, Place
from tests.servers import wait_until

AGAIN_SECONDS = 10.0  # until a key is pressed anew


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


class Screen:
    """A program in a terminal of its own, tmux's, and what that shows."""

    def __init__(self, place: Place, directory: Path) -> None:
        if not shutil.which("tmux"):
            pytest.skip("needs tmux")
        self._name, self.directory = f"bridge-{uuid.uuid4()}", directory
        self._environment = {**os.environ, **place.environment}

    def run(self, *words: str) -> None:
        self._tmux("new-session", "-d", "-s", "t", "-x", "120", "-y", "45", shlex.join(words))

    def _tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._name, *words],
            capture_output=True,
            check=False,
            text=True,
            cwd=self.directory,
            env=self._environment,
        ).stdout

    def shown(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "t")

    def until(self, words: str) -> None:
        wait_until(lambda: words in self.shown(), self.shown, within=SECONDS)

    def press(self, key: str, then: str = "") -> None:
        """A key by tmux's name of it, again and again until ``then`` is shown."""
        due = 0.0

        def shows() -> bool:
            nonlocal due
            if time.monotonic() > due:
                self._tmux("send-keys", "-t", "t", key)
                due = time.monotonic() + AGAIN_SECONDS
            return then in self.shown()

        wait_until(shows, self.shown, within=SECONDS)

    def say(self, text: str) -> None:
        """Type a line; Enter comes once it is there, or it would be taken for a part of it."""
        before = self.shown().count(text)
        self._tmux("send-keys", "-t", "t", "-l", text)
        wait_until(lambda: self.shown().count(text) > before, self.shown, within=SECONDS)
        time.sleep(1)  # as a person: one that comes with the text is taken for a line's end in it
        self.press("Enter")

    def end(self) -> None:
        self._tmux("kill-server")


@contextlib.contextmanager
def desk_program(place: Place, directory: Path) -> Iterator[DeskProgram]:
    program = DeskProgram(place, directory)
    try:
        yield program
    finally:
        program.end()
