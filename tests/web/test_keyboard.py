"""Everything by the keyboard alone: each step is reached by Tab, and seen where it is (D53)."""

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.conformance.bridge import Bridge, eventually
from tests.web.actions import ask_to_run, pause
from tests.web.browser import Page
from tests.web.conftest import MakePage

pytestmark = pytest.mark.web

STEPS = 60  # more than any screen here has
NAMED = (
    "((at) => at.matches(arguments[0]) && (at.textContent + (at.getAttribute('aria-label') ?? ''))"
    ".includes(arguments[1]))"
)
HERE = f"{NAMED}(document.activeElement)"
THERE = f"[...document.querySelectorAll('*')].filter((at) => at.checkVisibility()).some({NAMED})"
SEEN = (
    "((at) => getComputedStyle(at).outlineStyle !== 'none' && at.checkVisibility())"
    "(document.activeElement)"
)


def press(page: Page, *keys: str) -> None:
    ActionChains(page.driver).send_keys(*keys).perform()


def go(page: Page, selector: str, text: str = "") -> None:
    """Press Tab until the focus is on such an element, once it is there, and see the focus."""
    page.wait(THERE, selector, text, what=f"{selector} {text!r} is there")
    for _ in range(STEPS):
        press(page, Keys.TAB)
        if page.js(HERE, selector, text):
            assert page.js(SEEN), f"the focus on {selector} {text!r} is not seen"
            return
    raise AssertionError(f"no way to {selector} {text!r} by Tab:\n{page.text}")


def test_pair_decide_and_talk(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge).scan(bridge.pairing())
    go(page, "button", "Use in this browser")
    press(page, Keys.ENTER)
    page.wait("document.querySelector('nav.bottom')")
    page.wait_ready()

    ask_to_run(bridge, "echo keys > keys.txt")
    go(page, ".card", "echo keys")
    pause(page)
    press(page, Keys.ENTER)
    page.find("dialog .sheet-foot")
    press(page, Keys.ESCAPE)
    page.wait("!document.querySelector('dialog')")
    page.wait(HERE, ".card", "echo keys", what="the focus is where it was")
    page.wait_equal("location.pathname", "/app/")
    press(page, Keys.ENTER)
    go(page, "dialog .primary", "Approve")
    pause(page)
    press(page, Keys.ENTER)
    if page.js("Boolean(document.querySelector('dialog .armed'))"):
        pause(page)
        press(page, Keys.ENTER)
    page.wait(HERE, "dialog .primary", "Done", what="the focus is on what comes next")
    pause(page)
    press(page, Keys.ENTER)
    page.wait("!document.querySelector('dialog')")
    page.wait(HERE, "h1", "Sessions", what="the card is gone: the focus is on the screen")
    eventually((bridge.root / "keys.txt").exists)

    go(page, ".row-link", "echo keys")
    press(page, Keys.ENTER)
    go(page, ".composer textarea")
    press(page, "Hello")
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait_text("repeats what you say: Hello")
