"""What the browser does with what is kept on it: keeps it, deletes it, has no room for it."""

import pytest

from tests.conformance.bridge import Bridge
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


def test_no_room_at_all(page: Page) -> None:
    """It is said, and the app works until it is closed."""
    page.before_load(NO_ROOM)
    page.pair()
    page.tap("a", "Settings")
    page.tap("a", "What is wrong?")
    page.wait_text("This browser keeps nothing", "Connected to")
