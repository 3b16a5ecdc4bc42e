"""Find and continue a session that an ACP agent lists itself (D67)."""

import os

import pytest

from tests.conformance.keeper import Keeper, bridge_of_keeper, keeper_of_module, kept
from tests.faults.quick import QuickBridge
from tests.short import short
from tests.web.actions import say
from tests.web.browser import DESK, PHONE, Page
from tests.web.conftest import ROOM

pytestmark = pytest.mark.web
LISTED_ANEW = short("ACP_LIST_KEPT_SECONDS", "ACP_LIST_AGAIN_SECONDS")

keeper, bridge = keeper_of_module(), bridge_of_keeper(**ROOM, **LISTED_ANEW)


def test_past_sessions(keeper: Keeper, bridge: QuickBridge, page: Page) -> None:
    """Greyed while a program of it runs at the machine; what is different is said before."""
    session = kept(bridge.root.resolve(), "Fix the parser")
    keeper.say(session["sessionId"], "What is wrong?")
    keeper.keep(session)
    page.tap("a.button", "")
    page.wait("document.querySelectorAll('#agent option').length")
    page.js("document.querySelector('#agent').value = arguments[0]", keeper.name)
    page.js("document.querySelector('#directory').value = arguments[0]", str(bridge.root))
    with keeper.sit_down() as at_the_desk:
        page.tap("summary", "Past sessions")
        page.wait_text("its program runs at the machine")
        page.wait("document.querySelector('.past .row-link').disabled")
        shoot(page, "greyed")
        at_the_desk.kill()
    page.tap(".check span", "All directories")
    page.find(".past .row-link", "Fix the parser")
    shoot(page, "listed")
    page.tap(".past .row-link", "Fix the parser")
    page.wait_text("The bridge does not see when a terminal opens it: end it here before.")
    assert "it stops here by itself" not in page.text
    shoot(page, "dialog")
    page.tap("dialog button", "Continue here")
    page.find(".composer textarea")
    page.wait_text("What is wrong?")
    say(page, "and on")
    page.tap("button", "Give back to the terminal")
    page.find("dialog pre", f"keeper -s {session['sessionId']}")
    page.tap("dialog button", "Give back")
    page.tap("button", "Continue here")
    page.wait_text("may not show what was said here")
    shoot(page, "again")


def shoot(page: Page, name: str) -> None:
    if not os.environ.get("SHOTS"):
        return
    for size, what in ((PHONE, "360"), (DESK, "1280")):
        for dark in (False, True):
            page.show_as(size, dark=dark)
            page.driver.save_screenshot(f"{os.environ['SHOTS']}/{name}-{what}-{dark}.png")
    page.show_as(PHONE)
