"""The conversation of a session: at the machine, from yesterday, of 10,000 rows (D52, D53, D60)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import agents
from tests.conformance.agent_tools import Script, wait_status
from tests.conformance.approvals import pre
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session
from tests.hooks.scripted import fixture
from tests.live.test_real_hooks import Agent
from tests.web import actions
from tests.web.actions import PROMPTS, approve, close_sheet, say, start_demo, talk
from tests.web.browser import PHONE, Page
from tests.web.conftest import MakeBridge, MakePage

pytestmark = pytest.mark.web


def ask_to_use(page: Page, tool: str, params: dict[str, Any]) -> None:
    say(page, f"/tool {tool} {json.dumps(params)}")
    page.wait_text("waits for a decision")


def test_an_agent_is_started_decided_about_and_stopped(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "Say **hello**")
    page.wait_text("you say: Say hello")
    assert "from" not in page.find(".prompt .meta").text, "one's own prompt needs no name"
    chat = page.js("location.pathname")

    # A call is decided on its card; the sheet has the rest, over the chat that it leaves as it was.
    page.keep_toasts()
    ask_to_use(page, "Bash", {"command": "echo from the phone"})
    page.wait("document.querySelector('#announce').textContent.includes('Bash waits for you')")
    page.js("void (document.querySelector('.stream').dataset.mark = 'the same')")
    page.find(".deciding pre", "echo from the phone")
    page.tap(".deciding a", "Details")
    page.find("dialog .sheet-foot")
    page.tap("dialog button", "Close")
    page.wait("!document.querySelector('dialog')")
    page.wait_equal("location.pathname", chat)
    assert page.js("document.querySelector('.stream').dataset.mark") == "the same"
    approve(page, ".deciding")
    page.wait_text("Bash is over.")
    page.wait("!document.querySelector('.deciding')")

    # What is critical takes the sheet.
    ask_to_use(page, "Bash", {"command": "rm -rf gone"})
    page.tap(".decide", "Decide")
    page.tap("dialog .reject")
    page.wait_text("Rejected by you")
    close_sheet(page)
    page.tap("details.tool summary", "Bash")
    page.wait_text("from the phone\n")

    say(page, "/sleep 600")
    page.wait_text("5 6 7")
    page.tap(".composer button[aria-label='Stop the agent']")
    page.wait("!document.querySelector('.streaming')", what="the agent has stopped")
    page.wait("document.querySelector('.composer .danger').hidden", what="nothing to stop any more")
    page.wait_text("Stopped before it was done.")
    talk(page, "And on")

    page.type(".composer textarea", "Half a thought")
    with bridge.phones() as (other,):
        other.join(actions.session_of(page))
        agents.end(other, actions.session_of(page))
    page.wait_text("This session has ended.")
    assert page.find(".composer textarea").get_attribute("value") == "Half a thought"


def test_a_selection_stays_while_the_answer_goes_on(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "/sleep 600")
    page.wait_text("1 2 3")
    text = "document.querySelector('.streaming p').firstChild"
    page.js(f"void getSelection().setBaseAndExtent({text}, 0, {text}, 5)")
    selected = page.js("String(getSelection())")
    page.wait_text("5 6 7")
    assert selected and page.js("String(getSelection())") == selected
    page.tap(".composer button[aria-label='Stop the agent']")
    page.wait("!document.querySelector('.streaming')", what="the agent has stopped")


def test_a_message_into_a_running_turn(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "/sleep 600")
    page.wait_text("5 6 7", "Working")
    page.type(".composer textarea", "into it")
    page.tap(".composer [aria-label='When to send']")
    page.tap("dialog button", "Now")
    page.wait_text("Heard: into it")


def test_a_start_takes_nobody_away(page: Page, bridge: Bridge) -> None:
    """From where he has gone meanwhile."""
    actions.prepare_demo(page, bridge, "In the background")
    page.js("void (document.querySelector('form .primary').click(), history.back())")
    page.find(".row-link", "In the background")
    page.wait_equal("location.pathname", "/app/")


EDITOR = "[aria-label='Rename, pin, mute, archive or end']"
OPEN = "document.querySelectorAll('dialog[open]').length"
# what the worker tells the page when a push is tapped
PUSHED = (
    "void navigator.serviceWorker.dispatchEvent("
    "new MessageEvent('message', {data: {open: arguments[0]}}))"
)


def test_back_closes_a_sheet(page: Page, bridge: Bridge) -> None:
    """And leads nowhere else; what is opened by a push is not hidden by one."""
    start_demo(page, bridge, "Hello")
    chat = page.screen
    page.tap(EDITOR)
    page.find("dialog button", "Close")
    page.driver.back()
    page.wait_equal(OPEN, 0)
    assert page.screen == chat
    page.tap(EDITOR)
    page.tap("dialog button", "Close")
    page.wait_equal(OPEN, 0)
    page.wait("!history.state.sheets", what="its step is left")

    page.tap(EDITOR)
    page.find("dialog button", "Close")
    page.js(PUSHED, "/app/approvals")
    page.find(".screen h1", "Approvals")
    page.wait_equal(OPEN, 0)
    page.driver.back()
    page.find("h1#session-title")
    page.driver.back()
    page.find(".screen h1", "New session")


# whether the last sign of a node's text stands on the left of the first
TURNED = (
    "((text) => { const left = (at) => { const range = document.createRange();"
    " range.setStart(text, at); range.setEnd(text, at + 1);"
    " return range.getBoundingClientRect().left }; return left(text.length - 1) < left(0) })"
    "(document.querySelector(arguments[0]).firstChild)"
)


def test_words_from_right_to_left(page: Page, bridge: Bridge) -> None:
    """A sign at their end is on their left, also where they are typed and where an agent asks."""
    start_demo(page, bridge, "Hello")
    page.type(".composer textarea", "שלום")
    style = "getComputedStyle(document.querySelector('.composer textarea')).unicodeBidi"
    assert page.js(style) == "plaintext"
    question = {"question": "באיזה צבע?", "options": [{"label": "כחול"}, {"label": "Red"}]}
    phone = bridge.phone().ready()
    session_id = agents.begin(bridge, phone)
    agents.tool(phone, session_id, "AskUserQuestion", questions=[question])
    page.open("approvals")
    page.tap(".card")
    page.find("dialog legend")
    assert page.js(TURNED, "dialog legend")
    assert not page.js(TURNED, "dialog h1")


def test_a_session_at_the_machine_is_watched(page: Page, bridge: Bridge, tmp_path: Path) -> None:
    agent = Agent(bridge, tmp_path / "settings.json")
    session_id = new_session()

    def fire(name: str, **more: Any) -> None:
        agent.fire(fixture(name) | {"session_id": session_id} | more)

    fire("SessionStart-startup")
    fire("UserPromptSubmit", prompt="Fix the failing login test")
    page.tap(".row-link", "Fix the failing login test")
    page.wait_text("it can be watched here, not spoken to", "Fix the failing login test")
    assert not page.js("document.querySelector('.composer').checkVisibility()")
    fire("PreToolUse-Bash")
    fire("PermissionRequest-Bash", tool_input=fixture("PreToolUse-Bash")["tool_input"])
    page.wait_text("waits at the machine")
    page.tap(".decide", "Look at it")
    page.wait_text("Your answer is only recorded")
    page.tap("dialog .quiet", "Record approval")
    page.wait_text("Approved by you. Recorded; it is decided at the machine.")
    close_sheet(page)
    page.wait_text("waits at the machine")
    page.tap(".back")
    page.find(".row[data-state=machine] .state", "Waits at the machine")
    page.tap(".row-link", "Fix the failing login test")
    fire("PostToolUse-Bash")
    page.wait_gone("waits at the machine")
    fire("Stop")
    page.wait_text(fixture("Stop")["last_assistant_message"])
    page.wait("document.querySelector('.composer .danger').hidden")
    page.tap(".back")
    session_id = new_session()  # of which only what every device is told has come
    for name in ("SessionStart-startup", "UserPromptSubmit", "Stop", "SessionEnd-other"):
        fire(name, cwd="/home/dev/opened-late")
    page.tap(".row[data-state=ended] .row-link", "opened-late")
    said = fixture("Stop")["last_assistant_message"]
    page.wait(f"/{said}[^]*The session/.test(document.body.innerText)", what="its end")


def test_a_conversation_from_yesterday(
    make_bridge: MakeBridge, make_page: MakePage, tmp_path: Path
) -> None:
    """A new browser sees the past, marked; one that has kept it sees nothing twice."""
    script = Script(tmp_path, "tells")
    bridge = make_bridge(
        BRIDGE_ACP_AGENTS=script.setting, BRIDGE_SESSION_GRACE_SECONDS="8", BRIDGE_QUEUE_MAX="9"
    )
    phone = bridge.phone().ready()
    session_id = agents.begin(bridge, phone, agent="tells")
    for number in range(4):
        agents.ask(phone, session_id, f"number {number}")
    phone.close()
    wait_status(bridge, session_id, "closed")

    page = make_page(bridge).pair()
    page.tap(".row-link", "number 0")
    page.tap("button", "Resume")
    page.find(".bubble.mine", "number 0")
    page.wait_text("from the agent's history")
    say(page, "and today")
    page.find(".bubble.mine", "and today")
    page.wait_text("9 characters")

    page.open()  # nobody is in the session any more
    wait_status(bridge, session_id, "closed")
    page.tap(".row-link", "number 0")
    say(page, "more")  # which resumes it
    page.wait_text("4 characters")
    page.show_as(PHONE | {"height": 3000})  # so that nothing is above the list's window
    page.wait_equal(PROMPTS, [*(f"number {number}" for number in range(4)), "and today", "more"])

    page.show_as(PHONE)
    page.open()
    wait_status(bridge, session_id, "closed")
    page.tap(".row-link", "number 0")
    page.tap("button", "End session")
    page.tap("button.armed", "Yes, end it")
    page.wait_text("This session has ended.")


def test_it_is_ended_from_its_menu(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge).pair()
    start_demo(page, bridge, "hello")
    page.tap(EDITOR)
    page.tap("dialog button", "End session")
    page.tap("dialog button.armed", "Yes, end it")
    page.wait_text("This session has ended.")
    page.tap(EDITOR)
    page.find("dialog button", "Archive")
    assert page.js("document.querySelector('dialog .wide:last-of-type').hidden") is True


MARKDOWN = """**Changes:**
1. one
2. two
- a
- b

