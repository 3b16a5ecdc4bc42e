"""A scripted bridge, a spool in a directory with an awkward name, and the hook command run as an
agent runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hooks_app.producer import https, spool_queue
from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.https import HttpsTransport
from hooks_app.producer.https_sender import HttpsSender
from hooks_app.producer.shell_command import SPOOL_MAX_BYTES, hook_command, write_hook_script
from hooks_app.producer.spool import RESERVED
from tests.hooks.scripted import ScriptedBridge, scripted_bridge
from tests.servers import wait_until

Hook = Callable[[dict[str, Any] | bytes], None]


def run_hook(
    spool: Path, data: bytes, command: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The installed command as an agent runs it: through sh -c, the JSON on standard input. Raises
    BrokenPipeError when it does not read it all.
    """
    arguments = ["/bin/sh", "-c", command or hook_command(str(spool))]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        process.stdin.write(data)
        process.stdin.flush()
        out, err = process.communicate(timeout=180)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@pytest.fixture
def bridge() -> Iterator[ScriptedBridge]:
    with scripted_bridge() as running:
        yield running


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    directory = tmp_path / "a b'c\"d $HOME `ü` é" / "spool"
    directory.mkdir(parents=True, mode=0o700)
    write_hook_script(directory)
    return directory


@pytest.fixture
def hook(spool: Path) -> Hook:
    def run(raw: dict[str, Any] | bytes) -> None:
        done = run_hook(spool, raw if isinstance(raw, bytes) else json.dumps(raw).encode())
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    return run


Make = Callable[..., Forwarder]


@pytest.fixture
def make_forwarder(
    bridge: ScriptedBridge, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Forwarders from the spool to the scripted bridge."""
    monkeypatch.setattr(https, "ANSWER_SECONDS", 5.0)

    def make(
        token: Callable[[], str] = lambda: bridge.token,
        pin: str = bridge.pin,
        *,
        spool: Path = spool,
        grace: float = spool_queue.GRACE_SECONDS,
        max_bytes: int = SPOOL_MAX_BYTES,
    ) -> Forwarder:
        monkeypatch.setattr(spool_queue, "GRACE_SECONDS", grace)
        monkeypatch.setattr(spool_queue, "SPOOL_MAX_BYTES", max_bytes)
        transport = HttpsTransport(bridge.url, token, pin)
        closing.callback(transport.close)
        forwarder = Forwarder(spool, HttpsSender(transport))
        closing.callback(forwarder.close)
        return forwarder

    with ExitStack() as closing:
        yield make


@pytest.fixture
def forwarder(make_forwarder: Make) -> Forwarder:
    return make_forwarder()


def waiting(spool: Path) -> list[str]:
    """The events' files that wait."""
    return sorted(name for name in os.listdir(spool) if name not in RESERVED)


def put(spool: Path, name: str, mtime: float | None = None, **fields: Any) -> Path:
    """A file as the hook command leaves it."""
    path = spool / name
    raw = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": name}
    path.write_text(json.dumps({**raw, **fields}))
    if mtime is not None:
        os.utime(path, ns=(int(mtime * 1e9), int(mtime * 1e9)))
    return path


def prompts(bridge: ScriptedBridge) -> list[str]:
    """What the bridge has taken: prompts, and the kind of every other event."""
    return [event["payload"].get("prompt", event["event"]) for event in bridge.events]


def run_until_empty(forwarder: Forwarder, spool: Path) -> None:
    wait_until(lambda: forwarder.run_once() == 0 and not waiting(spool), "the spool is empty")
