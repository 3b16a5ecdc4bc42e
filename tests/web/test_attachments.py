"""Pictures and files in a conversation, as a person sees, saves and sends them (D70)."""

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import agents
from tests.conformance.agents import end
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.test_attachments import MB, kept, sent
from tests.servers import wait_until
from tests.web.actions import prepare_demo, say, session_of, start_demo
from tests.web.browser import NETWORK, Page
from tests.web.conftest import MakePage
from tests.web.link import Link
from tests.web.test_faults import taken
from tests.web.test_offline import KEPT
from tests.web.test_screens import check

pytestmark = pytest.mark.web

# whether no file is kept in the browser
STORED = """new Promise((done) => { indexedDB.open('bridge').onsuccess = ({target: {result}}) => {
    const asked = result.transaction('kept').objectStore('kept').getAllKeys()
    asked.onsuccess = () => { result.close(); done(!asked.result.some((key) =>
        key.startsWith('files:'))) } } })"""


def png(width: int, height: int, *, drawn: bool = True, alpha: bool = False) -> bytes:
    """A picture of stripes, or of nothing to be seen through; or only the head of one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    rows = random.Random(1)
    depth = 4 if alpha else 3
    lines = (b"\0" if alpha else rows.randbytes(1) for _ in range(height if drawn else 0))
    body = b"".join(b"\0" + line * (width * depth) for line in lines)
    head = struct.pack(">IIBBBBB", width, height, 8, 6 if alpha else 2, 0, 0, 0)
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


def choose(page: Page, *files: Path, place: str = ".composer") -> None:
    """Choose files as the system's picker gives them."""
    field = page.driver.find_element("css selector", f"{place} input[type=file]")
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


NO_ROOM_FOR_FILES = """
const put = IDBObjectStore.prototype.put;
IDBObjectStore.prototype.put = function (value, key) {
  if (`${key}`.startsWith("files:")) throw new DOMException("No room.", "QuotaExceededError");
  return key === undefined ? put.call(this, value) : put.call(this, value, key);
};
"""


def test_no_room_for_a_file(make_page: MakePage, link: Link, tmp_path: Path) -> None:
    """A message whose file this device cannot keep is not said to be kept; it goes all the same."""
    page = make_page(link.bridge)
    page.before_load(NO_ROOM_FOR_FILES)
    page.pair()
    page.expected += [NETWORK]
    start_demo(page, link.bridge, "Hello")
    session = session_of(page)
    page.wait_whole()
    note = tmp_path / "note.txt"
    note.write_bytes(b"Only here")
    choose(page, note)
    page.wait_equal(CHIPS, ["note.txt"])
    link.cut()
    say(page, "Take this")
    page.wait_text("on this page only")
    say(page, "And this")
    page.find(".bubble.mine", "Kept here")
    page.find(".bubble.mine", "on this page only")
    link.mend()
    page.wait_text("repeats what you say: Take this")
    page.wait_text("repeats what you say: And this")
    assert taken(link.bridge, session, "Take this") == 1
    assert [path.read_bytes() for path in kept(link.bridge)].count(b"Only here") == 1


def test_a_session_begins_with_files(page: Page, bridge: Bridge, tmp_path: Path) -> None:
    """With words of its own, or only with the names."""
    (note := tmp_path / "note.txt").write_text("A note")
    for words in ("Look at it", ""):
        page.open()
        prepare_demo(page, bridge, words)
        choose(page, note, place="form")
        page.wait_equal(CHIPS, ["note.txt"])
        page.tap("button", "Start")
        page.find(".attached-file", "note.txt")
        page.find(".bubble.mine", words or "note.txt")
        page.wait_text(f"repeats what you say: {words or 'note.txt'}")


# as the system does it for another app, from outside: a form with files is sent to the address
SHARE = """((action, text, names) => {
    const form = document.createElement('form')
    Object.assign(form, {action, method: 'POST', enctype: 'multipart/form-data'})
    for (const [name, value] of [['title', text], ['text', text], ['url', '']])
        form.append(Object.assign(document.createElement('input'), {name, value}))
    const files = Object.assign(document.createElement('input'), {name: 'files', type: 'file'})
    const all = new DataTransfer()
    for (const name of names) all.items.add(new File(['Of another app'], name))
    files.multiple = true
    files.files = all.files
    form.append(files)
    document.body.append(form)
    form.submit()
})(...arguments)"""


def share(page: Page, text: str, *names: str) -> None:
    page.driver.get("about:blank")
    page.driver.execute_script(SHARE, f"{page.base}/app/share", text, names)
    page.find("h1", "Send to")


def test_what_another_app_shares(page: Page, bridge: Bridge, axe: str) -> None:
    """It goes to a new session, or one that is there, when a person sends it; or nowhere."""
    start_demo(page, bridge, "Hello")
    session = session_of(page)
    page.wait(f"({KEPT})", what="the service worker has all modules")
    share(page, "See this", "a.txt", "b.txt")
    page.wait_text("a.txt", "b.txt", "14 B", "See this")
    check(page, axe, "Send to")
    page.tap(".row-link", "Hello")
    page.wait_equal(CHIPS, ["a.txt", "b.txt"])
    assert page.js("document.querySelector('.composer textarea').value") == "See this"
    assert not page.js("document.querySelector('.attached')"), "nothing is sent"
    page.tap(".composer button[type=submit]")
    page.wait_text("repeats what you say: See this")
    assert page.screen == f"/app/s/{session}"
    share(page, "", "c.txt")
    page.tap("button", "New session")
    page.wait_equal(CHIPS, ["c.txt"])
    page.wait("document.querySelectorAll('#agent option').length")
    page.js("document.querySelector('#agent').value = 'demo'")
    page.js("document.querySelector('#directory').value = arguments[0]", str(bridge.root))
    page.tap("button", "Start")
    page.find(".attached-file", "c.txt")
    share(page, "", "d.txt")
    page.tap("button", "Discard")
    page.find("a.button")
    page.open("share").wait_text("Nothing has come")


