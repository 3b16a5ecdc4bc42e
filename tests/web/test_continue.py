"""Continue a terminal's session on the phone, give it back, and find past ones (D67)."""

import os

import pytest

from tests.conformance.desk import Desk, Place, bridge_beside, place_of_module
from tests.faults.quick import QuickBridge
from tests.servers import wait_until
from tests.web.actions import say
from tests.web.browser import Page
from tests.web.conftest import ROOM

pytestmark = pytest.mark.web


place, bridge = place_of_module(), bridge_beside(**ROOM)


def test_continue_here_and_give_back(place: Place, bridge: QuickBridge, page: Page) -> None:
    desk = Desk(place, bridge)
    try:
        page.tap(".row-link", "from the desk")
        page.wait_text("It works at the machine. It can be continued here once it is idle")
        desk.stop()
        page.find("button", "Continue here")
        page.tap("button", "Continue here")
        page.wait_text("Your own rules, hooks and servers of the terminal are not there.")
        page.tap("dialog button", "End the terminal and continue")
        wait_until(lambda: desk.process.poll() is not None, "it is ended")
        page.find(".composer textarea")
        say(page, "from the phone")
        page.wait_text("bridge: from the phone")
        page.tap("button", "Give back to the terminal")
        page.find("dialog pre", f"claude --resume {desk.session_id}")
        page.tap("dialog button", "Give back")
        page.wait_text("Given back.")
        page.find(".command pre", f"claude --resume {desk.session_id}")
        page.find("button", "Continue here")
        again = Desk(place, bridge, session_id=desk.session_id)
        page.wait_text("It works at the machine.")
        again.kill()
    finally:
        desk.kill()


def test_past_sessions(place: Place, bridge: QuickBridge, page: Page) -> None:
    root = bridge.root.resolve()
    (root / "other").mkdir()
    for number in range(25):
        own = f"0b6f5f7e-5b5d-4a9b-8f0e-2d6c3b1a{number:04}"
        path = place.write(own, root, f"past {number}" if number else "past needle", "x")
        os.utime(path, (1e9 + number, 1e9 + number))
    own = "0b6f5f7e-5b5d-4a9b-8f0e-2d6c3b1b0000"
    place.write(own, root / "other", "of another place", "x")
    page.tap("a.button", "")
    page.wait("document.querySelectorAll('#agent option').length")
    page.js("document.querySelector('#agent').value = 'claude-code'")
    page.js("document.querySelector('#directory').value = arguments[0]", f"{root}/other")
    page.tap("summary", "Past sessions")
    page.find(".past .title", "of another place")
    page.tap(".check span", "All directories")
    page.find("button", "Show older ones")
    page.tap("button", "Show older ones")
    page.wait("document.querySelectorAll('.past li').length > 25")
    page.type("#past-search", "NEEDLE")
    page.wait("document.querySelectorAll('.past li').length === 1")
    page.tap(".past .row-link", "past needle")
    page.tap("dialog button", "Continue here")
    page.find(".composer textarea")
    page.wait_text("past needle")
    say(page, "and on")
    page.wait_text("bridge: and on")
    page.open("new")
    page.wait("document.querySelectorAll('#agent option').length")
    page.js("document.querySelector('#agent').value = 'demo'")
    page.tap("summary", "Past sessions")
    page.wait_text("It keeps no sessions that the bridge could find.")
