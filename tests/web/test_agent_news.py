"""What an agent's own ways show: its plan, its form, a message that it was too busy for (D71)."""

import time
from collections.abc import Iterator

import pytest

from tests.conformance import agents
from tests.conformance.agent_tools import Script, quick_bridge
from tests.conformance.bridge import Bridge
from tests.faults.quick import with_limits
from tests.web.actions import close_sheet, say
from tests.web.browser import Page
from tests.web.conftest import ROOM, MakePage
from tests.web.test_screens import check

pytestmark = pytest.mark.web
QUICK = with_limits(ACP_BUSY_SECONDS=0.5, ACP_BUSY_MAX_SECONDS=1, ACP_REFUSAL_SECONDS=0.5)
STEPS = [("Find the bug", "completed"), ("Mend it", "in_progress"), ("Test it", "pending")]


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    script = Script(tmp_path_factory.mktemp("script"), "plain")
    place = tmp_path_factory.mktemp("bridge")
    with quick_bridge(place, script, first=QUICK, **ROOM) as bridge:
        yield bridge


@pytest.fixture
def page(make_page: MakePage, bridge: Bridge) -> Page:
    """The conversation of a session of the scripted agent."""
    page = make_page(bridge).pair()
    session = agents.begin(bridge, bridge.phone().ready(), agent="plain")
    page.open(f"s/{session}")
    page.find(".composer textarea")
    return page


def test_a_plan_is_one_card(page: Page) -> None:
    """It is kept up to date, and stays as a person has left it."""
    plan = [{"content": text, "status": status} for text, status in STEPS]
    say(page, f"/do update('plan', entries={plan}); say('planned')")
    page.wait_text("1 of 3 steps done")
    page.find(".steps li", "✓ Find the bug")
    page.tap("details.tool summary", "Plan")
    done = [one | {"status": "completed"} for one in plan]
    say(page, f"/do [update('plan', entries=one) for one in ({plan}, {done})]")
    page.wait_text("3 of 3 steps done")
    assert page.js("[...document.querySelectorAll('details.tool')].map((one) => one.open)") == [
        False,
        True,
    ]


def test_a_form_takes_what_it_asks_for(page: Page) -> None:
    """What may be left out is not required; where only choices fit there is no field for words."""
    fields = {
        "colour": {"type": "string", "enum": ["Red", "Blue"]},
        "key": {"type": "string", "title": "API key"},
    }
    form = {"mode": "form", "message": "How?", "requestedSchema": {"properties": fields}}
    say(page, f"/do say(str(answer(request('elicitation/create', **{form}))))")
    page.tap(".decide", "Decide")
    page.find("dialog .question legend", "It asks for a secret")
    assert page.js("document.querySelectorAll('dialog .question input[type=text]').length") == 1
    assert page.js("document.querySelector('dialog .sheet-foot .primary').disabled")
    page.tap("dialog .choice", "Blue")
    page.tap("dialog .primary", "Answer")
    close_sheet(page)
    page.wait_text("{'colour': 'Blue'}")


def test_a_message_that_is_taken_back(page: Page, bridge: Bridge) -> None:
    """What waits is withdrawn, or written again; neither is given to the agent."""
    say(page, "/do while not os.path.exists('go'): time.sleep(0.01)")
    page.find(".prompt .meta", "Delivered to agent")
    say(page, "never")
    page.tap(".prompt button", "Withdraw")
    page.find(".prompt .meta", "Withdrawn")
    say(page, "write it")
    page.tap(".prompt button", "Edit")
    page.wait("document.querySelector('.composer textarea').value === 'write it'")
    page.tap(".composer button[type=submit]")
    page.find(".prompt .meta", "Queued")
    (bridge.root / "go").touch()
    page.wait_text("8 characters")
    assert "5 characters" not in page.js("document.body.innerText")


def test_a_message_for_later(page: Page) -> None:
    """It waits for the time that a person chooses, or for the end of a limit that is known."""
    limit = {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": 4_000_000_000}
    meta = {"_claude/rateLimit": limit}
    say(page, f"/do update('usage_update', used=1, size=9, _meta={meta})")
    page.find("header button", "11\u00a0% of its context")
    page.type(".composer textarea", "for later")
    page.tap(".composer [aria-label='When to send']")
    page.find("dialog button", "When the limit ends")
    page.tap("dialog .primary", "Send then")
    page.find(".prompt .meta", "Waits until")
    page.tap(".prompt button", "Withdraw")
    page.find(".prompt .meta", "Withdrawn")


def test_a_message_that_the_agent_does_not_take(page: Page) -> None:
    """What became of it stands at it, and it can be sent again."""
    say(page, "/do agent.busy = ['busy'] * 5")
    page.find(".prompt .meta", "Delivered to agent")
    say(page, "hello")
    page.find(".prompt .meta", "Queued")
    page.find(".prompt .meta", "Not taken: the agent was busy")
    page.tap(".prompt button", "Try again")
    page.wait_text("5 characters")
    assert page.js("document.querySelectorAll('.prompt .bubble').length") == 3


def test_what_it_has_used(page: Page, axe: str) -> None:
    """A line, the numbers after a tap, and once a word of a context that is nearly full (D72)."""
    limit = {"status": "allowed_warning", "rateLimitType": "five_hour", "utilization": 0.8}
    meta = {"_claude/rateLimit": limit | {"resetsAt": int(time.time()) + 7200}}
    page.keep_toasts()
    say(page, f"/do update('usage_update', used=31, size=50, _meta={meta})")
    page.tap("header button", "62\u00a0% of its context · limit 80\u00a0%, until")
    page.wait_text("31 of 50 tokens")
    check(page, axe, "31 of 50 tokens")
    page.tap("dialog button", "Close")
    check(page, axe, "62\u00a0% of its context")
    for used, share in ((41, 82), (5, 10), (45, 90)):
        say(page, f"/do update('usage_update', used={used}, size=50)")
        page.find("header button", f"{share}\u00a0% of its context")
    page.find(".toast", "80 % of its context is used")
    assert page.js("document.querySelectorAll('.toast.warn').length") == 1
