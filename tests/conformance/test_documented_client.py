"""The client in docs/clients.md, run as a reader would: pairs, receives each event once and in
order across a kill of the bridge, decides an approval.
"""

from __future__ import annotations

import hashlib
import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.phone import PATIENCE
from tests.conformance.samples import hook, new_id, new_session, prompt

pytestmark = pytest.mark.spec("offline.replay")

LINES = 86  # that are not blank, as the page says


class Client:
    """The documented client as a process, with a code that was just minted."""

    def __init__(self, program: Path, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(program), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=program.parent,
        )
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.got: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message that is wanted; all before it are kept in ``got``."""
        while (message := self.lines.get(timeout=PATIENCE * 3)) is not None:
            self.got.append(message)
            if wanted(message):
                return message
        raise AssertionError(
            f"the client ended; it had received {[message['type'] for message in self.got]}"
        )

    def have(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for it, unless it has come already."""
        if not any(map(wanted, self.got)):
            self.until(wanted)

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.kill()
        self.process.wait(180)


def page() -> tuple[str, str]:
    """The page, and the client in it."""
    text = (REPOSITORY / "docs" / "clients.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return text, code


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("client") / "client.py"
    path.write_text(page()[1], encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def mortal(make_bridge: Callable[..., Bridge]) -> Iterator[Bridge]:
    bridge = make_bridge("documented")
    yield bridge
    bridge.stop()


def link_to(url: str, token: str, pin: str) -> str:
    """What a pairing's link says."""
    fields = {"v": "1", "token": token, "url": url, "pin": pin}
    return f"https://127.0.0.1/pair#{urlencode(fields)}"


def address(bridge: Bridge) -> str:
    code = bridge.pairing()
    return link_to(code.url, code.token, code.pin)


def number(session_id: str, wanted: object) -> Callable[[dict[str, Any]], bool]:
    return lambda m: (
        m["type"] == "agent_event"
        and m["payload"]["session_id"] == session_id
        and m["payload"]["payload"].get("number") == wanted
    )


def test_its_length() -> None:
    """The page says how long it is."""
    text, code = page()
    assert len([line for line in code.splitlines() if line.strip()]) == LINES
    assert f"a complete client of {LINES} lines" in " ".join(text.split())


def test_each_event_once_and_in_order_across_a_kill(mortal: Bridge, program: Path) -> None:
    """D22, D27, D28: sessions that were there and one that starts later; kill -9, and the client
    comes back by itself.
    """
    old, fresh = new_session(), new_session()
    mortal.accept(prompt(old, "before"))
    minted = mortal.manage("mint_pairing_qr", "--format", "url").stdout.strip()
    with Client(program, minted) as client:
        client.until(lambda m: m["type"] == "session_ready")
        mortal.accept(hook("SessionStart", fresh), prompt(old, 1), prompt(old, 2))
        client.until(lambda m: m["type"] == "session_ready" and m["payload"]["session_id"] == fresh)
        mortal.accept(prompt(fresh, 3))
        client.until(number(fresh, 3))
        client.have(number(old, 2))
        mortal.kill()
        mortal.start()
        mortal.accept(prompt(old, 4), prompt(fresh, 5))
        client.until(number(fresh, 5))
        client.have(number(old, 4))
        events = [m["payload"] for m in client.got if m["type"] == "agent_event"]
        assert [e["payload"]["number"] for e in events if e["session_id"] == old] == [1, 2, 4]
        of_fresh = [e["payload"].get("number") for e in events if e["session_id"] == fresh]
        assert [one for one in of_fresh if one is not None] == [3, 5]
        ids = [m["id"] for m in client.got]
        assert len(ids) == len(set(ids))


def test_it_decides_an_approval(mortal: Bridge, program: Path) -> None:
    """D28, D38: what waits greets it; what is written to its standard input is sent."""
    session_id = new_session()
    payload = {
        "tool": "Bash",
        "params": {"command": "ls"},
        "risk_level": "low",
        "requires_approval": True,
        "tool_use_id": new_id(),
    }
    mortal.accept(hook("PreToolUse", session_id, payload=payload))
    with Client(program, address(mortal)) as client:
        asked = client.until(lambda m: m["type"] == "approval_required")["payload"]
        client.say(
            type="approval_response",
            session_id=session_id,
            tool_call_id=asked["tool_call_id"],
            decision="approved",
            modifications=None,
        )
        recorded = client.until(lambda m: m["type"] == "approval_recorded")["payload"]
        assert (recorded["tool_call_id"], recorded["decision"]) == (
            payload["tool_use_id"],
            "approved",
        )


def test_the_code_s_token_is_refused_once_it_is_connected(mortal: Bridge, program: Path) -> None:
    """D62: it goes on with a fresh one, in a private file; with the same link it comes back, with
    the token before it where the fresh one became void.
    """
    pairing = mortal.pairing()
    code = hashlib.sha256(pairing.token.encode()).hexdigest()
    kept = program.parent / f"bridge-{code[:16]}.json"
    link = link_to(pairing.url, pairing.token, pairing.pin)
    for _ in range(3):
        with Client(program, link) as client:
            shown = client.until(lambda m: m["type"] == "connection_ack")
        assert "device_token" not in shown["payload"]
        assert mortal.get("/api/v1/info", pairing.token).status == 401
        assert kept.stat().st_mode & 0o777 == 0o600
        known = json.loads(kept.read_text())
        assert mortal.get("/api/v1/info", known["tokens"][-1]).status == 200
        kept.write_text(json.dumps(known | {"tokens": [known["tokens"][-1], "bridge_device_void"]}))


def test_it_gives_up_where_it_should(mortal: Bridge, program: Path) -> None:
    """AUTH_FAILED is not tried again, and a server with another key is sent no token."""
    wrong = re.sub(r"token=[^&]*", "token=bridge_device_wrong", address(mortal))
    client = Client(program, wrong)
    assert client.process.wait(PATIENCE) == 1
    other = re.sub(r"pin=[0-9a-f]{64}", "pin=" + "0" * 64, address(mortal))
    client = Client(program, other)
    assert client.process.wait(PATIENCE) == 1
    assert client.got == []
