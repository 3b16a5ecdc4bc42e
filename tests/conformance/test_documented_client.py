"""The client in docs/clients.md, run as a reader would."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.phone import PATIENCE
from tests.conformance.samples import hook, new_session, prompt

pytestmark = pytest.mark.spec("offline.replay")


class Client:
    """The documented client as a process, with a code that was just minted."""

    def __init__(self, program: Path, link: str) -> None:
        command, pipe = [sys.executable, str(program), link], subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=program.parent
        )
        self.got: list[dict[str, Any]] = []

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The message that is wanted, which may have come already; what comes is in ``got``."""
        assert self.process.stdout is not None
        while not (found := [message for message in self.got if wanted(message)]):
            line = self.process.stdout.readline()
            assert line, f"the client ended; it had received {self.got}"
            self.got.append(json.loads(line))
        return found[0]

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.kill()
        self.process.wait(180)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (REPOSITORY / "docs" / "clients.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    path = tmp_path_factory.mktemp("client") / "client.py"
    path.write_text(code, encoding="utf-8")
    return path


def minted(bridge: Bridge) -> str:
    return bridge.manage("mint_pairing_qr", "--format", "url").stdout.strip()


def of_session(session_id: str, *kinds: str) -> Callable[[dict[str, Any]], bool]:
    return lambda m: m["type"] in kinds and m["payload"]["session_id"] == session_id


def number(session_id: str, wanted: object) -> Callable[[dict[str, Any]], bool]:
    event = of_session(session_id, "agent_event")
    return lambda m: event(m) and m["payload"]["payload"].get("number") == wanted


def test_each_event_once_and_in_order_across_a_kill(mortal: Bridge, program: Path) -> None:
    """Of a session that was there and one that starts later; it comes back by itself."""
    old, fresh = new_session(), new_session()
    mortal.accept(prompt(old, "before"))
    with Client(program, minted(mortal)) as client:
        client.until(lambda m: m["type"] == "session_ready")
        mortal.accept(hook("SessionStart", fresh), prompt(old, 1), prompt(old, 2))
        client.until(of_session(fresh, "session_ready"))
        mortal.accept(prompt(fresh, 3))
        client.until(number(fresh, 3))
        client.until(number(old, 2))
        mortal.kill()
        mortal.start()
        mortal.accept(prompt(old, 4), prompt(fresh, 5))
        client.until(number(fresh, 5))
        client.until(number(old, 4))
        for session_id, numbers in {old: [1, 2, 4], fresh: [None, 3, 5]}.items():
            events = filter(of_session(session_id, "agent_event"), client.got)
            assert [event["payload"]["payload"].get("number") for event in events] == numbers
        ids = [m["id"] for m in client.got]
        assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.spec("limit.client_queue", "offline.flush")
def test_what_is_typed_meanwhile_is_sent_once(mortal: Bridge, program: Path) -> None:
    """Of 1,001 messages the oldest is dropped, the others are sent in order."""
    link, said = minted(mortal), {"content": "x" * 1000, "role": "user"}
    with ExitStack() as ending:
        with mortal.asleep():  # nobody shakes hands
            client = ending.enter_context(Client(program, link))
            for number in range(1001):  # too much for a pipe: it has read nearly all of it
                client.say(type="message", session_id=f"typed {number}", **said)
        client.until(of_session("typed 1000", "error"))  # there is no such session
        refused = [m["payload"]["session_id"] for m in client.got if m["type"] == "error"]
        assert refused == [f"typed {number}" for number in range(1, 1001)]


def test_the_code_s_token_is_refused_once_it_is_connected(mortal: Bridge, program: Path) -> None:
    """D62: it goes on with a fresh one, in a private file, or with the one before it."""
    link = minted(mortal)
    [token] = re.findall("token=([^&]*)", link)
    code = hashlib.sha256(token.encode()).hexdigest()
    kept = program.parent / f"bridge-{code[:16]}.json"
    for _ in range(3):
        with Client(program, link) as client:
            shown = client.until(lambda m: m["type"] == "connection_ack")
        assert "device_token" not in shown["payload"]
        assert mortal.get("/api/v1/info", token).status == 401
        assert kept.stat().st_mode & 0o777 == 0o600
        known = json.loads(kept.read_text())
        assert mortal.get("/api/v1/info", known["tokens"][-1]).status == 200
        kept.write_text(json.dumps(known | {"tokens": [known["tokens"][-1], "bridge_device_void"]}))


def test_it_gives_up_where_it_should(mortal: Bridge, program: Path) -> None:
    """AUTH_FAILED is not tried again, and a server with another key is sent no token."""
    link = minted(mortal)
    for name, wrong in {"token": "bridge_device_wrong", "pin": "0" * 64}.items():
        command = [sys.executable, str(program), re.sub(f"{name}=[^&]*", f"{name}={wrong}", link)]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, cwd=program.parent)
        assert done.returncode == 1, done
    assert done.stdout == b"", done