def test_a_picture_keeps_its_transparency(
    page: Page, bridge: Bridge, session: str, tmp_path: Path
) -> None:
    """PNG stays PNG where one sees through it, and a smaller one."""
    (glass := tmp_path / "glass.png").write_bytes(png(2600, 1300, alpha=True))
    page.open(f"s/{session}")
    page.find(".composer textarea")
    before = set(kept(bridge))
    choose(page, glass)
    page.wait_equal(CHIPS, ["glass.png"])
    page.tap(".composer button[type=submit]")
    page.wait("document.querySelector('.attached img')?.naturalWidth === 2000")
    [path] = set(kept(bridge)) - before
    assert path.read_bytes().startswith(b"\x89PNG")
    page.wait(
        "createImageBitmap(document.querySelector('.attached img')).then((bitmap) => {"
        " const drawn = new OffscreenCanvas(2000, 1000).getContext('2d');"
        " drawn.drawImage(bitmap, 0, 0); return drawn.getImageData(9, 9, 1, 1).data[3] === 0 })",
        what="one sees through it",
    )


SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.ran = 1'/>"
ODD = {
    "drawing.svg": SCRIPT,
    "page.html": b"<!doctype html><script>window.ran = 1</script>",
    "lies.png": SCRIPT,
    "bomb.png": png(30_000, 30_000, drawn=False),
}


def test_odd_files(page: Page, session: str, tmp_path: Path) -> None:
    """Each is a file that can be saved; of half a picture is said that the agent has none."""
    for name, data in ODD.items():
        (tmp_path / name).write_bytes(data)
    page.open(f"s/{session}")
    page.find(".composer textarea")
    choose(page, *(tmp_path / name for name in ODD))
    page.wait(f"{CHIPS}.length === {len(ODD)}")
    hand_over(page, "paste", "../\u202e" + "n" * 3000 + ".txt")
    page.wait(f"{CHIPS}.length === {len(ODD) + 1}")
    page.tap(".composer button[type=submit]")
    for name in (*ODD, "n" * 200):
        page.find(".attached-file", name).find_element("css selector", "button")
    assert page.js("document.querySelectorAll('.attached img').length") == 0
    (cut := tmp_path / "cut.png").write_bytes(png(2600, 1300)[:3000])
    choose(page, cut)
    page.wait_equal(CHIPS, ["cut.png"])
    page.tap(".composer button[type=submit]")
    page.wait_text("not given to the agent: The picture is cut off.")
    assert "\u202e" not in page.find(".attached-file", "nnn").text
    assert page.js("window.ran") is None


def test_a_file_that_is_refused(
    page: Page, bridge: Bridge, phone: Phone, session: str, tmp_path: Path, axe: str
) -> None:
    """It says why, and can be sent again, or not at all."""
    (note := tmp_path / "note.txt").write_text("A note")
    page.expected += ["503 (Service Unavailable)"]
    page.open(f"s/{session}")
    page.find(".composer textarea")
    place = bridge.data / "attachments"
    aside = place.rename(place.with_name("aside")) if place.exists() else None
    place.write_text("no directory")
    choose(page, note)
    page.wait_equal(CHIPS, ["note.txt"])
    check(page, axe)
    page.type(".composer textarea", "Take this")
    page.tap(".composer button[type=submit]")
    page.find(".outgoing .failed", "Not sent. The file could not be stored")
    check(page, axe, "note.txt, 6 B")
    place.unlink()
    if aside:
        aside.rename(place)
    page.tap(".outgoing button", "Try again")
    page.find(".attached-file", "note.txt")
    page.wait_text("repeats what you say: Take this")
    check(page, axe)


def test_files_for_a_session_that_ended(
    page: Page, phone: Phone, session: str, tmp_path: Path
) -> None:
    """What waited without a network is refused then, in words; what was only chosen is gone."""
    page.expected += [NETWORK, "409 (Conflict)"]
    (note := tmp_path / "note.txt").write_text("A note")
    page.open(f"s/{session}").wait_whole()
    choose(page, note)
    page.wait_equal(CHIPS, ["note.txt"])
    page.offline()
    say(page, "Too late")
    page.find(".outgoing li", "Kept here. Waits for the connection")
    choose(page, note)
    page.wait_equal(CHIPS, ["note.txt"])
    end(phone, session)
    page.offline(False)
    page.find(".outgoing .failed", "Not sent.")
    page.wait_text("This session has ended.")
    page.wait("!document.querySelector('.chips').checkVisibility()")
    page.tap(".outgoing button", "Discard")
    page.wait(STORED, what="nothing of it stays on the phone")
