"""Pictures and files in a conversation, as a person sees, saves and sends them (D70)."""

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.test_attachments import sent
from tests.servers import wait_until
from tests.web.browser import Page

pytestmark = pytest.mark.web


def png(width: int, height: int, *, drawn: bool = True) -> bytes:
    """A picture of noise in a few colours; or only the head of one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    rows = random.Random(1)
    body = b"".join(b"\0" + rows.randbytes(1) * (width * 3) for _ in range(height if drawn else 0))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.fixture
def session(page: Page, bridge: Bridge, phone: Phone) -> str:
    return agents.begin(bridge, phone)


def say_with(phone: Phone, session: str, attached: list[dict[str, Any]]) -> None:
    ids = [one["attachment_id"] for one in attached]
    said = {"session_id": session, "content": "Look", "role": "user", "attachments": ids}
    phone.send("message", said)
    phone.expect("stream_end", session_id=session)


def test_what_is_attached_is_shown(
    page: Page, bridge: Bridge, phone: Phone, session: str, tmp_path: Path
) -> None:
    """A picture is drawn, opens whole and is never an address; anything else is saved."""
    files = {
        "shot.png": png(300, 200),
        "notes.txt": b"Some notes",
        "bomb.png": png(30_000, 30_000, drawn=False),
    }
    kept = [sent(bridge, session, data, name=name) for name, data in files.items()]
    say_with(phone, session, kept)
    made = "(window.urls ??= new Set())"
    page.before_load(
        "for (const [name, act] of [['createObjectURL', 'add'], ['revokeObjectURL', 'delete']]) {"
        " const real = URL[name]; URL[name] = (given) => { const url = real.call(URL, given);"
        f" {made}[act](url ?? given); return url; }}; }}"
    )
    page.open(f"s/{session}")
    page.wait("document.querySelector('.attached img')?.naturalWidth === 300")
    assert page.js("document.querySelector('.attached img').alt") == "shot.png"
    page.wait(f"{made}.size === 0", what="no address is left")
    for name in ("notes.txt", "bomb.png"):
        page.find(".attached-file", name).find_element("css selector", "button")
    page.tap(".attached-picture")
    page.wait("document.querySelector('dialog .whole-picture img')?.naturalWidth === 300")
    page.tap("dialog button", "Close")
    page.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.tap(".attached-file button", "Save")
    saved = tmp_path / "notes.txt"
    wait_until(lambda: saved.exists() and saved.read_bytes() == b"Some notes", "it is saved")
    assert page.screen == f"/app/s/{session}"
