"""One device in several tabs, and pages that sleep: one connection, and nothing that gets lost."""

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge, eventually
from tests.web.actions import say, start_demo
from tests.web.browser import PHONE, Page

pytestmark = pytest.mark.web


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


def test_a_page_that_slept_alone_is_live_again(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "Before the sleep")
    page.wait_text("repeats what you say: Before the sleep")
    session_id = page.js("location.pathname").split("/")[-1]
    freeze(page)
    other = bridge.phone().ready()
    other.join(session_id)
    agents.ask(other, session_id, "Meanwhile")
    thaw(page)
    page.wait_text("repeats what you say: Meanwhile")
    page.wait_ready()
    page.wait_equal(PROMPTS, ["Before the sleep", "Meanwhile"])
