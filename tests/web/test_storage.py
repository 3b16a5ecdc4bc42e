"""What the browser does with what is kept on it: keeps it, deletes it, has no room for it."""

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.conformance.repositories import Repository
from tests.conformance.samples import new_id
from tests.web.actions import close_sheet, open_approval, prepare_demo
from tests.web.browser import Page
from tests.web.conftest import MakeBridge, MakePage
from tests.web.test_screens import check

pytestmark = pytest.mark.web

ASKED = """
navigator.storage.persist = async () => {
  localStorage.setItem("asked", 1 + Number(localStorage.getItem("asked")));
  return true;
};
"""
NO_ROOM = """
IDBObjectStore.prototype.put = () => {
  throw new DOMException("There is no room.", "QuotaExceededError");
};
"""
NOTED = "document.cookie.includes('bridge-device')"


def valued(field: str) -> str:
    """JavaScript for what stands in a field."""
    return f"document.querySelector({field!r}).value"


@pytest.fixture
def page(make_page: MakePage, bridge: Bridge) -> Page:
    return make_page(bridge)


def test_lasting_storage_is_asked_for_once(page: Page) -> None:
    page.before_load(ASKED)
    page.pair().wait("localStorage.getItem('asked') === '1'")
    page.open("wrong").wait_text("Nothing is wrong", "is kept on this device")
    page.wait(NOTED)
    assert page.js("localStorage.getItem('asked')") == "1"


def test_a_lost_database_is_told_of(page: Page, axe: str) -> None:
    """Which device it was, what is lost and what to do; afterwards in What is wrong?, too."""
    page.pair().wait(NOTED)
    device = "[...document.querySelectorAll('dt')].find((one) => one.innerText === 'This device')"
    page.open("settings").wait(f"{device}?.nextElementSibling.innerText.startsWith('phone')")
    name = page.js(f"{device}.nextElementSibling.innerText")
    kinds = "indexeddb,cache_storage,service_workers"
    page.driver.get(f"{page.base}/docs")
    page.cdp("Storage.clearDataForOrigin", origin=page.base, storageTypes=kinds)
    page.open().wait_text("Pair this device again", f"the pairing of “{name}”", "nothing is lost")
    check(page, axe)
    page.pair()
    page.wait("document.querySelector('nav.bottom')")
    page.open("wrong").wait_text(f"deleted what it had kept of the bridge, as “{name}”")
    check(page, axe)
    page.open("settings").tap("button", "Forget this bridge")
    page.tap("button", "Yes, forget everything here")
    page.wait_text("Pair this device")
    assert "again" not in page.js("document.querySelector('h1').innerText")


def test_another_bridge_of_the_same_host(page: Page, make_bridge: MakeBridge) -> None:
    """A browser that was never paired with it has lost nothing of it."""
    page.pair().wait(NOTED)
    page.cdp("Security.setIgnoreCertificateErrors", ignore=True)
    page.base = f"https://127.0.0.1:{make_bridge().port}"
    page.open().wait_text("Pair this device", "Scan the QR code")
    assert "has deleted" not in page.text


def test_a_first_message_is_kept_until_it_is_sent(page: Page, bridge: Bridge) -> None:
    """Also when the page has died."""
    page.pair().open("new").type("#prompt", "Dictated on the way")
    page.open("new").wait_equal(valued("#prompt"), "Dictated on the way")
    prepare_demo(page.open(), bridge, ", home")
    page.tap("button", "Start")
    page.wait_text("repeats what you say: Dictated on the way, home")
    page.open("new").wait("document.querySelector('#directory').value")
    assert page.js(valued("#prompt")) == ""


def test_an_answer_is_kept_until_it_is_sent(page: Page, bridge: Bridge) -> None:
    """What was chosen and typed, and why a call is to be rejected; also when the page has died."""
    phone = bridge.phone().ready()
    session_id = agents.begin(bridge, phone)
    options = [{"label": "Red"}, {"label": "Blue"}]
    both = {"question": "Which?", "multiSelect": True, "options": options}
    agents.tool(phone, session_id, "AskUserQuestion", questions=[both])
    open_approval(page.pair(), "Which?")
    page.tap("dialog .choice", "Blue")
    page.type("dialog .question input[type=text]", "and gold")
    page.driver.refresh()
    page.wait_equal(valued("dialog .question input[type=text]"), "and gold")
    page.tap("dialog .primary", "Answer")
    result = phone.expect("tool_result", session_id=session_id)["payload"]["result"]
    assert result["content"] == "Which? Blue, and gold"
    close_sheet(page)

    agents.tool(phone, session_id, command="make test")
    open_approval(page.open("approvals"), "make test")
    page.tap("dialog button", "Reject and say why")
    page.type("dialog .why input", "Not in production")
    page.driver.refresh()
    page.wait_equal(valued("dialog .why input"), "Not in production")
    page.tap("dialog .why button", "Reject")
    page.find("dialog .primary", "Done")


def test_a_commit_message_is_kept_until_it_is_used(page: Page, bridge: Bridge) -> None:
    repository = Repository(bridge.root / new_id())
    repository.commit_files({"a.txt": "1\n"})
    repository.write_files({"a.txt": "2\n"})
    where = agents.start(bridge.phone().ready(), repository.path)["payload"]["session_id"]
    page.pair().open(f"s/{where}/changes").tap(".pick input")
    page.type(".commit textarea", "Say why")
    page.driver.refresh()
    page.tap(".pick input")
    page.wait_equal(valued(".commit textarea"), "Say why")
    page.tap(".commit button", "Commit")
    page.wait_text("Committed 1 file as")
    assert repository.git("log", "-1", "--format=%s").strip() == "Say why"


def test_no_room_at_all(page: Page) -> None:
    """It is said, and the app works until it is closed."""
    page.before_load(NO_ROOM)
    page.pair()
    page.tap("a", "Settings")
    page.tap("a", "What is wrong?")
    page.wait_text("This browser keeps nothing", "Connected to")
