"""One device in several tabs, and pages that sleep: one connection, and nothing that gets lost."""

from __future__ import annotations

import pytest

from tests.conformance.bridge import Bridge, eventually
from tests.conformance.samples import new_session, prompt
from tests.web.actions import say, start_demo
from tests.web.browser import PHONE, Page

pytestmark = pytest.mark.web

GIVEN_UP = 60  # seconds after which Chromium itself ends what a page that sleeps holds open
# A storage in which to read rows takes until the page is closed.
SLOW_STORAGE = """
for (const name of ["getAll", "openCursor"]) {
  const read = IDBObjectStore.prototype[name];
  IDBObjectStore.prototype[name] = function (...given) {
    const on = () => (this.count().onsuccess = on);
    on();
    window.reading = true;
    return read.apply(this, given);
  };
}
"""


# A lead that is granted late, and a storage that does not answer.
SLOW_LEAD = """
const { request } = LockManager.prototype, { get } = IDBObjectStore.prototype;
window.isLate = new Set();
LockManager.prototype.request = function (name, options, work) {
  return request.call(this, name, options, async (lock) => {
    window.isGranted = true;
    if (isLate.has("gate")) await new Promise((go) => (window.go = go));
    return work(lock);
  });
};
IDBObjectStore.prototype.get = function (...given) {
  window.isReading = isLate.has("stuck");
  return isReading ? {} : get.apply(this, given);
};
"""
SLEEP = "document.dispatchEvent(new Event('freeze'));"
WAKE = "document.dispatchEvent(new Event('resume'));"
HELD = "navigator.locks.query().then(({held}) => held.length)"


def new_tab(page: Page) -> tuple[str, str]:
    """Open a second tab and go to it; return the first and the second."""
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.show_as(PHONE)
    return first, page.driver.current_window_handle


def go_to(page: Page, tab: str) -> None:
    page.driver.switch_to.window(tab)
    page.cdp("Page.bringToFront")


def freeze(page: Page) -> None:
    page.cdp("Page.setWebLifecycleState", state="frozen")


def thaw(page: Page) -> None:
    page.cdp("Page.setWebLifecycleState", state="active")
    page.cdp("Emulation.setFocusEmulationEnabled", enabled=True)  # in front again


def sockets(bridge: Bridge) -> int:
    return int(bridge.get("/api/v1/health", bridge.admin_token).json()["active_websockets"])


# the prompts on the screen, without the line under each
PROMPTS = "[...document.querySelectorAll('.item.prompt p:first-child')].map((p) => p.innerText)"


def test_a_reload_finds_everything_again(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "Before the reload")
    page.wait_text("repeats what you say: Before the reload")
    page.type(".composer textarea", "A draft that is not")
    page.wait("document.querySelector('.grow').dataset.text === 'A draft that is not'")
    page.driver.refresh()
    page.wait_text("repeats what you say: Before the reload")
    page.wait_ready()
    page.wait_equal(PROMPTS, ["Before the reload"])
    page.wait("document.querySelector('.composer textarea').value === 'A draft that is not'")
    page.type(".composer textarea", " lost")
    page.tap(".composer button[type=submit]")
    page.wait_text("repeats what you say: A draft that is not lost")


def test_two_tabs_share_one_connection(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "From the first tab")
    page.wait_text("repeats what you say: From the first tab")
    path = page.js("location.pathname")
    first, second = new_tab(page)
    page.open(path.removeprefix("/app/"))
    page.wait_text("repeats what you say: From the first tab")
    page.wait_ready()
    eventually(lambda: sockets(bridge) == 1)
    say(page, "From the second tab")
    page.wait_text("repeats what you say: From the second tab")
    # The first goes away with the connection: the second takes it over.
    go_to(page, first)
    page.wait_text("repeats what you say: From the second tab")
    page.driver.close()
    go_to(page, second)
    eventually(lambda: sockets(bridge) == 1)
    say(page, "Alone")
    page.wait_text("repeats what you say: Alone")
    page.wait_equal(PROMPTS, ["From the first tab", "From the second tab", "Alone"])


def test_a_frozen_page_lets_another_tab_go_on_and_comes_back(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "While awake")
    page.wait_text("repeats what you say: While awake")
    path = page.js("location.pathname")
    first, second = new_tab(page)
    page.open("settings")
    go_to(page, first)
    freeze(page)
    go_to(page, second)
    page.open(path.removeprefix("/app/"))
    page.wait_ready()
    say(page, "While the other tab sleeps")
    page.wait_text("repeats what you say: While the other tab sleeps")
    go_to(page, first)
    thaw(page)
    page.wait_text("repeats what you say: While the other tab sleeps")
    page.wait_ready()
    say(page, "Awake again")
    page.wait_text("repeats what you say: Awake again")
    go_to(page, second)
    page.wait_text("repeats what you say: Awake again")
    page.wait_equal(PROMPTS, ["While awake", "While the other tab sleeps", "Awake again"])
    eventually(lambda: sockets(bridge) == 1)


def test_a_page_that_falls_asleep_as_it_takes_the_lead_lets_go(page: Page, bridge: Bridge) -> None:
    """Before the lead is its own, and before it has read what is kept: others could never lead."""
    page.driver.execute_script(SLOW_LEAD)
    for late, there in (("gate", "window.isGranted"), ("stuck", "window.isReading")):
        page.js("void isLate.add(arguments[0])", late)
        page.driver.execute_script(f"{SLEEP} {WAKE}")
        page.wait(there)
        page.driver.execute_script(f"{SLEEP} isLate.clear(); go();")
        page.wait(f"{HELD}.then((held) => !held)", what="the lead is free")
        page.driver.execute_script(WAKE)
        page.wait(f"{HELD}", what="it leads again")
    page.wait_ready()


def test_a_page_that_slept_alone_is_live_again(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "Before the sleep")
    page.wait_text("repeats what you say: Before the sleep")
    session_id = page.js("location.pathname").split("/")[-1]
    freeze(page)
    other = bridge.phone().ready()
    other.request(
        "session_start",
        {"agent": "", "session_id": session_id, "working_directory": "", "resume": False},
    )
    other.send("message", {"session_id": session_id, "content": "Meanwhile", "role": "user"})
    other.expect("stream_end", session_id=session_id)
    thaw(page)
    page.wait_text("repeats what you say: Meanwhile")
    page.wait_ready()
    page.wait_equal(PROMPTS, ["Before the sleep", "Meanwhile"])


def test_a_page_that_falls_asleep_while_it_reads_holds_up_no_other(
    page: Page, bridge: Bridge
) -> None:
    """Its transaction in the storage would stay open with it, and no other tab could store a row."""
    session_id = new_session()
    bridge.accept(prompt(session_id, "Before the sleep"))
    page.tap(".row-link", "Before the sleep")
    page.find(".bubble.mine", "Before the sleep")
    page.before_load(SLOW_STORAGE)
    page.driver.refresh()
    page.wait("window.reading")
    freeze(page)
    new_tab(page)
    page.open(f"s/{session_id}")
    page.wait_ready()
    bridge.accept(prompt(session_id, "During the sleep"))
    page.wait_text("During the sleep", seconds=GIVEN_UP - 10)
