"""What is done on one phone, on the screens of another."""

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.web.conftest import MakePage

pytestmark = pytest.mark.web


def test_a_session_is_ended_on_the_other_phone(
    make_page: MakePage, bridge: Bridge, phone: Phone
) -> None:
    """In its conversation and in the list, without a tap or a reload."""
    session = agents.begin(bridge, phone)
    inside, outside = make_page(bridge).pair(), make_page(bridge).pair()
    inside.open(f"s/{session}").find(".composer textarea")
    outside.find(".row .state", "Idle")
    for page in (inside, outside):
        page.js("window.here = true")
    phone.request("session_end", {"session_id": session, "reason": "user_request"})
    inside.wait_text("The session was ended.", "This session has ended.")
    inside.find(".heading .doing", "Ended")
    outside.find("h2", "Ended")
    assert outside.js("document.querySelectorAll('.row .state').length") == 1
    assert inside.js("window.here") and outside.js("window.here")
