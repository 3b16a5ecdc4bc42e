"""A session of the desk's that the bridge joins, on the phone (D80)."""

from collections.abc import Iterator

import pytest

from tests.agents.codex.daemon import THREAD, Json
from tests.agents.codex.desk import Desk
from tests.faults.quick import QuickBridge
from tests.servers import wait_until
from tests.web.actions import say
from tests.web.browser import Page
from tests.web.conftest import ROOM
from tests.web.test_past_of_acp import shoot

pytestmark = pytest.mark.web
UNASKED = "document.querySelector('header').innerText.includes('does not ask')"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk"), **ROOM)
    with desk.bridge as bridge:
        bridge.pin = bridge.pairing().pin
        yield desk
    desk.daemon.close()


@pytest.fixture(scope="module")
def bridge(desk: Desk) -> QuickBridge:
    return desk.bridge


def test_joined_and_no_longer_asking(desk: Desk, page: Page) -> None:
    """It is told what the desk switches, where the session is open."""
    page.tap("a.button", "")
    page.wait("document.querySelectorAll('#agent option').length")
    page.js("document.querySelector('#agent').value = arguments[0]", "codex")
    page.js("document.querySelector('#directory').value = arguments[0]", str(desk.bridge.root))
    page.tap("summary", "Past sessions")
    page.wait_text("also at the desk")
    shoot(page, "joinable")
    page.tap(".past .row-link", "")
    page.find(".composer textarea")
    wait_until(lambda: desk.daemon.joined)
    desk.daemon.typed("Fix the parser.")
    item = desk.daemon.command("touch fixed")
    number = desk.daemon.may(item)
    page.wait_text("Fix the parser.", "touch fixed")
    shoot(page, "joined")
    page.tap("button", "Approve")
    assert desk.daemon.decision(number) == "accept"
    desk.daemon.over(item)
    desk.daemon.say("It is fixed.")
    desk.daemon.turn(status="completed")
    page.wait_text("It is fixed.")
    box = {"type": "readOnly", "networkAccess": False}
    settings: Json = {"approvalPolicy": "never", "approvalsReviewer": "user", "sandboxPolicy": box}
    desk.daemon.note("thread/settings/updated", threadSettings=settings)
    page.wait(UNASKED)
    shoot(page, "unasked")
    say(page, "Go on.")
    page.wait_text("nothing is written to it from here")
    shoot(page, "refused")
    desk.daemon.note(
        "thread/settings/updated", threadSettings={**settings, "approvalPolicy": "on-request"}
    )
    page.wait(f"!({UNASKED})")
    assert desk.bridge.session(THREAD)["shared"] is True