Counts:
| file | lines |
|---|--:|
| `x\\|y` | 2 |
| - | - |
| z | 3 |

\\*No emphasis\\*, see https://example.org/wiki/A_(b) or [it](https://example.org/C_(d))."""
SHOWN = "[...document.querySelectorAll('.stream .item')]"
READ = f"{SHOWN}.find((item) => item.getBoundingClientRect().bottom > 300)?.innerText"


def test_answers_as_models_write_them(page: Page, bridge: Bridge) -> None:
    """Without the empty lines that Markdown may want. Where one reads one comes back to."""
    session_id = new_session()
    post_prompts(bridge, session_id, 0, 60)
    bridge.accept(hook("Stop", session_id, {"reason": "task_completed", "message": MARKDOWN}))
    page.open(f"s/{session_id}")
    page.wait_text("x|y", "*No emphasis*")
    blocks = "[...document.querySelector('.markdown').children].map(({tagName}) => tagName)"
    page.wait_equal(blocks, ["P", "OL", "UL", "P", "DIV", "P"])
    targets = ["https://example.org/wiki/A_(b)", "https://example.org/C_(d)"]
    page.wait_equal("[...document.querySelectorAll('.markdown a')].map(({href}) => href)", targets)
    page.js("document.querySelector('.scroller.anchored').scrollTop -= 1500")
    page.find(".newer", "Newest")
    read = page.js(READ)
    assert read.startswith("prompt ")
    page.tap(".tabs a", "Changes")
    page.find(".tabs a[aria-current=page]", "Changes")
    page.driver.back()
    page.wait_equal(READ, read)
    page.tap(".newer", "Newest")
    page.find(".markdown td", "x|y")
    searched = {"path": "src", "pattern": "needle"}
    bridge.accept(pre(session_id, searched, tool="Search", tool_use_id="t"))
    page.tap("details.tool summary", "Search: needle")
    page.wait_text('"path": "src"')
    itself = {"prompt": "The job is over.", "context": {"synthetic": True}}
    bridge.accept(hook("UserPromptSubmit", session_id, itself))
    page.wait_text("From the agent itself: The job is over.")
    bridge.accept(hook("SessionEnd", session_id))
    page.find(".tool[data-state=stopped]", "stopped")


ROWS = 10_000
BATCH = 500
LONG = 600  # seconds for so many on a busy machine


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


@pytest.mark.parametrize("size", [(740, 170), (180, 200)], ids=["lying", "large letters"])
def test_what_is_written_is_seen_above_the_keyboard(
    make_page: MakePage, bridge: Bridge, phone: Phone, size: tuple[int, int]
) -> None:
    page = make_page(bridge).pair()
    page.open(f"s/{agents.begin(bridge, phone)}").find(".composer textarea")
    page.show_as(PHONE | dict(zip(("width", "height"), size, strict=True)))
    page.js("document.querySelector('.composer textarea').focus()")
    page.wait(
        "(({ top, bottom, width }) => top >= 0 && bottom <= innerHeight && width > 120)"
        "(document.querySelector('.composer textarea').getBoundingClientRect())"
    )
    assert page.js("innerHeight") == size[1]
