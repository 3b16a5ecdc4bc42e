"""The model, commands, files and a plan, as a person taps them (D69)."""

from collections.abc import Iterator

import pytest

from tests.conformance import agents
from tests.conformance.agent_tools import Script, quick_bridge
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.servers import wait_until
from tests.web.actions import say
from tests.web.browser import NETWORK, Page
from tests.web.conftest import ROOM, MakePage
from tests.web.link import Link
from tests.web.test_screens import check

pytestmark = pytest.mark.web
COMMANDS = [
    {"name": "compact", "description": "Shorten what was said", "input": {"hint": "what to keep"}},
    {"name": "review", "description": "Look at the changes"},
    {"name": "precompact", "description": ""},
]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "offers")


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    with quick_bridge(tmp_path_factory.mktemp("bridge"), script, **ROOM) as bridge:
        for name in ("src/main.py", "README.md"):
            file = bridge.root / name
            file.parent.mkdir(exist_ok=True)
            file.touch()
        yield bridge


@pytest.fixture
def session(make_page: MakePage, bridge: Bridge, phone: Phone) -> tuple[Page, str]:
    page = make_page(bridge).pair()
    session = agents.begin(bridge, phone, agent="offers")
    agents.ask(
        phone, session, f"/do update('available_commands_update', availableCommands={COMMANDS})"
    )
    page.open(f"s/{session}")
    page.find(".composer textarea")
    page.wait_ready()
    page.find("header button", "Small")  # with what may be chosen come the commands
    return page, session


def key(page: Page, name: str) -> None:
    page.js(
        "document.querySelector('.composer textarea').dispatchEvent("
        "new KeyboardEvent('keydown', { key: arguments[0], bubbles: true, cancelable: true }))",
        name,
    )


def choose(page: Page, place: str, value: str) -> None:
    page.js(
        "((s, value) => { s.value = value; s.dispatchEvent(new Event('change')); })"
        "(document.querySelector(arguments[0]), arguments[1])",
        place,
        value,
    )


def test_the_model_is_chosen(session: tuple[Page, str], script: Script) -> None:
    page, _ = session
    page.tap("header button", "Small")
    page.find("dialog select#option-brain")
    choose(page, "#option-brain", "large")
    page.find("dialog .status", "It holds from the agent's next step")
    page.tap("dialog button", "Close")
    page.find("header button", "Large · Small")
    assert script.lines("set")[-1]["value"] == "large"


def test_its_screens(session: tuple[Page, str], axe: str) -> None:
    page, _ = session
    page.tap("header button", "Small")
    check(page, axe, "Thinking")
    page.tap("dialog button", "Close")
    page.type(".composer textarea", "/comp")
    check(page, axe, "what to keep")
    page.open("new")
    page.wait("document.querySelectorAll('#agent option').length")
    choose(page, "#agent", "offers")
    page.tap("summary", "More")
    check(page, axe, "Thinking", "In a new work tree")


def test_a_command_is_completed(session: tuple[Page, str]) -> None:
    page, _ = session
    page.type(".composer textarea", "/comp")
    page.find(".completions [aria-selected=true]", "compact")
    page.wait("document.querySelectorAll('.completions li').length === 2")
    key(page, "ArrowDown")
    page.find(".completions [aria-selected=true]", "precompact")
    key(page, "ArrowUp")
    key(page, "Enter")
    page.wait("document.querySelector('.composer textarea').value === '/compact '")
    page.wait("document.querySelector('.completions').hidden")


def test_a_file_is_completed(session: tuple[Page, str]) -> None:
    page, _ = session
    page.type(".composer textarea", "Look at @sm")
    page.tap(".completions li", "src/main.py")
    page.wait("document.querySelector('.composer textarea').value === 'Look at @src/main.py '")


def test_a_file_is_completed_when_the_bridge_is_back(make_page: MakePage, link: Link) -> None:
    (link.bridge.root / "small.py").write_text("x")
    page = make_page(link.bridge).pair()
    with link.bridge.phones() as (phone,):
        session = agents.begin(link.bridge, phone)
        page.open(f"s/{session}").wait_ready()
        page.expected.append(NETWORK)
        page.wait_whole()
        link.cut()
        page.wait("document.querySelector('.connection').innerText === 'Offline'")
        page.type(".composer textarea", "Look at @sma")
        link.mend()
        page.tap(".completions li", "small.py")
        page.wait("document.querySelector('.composer textarea').value === 'Look at @small.py '")


def test_what_changes_how_it_asks_is_not_sent(session: tuple[Page, str]) -> None:
    page, _ = session
    say(page, "/yolo")
    page.wait_text("is not given to the agent")


def test_a_plan_is_read_and_approved(make_page: MakePage, bridge: Bridge, phone: Phone) -> None:
    page = make_page(bridge).pair()
    session = agents.begin(bridge, phone)
    page.open(f"s/{session}")
    plan = "# The plan\\n\\n1. Read **all**\\n2. Write"
    say(page, f'/tool ExitPlanMode {{"plan": "{plan}"}}')
    page.find(".deciding .markdown strong", "all")
    page.tap(".rule-offers summary", "Go on, allow this session…")
    page.find(".rule-offer button", "Go on, allow this session: edits of files")
    page.tap(".reasons button", "Say what to change")
    page.type(".reasons input", "First the tests")
    page.tap(".reasons button", "Send")
    page.wait_text("ExitPlanMode was rejected.")
    say(page, f'/tool ExitPlanMode {{"plan": "{plan}"}}')
    page.tap(".deciding .primary", "Go on")
    page.wait_text("ExitPlanMode is over.")


def test_a_new_session_begins_with_what_was_chosen(
    session: tuple[Page, str], bridge: Bridge, script: Script
) -> None:
    page, _ = session
    page.find("header button", "Small")  # so it is known what this agent offers
    page.open("new")
    page.wait("document.querySelectorAll('#agent option').length")
    choose(page, "#agent", "offers")
    page.find("#option-brain")
    choose(page, "#option-brain", "large")
    page.js("document.querySelector('#directory').value = arguments[0]", str(bridge.root))
    page.type("#prompt", "begin with this")
    page.tap("button", "Start")
    page.wait_text("begin with this")
    page.find("header button", "Large")
    wait_until(lambda: script.prompts()[-1:] == ["begin with this"])
    last = script.journal.read_text().splitlines()[-2:]
    assert '"set"' in last[0] and '"large"' in last[0] and "begin with this" in last[1]
