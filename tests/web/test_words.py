"""A word at a line of a difference, of a file or of an edit, as a person taps it."""

import pytest

from tests.conformance import agents
from tests.conformance.approvals import of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository
from tests.conformance.samples import new_id
from tests.web.actions import say
from tests.web.browser import Page
from tests.web.test_screens import check

pytestmark = pytest.mark.web
BAR = ".words summary"
LINES = ".takes-words .line .code, .takes-words ol.code li span"  # once a click does something


@pytest.fixture
def repository(bridge: Bridge) -> Repository:
    repository = Repository(bridge.root / new_id())
    repository.commit_files({"app.py": "def greet(name):\n    return name\n", "b.txt": "one\n"})
    repository.write_files(
        {"app.py": "def greet(name):\n    return 'Hi ' + name\n", "b.txt": "2\n"}
    )
    return repository


def write(page: Page, line: str, text: str, *, to: str = "", lines: str = LINES) -> None:
    """Say something of a line, or of all lines from it to another one."""
    for one in filter(None, (line, to)):
        page.tap(lines, one)
    page.type(".word textarea", text)
    page.tap(".word button", "Add")


def test_words_at_changes_are_one_message(
    page: Page, bridge: Bridge, phone: Phone, repository: Repository, axe: str
) -> None:
    session = agents.start(phone, repository.path)["payload"]["session_id"]
    page.open(f"s/{session}/changes").tap(".file summary", "app.py")
    write(page, "return name", "Say hello.", to="return 'Hi '")
    page.find(BAR, "1 comment")
    page.tap(".file summary", "b.txt")
    page.tap(".line .code", "2")
    page.find(".word .meta", "b.txt, line 1 (new)")
    check(page, axe, "Tap another line")
    page.type(".word textarea", "Why?")
    page.tap(".word button", "Add")
    page.find(BAR, "2 comments")
    page.open(f"s/{session}/files/app.py")  # they are kept, and more come from elsewhere
    write(page, "def greet", "Rename it.")
    page.tap(BAR, "3 comments")
    page.type(".words textarea", " Loudly.")
    check(page, axe, "app.py, line 1")
    page.tap(".words li:last-child button", "Remove")
    repository.write("b.txt", "3\n")
    page.tap(".words > button", "Send")
    page.wait("document.querySelector('.words').hidden", what="they are sent")
    told = phone.expect("agent_event", session_id=session)["payload"]["payload"]["prompt"]
    assert told == (
        "app.py, line 2 (new):\n> -    return name\n> +    return 'Hi ' + name\n\n"
        "Say hello. Loudly.\n\n"
        "b.txt, line 1 (new), changed since:\n> +2\n\nWhy?"
    )
    page.driver.refresh()
    page.find("ol.code li")
    assert page.js("document.querySelectorAll('.words li').length") == 0


def test_words_at_an_edit_are_the_reason(
    page: Page, bridge: Bridge, phone: Phone, axe: str
) -> None:
    session = agents.begin(bridge, phone)
    page.open(f"s/{session}").find(".composer textarea")
    say(page, '/tool Edit {"file_path": "a.py", "old_string": "one", "new_string": "two"}')
    page.tap(".deciding a", "Details")
    write(page, "two", "Take three.", lines="dialog .takes-words .line .code")
    page.tap(f"dialog {BAR}", "1 comment")
    check(page, axe, "a.py (new)")
    page.tap("dialog .words > button", "Reject and say why")
    page.wait_text("Rejected")
    phone.expect("tool_result", session_id=session)
    (ended,) = of(phone, "tool_result", session)
    assert ended["payload"]["result"]["error"] == "a.py (new):\n> +two\n\nTake three."


def test_words_by_keys(page: Page, phone: Phone, repository: Repository) -> None:
    session = agents.start(phone, repository.path)["payload"]["session_id"]
    page.open(f"s/{session}/files/app.py").find(".takes-words ol.code li")
    page.js("document.querySelector('ol.code').focus()")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.js(
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown',"
            " {key: arguments[0], bubbles: true, cancelable: true}))",
            key,
        )
    page.find(".word .meta", "app.py, line 2")
