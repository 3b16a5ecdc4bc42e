"""A scripted bridge, a spool with an awkward name, the hook command run as an agent runs it."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from hypothesis import strategies as st

from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.https_sender import HttpsSender
from hooks_app.producer.shell_command import hook_command, write_hook_scripts
from hooks_app.producer.spool import RESERVED
from tests.hooks.scripted import ScriptedBridge
from tests.servers import wait_until

# what an agent may say anywhere
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
Hook = Callable[[dict[str, Any]], None]


def run_hook(
    spool: Path, data: bytes, command: str | None = None, enter: Sequence[str] = ()
) -> None:
    """Run it as an agent does: exit 0, in silence. BrokenPipeError when it leaves input unread."""
    arguments = [*enter, "/bin/sh", "-c", command or hook_command(str(spool))]
    with subprocess.Popen(arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin
        process.stdin.write(data)
        process.stdin.flush()
        said = process.communicate(timeout=180)
    assert (process.returncode, *said) == (0, b"", b"")


@pytest.fixture
def bridge() -> Iterator[ScriptedBridge]:
    made = ScriptedBridge()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    directory = tmp_path / "a b'c\"d $HOME `ü` é" / "spool"
    directory.mkdir(parents=True, mode=0o700)
    write_hook_scripts(directory)
    return directory


@pytest.fixture
def hook(spool: Path) -> Hook:
    return lambda raw: run_hook(spool, json.dumps(raw).encode())


def put(spool: Path, name: str, mtime: float | None = None, **fields: Any) -> Path:
    """A file as the hook command leaves it."""
    path = spool / name
    raw = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": name}
    path.write_text(json.dumps({**raw, **fields}))
    if mtime is not None:
        os.utime(path, ns=(int(mtime * 1e9), int(mtime * 1e9)))
    return path


def waiting(spool: Path) -> list[str]:
    return sorted(name for name in os.listdir(spool) if name not in RESERVED)


class Way:
    def __init__(self, spool: Path, bridge: ScriptedBridge, closing: ExitStack) -> None:
        self.spool, self.bridge, self.closing = spool, bridge, closing
        self.token = spool.parent / "token"
        self.token.write_text(bridge.token + "\n")

    def make(self, pin: str | None = None) -> Forwarder:
        pin = self.bridge.pin if pin is None else pin
        sender = HttpsSender(self.bridge.url, self.token, pin)
        self.closing.callback(sender.close)
        made = Forwarder(self.spool, sender)
        self.closing.callback(made.close)
        return made

    @cached_property
    def forwarder(self) -> Forwarder:
        return self.make()

    def run(self) -> int:
        return self.forwarder.run_once()

    def run_until_empty(self) -> None:
        wait_until(lambda: self.run() == 0 and not self.waiting(), "the spool is empty")

    def put(self, name: str, mtime: float | None = None, **fields: Any) -> Path:
        return put(self.spool, name, mtime, **fields)

    def put_many(self, numbers: Iterable[int], **fields: Any) -> None:
        """Each a second after the one before, not long ago."""
        for number in numbers:
            self.put(str(number), time.time() - 50 + number, **fields)

    def waiting(self) -> list[str]:
        return waiting(self.spool)

    def prompts(self) -> list[str]:
        """What the bridge has taken: prompts, and the kind of every other event."""
        return [event["payload"].get("prompt", event["event"]) for event in self.bridge.events]

    def notices(self) -> list[str]:
        said = [event for event in self.bridge.events if event["event"] == "Notification"]
        return [event["payload"]["message"] for event in said]


@pytest.fixture
def way(spool: Path, bridge: ScriptedBridge) -> Iterator[Way]:
    with ExitStack() as closing:
        yield Way(spool, bridge, closing)
