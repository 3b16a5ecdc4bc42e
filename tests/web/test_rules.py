"""Yes once for a session, and no with a reason, as a person taps them (D68)."""

import pytest

from tests.conformance import agents
from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.web.actions import say
from tests.web.browser import Page
from tests.web.conftest import MakePage
from tests.web.test_screens import check

pytestmark = pytest.mark.web
OFFER = "Approve for this session: builds and tests"


@pytest.fixture
def session(make_page: MakePage, bridge: Bridge, phone: Phone) -> tuple[Page, str]:
    page = make_page(bridge).pair()
    session = agents.begin(bridge, phone)
    page.open(f"s/{session}")
    page.find(".composer textarea")
    return page, session


def test_a_rule_is_kept_shown_and_taken_back(session: tuple[Page, str]) -> None:
    page, _ = session
    say(page, '/tool Bash {"command": "pytest -q"}')
    page.tap(".rule-offers summary", "Approve for this session…")
    page.find(".rule-offer .meta", "Not: installing, deploying")
    page.tap(".rule-offer button", OFFER)
    page.wait_text("Bash is over.")
    say(page, '/tool Bash {"command": "npm test"}')
    page.find("details.tool .whose", "by your rule: builds and tests")
    page.tap("header button", "1 rule")
    page.find("dialog .rule .meta", "used 1 time")
    page.tap("dialog .rule button", "Remove")
    page.find("dialog .empty", "Every call that changes something asks.")
    page.tap("dialog button", "Close")
    say(page, '/tool Bash {"command": "npm test"}')
    page.find(".rule-offers summary", "Approve for this session…")


def test_its_screens(session: tuple[Page, str], axe: str) -> None:
    page, _ = session
    say(page, '/tool Bash {"command": "pytest -q"}')
    page.tap(".reasons button", "Reject and say why")
    page.tap(".rule-offers summary", "Approve for this session…")
    check(page, axe, "Not: installing, deploying")
    page.tap(".deciding a", "Details")
    page.tap("dialog .rule-offers summary", "Approve for this session…")
    check(page, axe, "Not: installing, deploying")
    page.tap("dialog .rule-offer button", OFFER)
    page.tap("dialog button", "Done")
    page.tap("header button", "1 rule")
    check(page, axe, "builds and tests")


def test_a_refusal_says_why(session: tuple[Page, str], phone: Phone) -> None:
    page, id_ = session
    say(page, '/tool Bash {"command": "npm test"}')
    page.tap(".reasons button", "Reject and say why")
    page.type(".reasons input", "Use make test instead")
    page.tap(".reasons button", "Reject")
    page.wait_text("Bash was rejected.")
    phone.expect("tool_result", session_id=id_)
    (ended,) = of(phone, "tool_result", id_)
    assert ended["payload"]["result"]["error"] == "Use make test instead"


def test_what_can_destroy_has_no_rule(session: tuple[Page, str]) -> None:
    page, _ = session
    say(page, '/tool Bash {"command": "rm -rf build"}')
    page.tap(".decide", "Decide")
    page.find("dialog .hold")
    assert page.js("document.querySelectorAll('.rule-offer').length") == 0
