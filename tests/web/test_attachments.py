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
from tests.conformance.test_attachments import MB, kept, sent
from tests.servers import wait_until
from tests.web.actions import say, session_of, start_demo
from tests.web.browser import NETWORK, Page
from tests.web.conftest import MakePage
from tests.web.link import Link
from tests.web.test_faults import taken
from tests.web.test_offline import KEPT

pytestmark = pytest.mark.web

# whether no file is kept in the browser
STORED = """new Promise((done) => { indexedDB.open('bridge').onsuccess = ({target: {result}}) => {
    const asked = result.transaction('kept').objectStore('kept').getAllKeys()
    asked.onsuccess = () => { result.close(); done(!asked.result.some((key) =>
        key.startsWith('files:'))) } } })"""


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
    files_sent = [sent(bridge, session, data, name=name) for name, data in files.items()]
    say_with(phone, session, files_sent)
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


def choose(page: Page, *files: Path) -> None:
    """Choose files as the system's picker gives them."""
    field = page.driver.find_element("css selector", ".composer input[type=file]")
    field.send_keys("\n".join(map(str, files)))


def hand_over(page: Page, kind: str, name: str) -> None:
    """Paste or drop a small file."""
    page.js(
        "void (() => { const all = new DataTransfer();"
        " all.items.add(new File(['Some text'], arguments[1]));"
        " const about = {bubbles: true, cancelable: true, clipboardData: all, dataTransfer: all};"
        " const made = arguments[0] === 'paste' ? ClipboardEvent : DragEvent;"
        " document.querySelector('.composer textarea').dispatchEvent(new made(arguments[0], about))"
        " })()",
        kind,
        name,
    )


CHIPS = "[...document.querySelectorAll('.chip .name')].map((one) => one.innerText)"


def test_files_go_with_a_message(page: Page, bridge: Bridge, session: str, tmp_path: Path) -> None:
    """Chosen, pasted, dropped and taken off again; a large picture is made smaller."""
    files = {
        "wide.png": png(2600, 1300),
        "large.bin": bytes(10 * MB + 1),
        **{f"{number}.txt": b"text" for number in range(9)},
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    page.keep_toasts()
    page.open(f"s/{session}").keep_toasts()
    page.find(".composer textarea")
    choose(page, tmp_path / "wide.png", tmp_path / "large.bin")
    page.wait_text("large.bin is larger than 10 MB.")
    page.wait_equal(CHIPS, ["wide.jpg"])
    hand_over(page, "paste", "pasted.txt")
    hand_over(page, "drop", "dropped.txt")
    page.wait(f"{CHIPS}.length === 3")
    choose(page, *(tmp_path / f"{number}.txt" for number in range(9)))
    page.wait_text("A message takes 10 files at most.")
    page.wait(f"{CHIPS}.length === 10")
    for name in ("pasted.txt", *(f"{number}.txt" for number in range(7))):
        page.js("document.querySelector(`[aria-label='Remove ${arguments[0]}']`).click()", name)
    page.wait_equal(CHIPS, ["wide.jpg", "dropped.txt"])
    page.find(".chip", " KB")
    page.tap(".composer button[type=submit]")
    page.wait("document.querySelector('.attached img')?.naturalWidth === 2000")
    page.find(".bubble.mine", "wide.jpg, dropped.txt")
    page.find(".attached-file", "dropped.txt")
    page.wait(f"{CHIPS}.length === 0")


def test_a_reload_in_between_loses_nothing_and_doubles_nothing(
    make_page: MakePage, link: Link, tmp_path: Path
) -> None:
    """The bridge has the file, the phone does not know it: the page dies, and sends it again."""
    page = make_page(link.bridge).pair()
    page.expected += [NETWORK]
    start_demo(page, link.bridge, "Hello")
    session = session_of(page)
    page.wait_whole()
    note = tmp_path / "note.txt"
    note.write_bytes(b"Only once")
    choose(page, note)
    page.wait_equal(CHIPS, ["note.txt"])
    # a connection and the module that uploads are there: nothing more is heard of the bridge
    page.wait(f"({KEPT})", what="the service worker has all modules")
    page.wait(
        "fetch('/app/', {method: 'HEAD', cache: 'no-store', credentials: 'omit'}).then(() => true)"
    )
    link.heard.clear()
    say(page, "Take this")
    wait_until(lambda: len(kept(link.bridge)) == 1, "the bridge has the file")
    link.cut()
    page.driver.get("about:blank")
    link.mend()
    page.open(f"s/{session}")
    page.find(".attached-file", "note.txt")
    page.wait_text("repeats what you say: Take this")
    assert taken(link.bridge, session, "Take this") == 1
    assert [path.read_bytes() for path in kept(link.bridge)] == [b"Only once"]
    page.wait(STORED, what="nothing of it stays on the phone")
