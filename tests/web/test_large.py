"""Much of everything: ten thousand rows, a megabyte from a tool."""

from __future__ import annotations

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session
from tests.web.conftest import MakePage

pytestmark = pytest.mark.web

ROWS = 10_000
BATCH = 500
LONG = 600  # seconds for so many on a busy machine
SHOWN = "[...document.querySelectorAll('.stream .item')]"


def post_prompts(bridge: Bridge, session_id: str, first: int, last: int) -> None:
    events = [
        hook("UserPromptSubmit", session_id, {"prompt": f"prompt {number} of many"})
        for number in range(first, last)
    ]
    for at in range(0, len(events), BATCH):
        assert bridge.post_batch(events[at : at + BATCH]).status == 200


def test_ten_thousand_rows(make_page: MakePage, bridge: Bridge) -> None:
    """They come while the session is on the screen; a screen's worth stands in the DOM."""
    session_id = new_session()
    post_prompts(bridge, session_id, 0, 1)
    page = make_page(bridge).pair()
    page.tap(".row-link", "prompt 0 of many")
    page.wait_text("it can be watched here")
    post_prompts(bridge, session_id, 1, ROWS)
    page.wait_text(f"prompt {ROWS - 1} of many", seconds=LONG)
    assert page.js(f"{SHOWN}.length") <= 200
    assert page.js("document.getElementsByTagName('*').length") < 3000

    page.driver.refresh()
    page.wait_text(f"prompt {ROWS - 1} of many", seconds=LONG)
    page.wait_ready()
    assert page.js(f"{SHOWN}.length") <= 200
    # Upwards, further than what was loaded at once.
    page.wait(
        "(() => { const list = document.querySelector('.scroller.anchored'); list.scrollTop = 0;"
        f" return /prompt 8[0-9]{{3}} of/.test({SHOWN}[0]?.innerText); }})()",
        what="a row from further up",
        seconds=LONG,
    )
    assert page.js(f"{SHOWN}.length") <= 200
    post_prompts(bridge, session_id, ROWS, ROWS + 5)
    page.tap(".newer", "5 new")
    page.wait_text(f"prompt {ROWS + 4} of many")
