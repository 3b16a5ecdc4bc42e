"""A program of a real agent that no bridge has started, and a conversation with it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sessions_app.agents.acp import recipes
from tests.agents.real.place import SECONDS, Place
from tests.run.terminal import CONTROLS
from tests.servers import wait_until


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
    """A program in a terminal of its own, and what it has shown there."""

    def __init__(self, words: Sequence[str], directory: Path, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 110, 0, 0))
        self.shown = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *words],
            cwd=directory,
            env=environment | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self._ours, 65536):
                self.shown += data
                for asked, said in _ANSWERS.items():
                    os.write(self._ours, said * data.count(asked))
        except OSError:  # the program has ended
            return

    def text(self, since: int = 0) -> str:
        """What was shown, without blanks, which may be moves of the cursor."""
        return "".join(CONTROLS.sub(b"", self.shown[since:]).decode(errors="replace").split())

    def until(self, words: str, since: int = 0) -> None:
        wait_until(lambda: words in self.text(since), self.tail, within=SECONDS)

    def tail(self) -> str:
        return CONTROLS.sub(b"", self.shown[-6000:]).decode(errors="replace")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def say(self, text: str) -> None:
        """Type a line; Enter comes once it is there, or it would be taken for a part of it."""
        seen = len(self.shown)
        self.press(text)
        self.until("".join(text.split())[-12:], seen)
        time.sleep(1)  # one that comes with the text is taken for a line's end in it
        self.press("\r")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# what programs ask a terminal: where the cursor is, what it can do, which colours it has
_ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62;22c", b"\x1b[?u": b"\x1b[?0u"}


@contextlib.contextmanager
def desk_program(place: Place, directory: Path) -> Iterator[DeskProgram]:
    program = DeskProgram(place, directory)
    try:
        yield program
    finally:
        program.end()
