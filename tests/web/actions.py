"""What a person does with the client, and what happens at the machine meanwhile."""

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.web.browser import Page

# what was said in a conversation, without the line under each
PROMPTS = "[...document.querySelectorAll('.bubble.mine p:first-child')].map((p) => p.innerText)"


def prepare_demo(page: Page, bridge: Bridge, prompt: str) -> None:
    """Fill in the screen for a new session, of the demo agent."""
    page.tap("a.button", "")
    page.wait("document.querySelectorAll('#agent option').length")
    page.js("document.querySelector('#agent').value = 'demo'")
    page.wait("document.querySelector('#directory').value", what="a directory is proposed")
    page.js("document.querySelector('#directory').value = arguments[0]", str(bridge.root))
    page.type("#prompt", prompt)
    page.find("button", "Start")


def start_demo(page: Page, bridge: Bridge, prompt: str) -> None:
    """Start a session of the demo agent on the screen for it, and wait until it answers."""
    prepare_demo(page, bridge, prompt)
    page.tap("button", "Start")
    page.find(".composer textarea")
    if not prompt.startswith("/"):
        page.wait_text("repeats what you say")


def say(page: Page, text: str) -> None:
    page.type(".composer textarea", text)
    page.tap(".composer button[type=submit]")


def talk(page: Page, text: str) -> None:
    """Say it to the demo agent, and wait for its answer."""
    say(page, text)
    page.wait_text(f"repeats what you say: {text}")


def session_of(page: Page) -> str:
    """The session whose conversation is on the screen."""
    return page.screen.split("/")[-1]


def ask_to_run(bridge: Bridge, command: str) -> str:
    """Let an agent of another device ask for a command; return its session."""
    phone = bridge.phone().ready()
    session_id = agents.begin(bridge, phone)
    agents.tool(phone, session_id, command=command)
    return session_id


def open_approval(page: Page, text: str) -> None:
    """Open the sheet of the approval whose card has this text."""
    page.tap(".card", text)
    page.find("dialog .sheet-foot")


def pause(page: Page) -> None:
    """Wait until what has just appeared or changed takes a tap."""
    page.wait("!document.querySelector('.guarded')", what="what has changed takes a tap")


def approve(page: Page, place: str = "dialog") -> None:
    """Approve on the open sheet or another place, by as many steps as the risk asks for."""
    page.tap(f"{place} .primary", "Approve")
    if page.js("Boolean(document.querySelector(`${arguments[0]} .armed`))", place):
        page.tap(f"{place} .armed")


def prepare(page: Page) -> None:
    """Take the first of the two steps that a high risk asks for."""
    page.tap("dialog .primary", "Approve…")
    page.find("dialog .armed")


def close_sheet(page: Page) -> None:
    page.tap("dialog .primary", "Done")
    page.wait("!document.querySelector('dialog')")
