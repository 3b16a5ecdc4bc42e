"""A device chooses what it is told, and a session is muted (D74)."""

from collections.abc import Iterator

import pytest

from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge
from tests.push.conftest import ask, finish
from tests.web.browser import Page
from tests.web.conftest import ROOM, MakePage
from tests.web.test_screens import check

pytestmark = pytest.mark.web

TOASTS = "document.querySelector('#toasts').textContent"


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    with QuickBridge(tmp_path_factory.mktemp("told"), **ROOM) as made:
        yield made


def test_the_choices_in_settings(bridge: Bridge, make_page: MakePage, axe: str) -> None:
    """The bridge keeps them: another page of this device shows them too."""
    page = make_page(bridge).pair()
    page.open("settings").wait_text("What this device is told")
    page.tap("label.choice", "An agent is done")
    page.tap("label.choice", "Quiet hours")
    page.wait_text("By the clock of ")
    check(page, axe)
    page.js("""(() => {
        const [from, select] = ['quiet-from', 'reminder'].map((id) => document.getElementById(id));
        from.value = '21:15'; from.dispatchEvent(new Event('change'));
        select.value = '15'; select.dispatchEvent(new Event('change'));
    })()""")
    page.wait(shown("21:15", "15", "approval_required,error"))
    page.open("settings")
    page.wait(shown("21:15", "15", "approval_required,error"))
    page.tap("label.choice", "Quiet hours")
    page.wait("document.getElementById('quiet-from').closest('div').hidden")


def shown(quiet_from: str, reminder: str, kinds: str) -> str:
    """JavaScript: whether Settings shows these choices."""
    return f"""(
        document.getElementById('quiet-from')?.value === '{quiet_from}' &&
        document.getElementById('reminder').value === '{reminder}' &&
        [...document.querySelectorAll('fieldset [value]:checked')]
          .map((one) => one.value).filter((one) => /_|error/.test(one)).join() === '{kinds}'
    )"""


def test_a_muted_session(bridge: Bridge, make_page: MakePage, axe: str) -> None:
    """Its menu mutes it: the page says nothing of it but what is of high risk."""
    muted, other = finish(bridge, "One"), finish(bridge, "Other")
    page: Page = make_page(bridge).pair()
    page.open(f"s/{muted}").tap("[aria-label='Rename, pin, mute, archive or end']")
    check(page, axe, "This session")
    page.tap("dialog button", "Mute on this device")
    page.wait("!document.querySelector('dialog')", what="the sheet is closed")
    page.open("settings").wait_text("1 session muted")
    ask(bridge, "make", "medium", "medium", muted)
    ask(bridge, "make", "elsewhere", "medium", other)
    page.wait(f"{TOASTS}.includes('waits for you')")
    assert page.js("document.querySelectorAll('#toasts .toast').length") == 1
    ask(bridge, "rm -r build", "high", "high", muted)
    page.wait("document.querySelectorAll('#toasts .toast').length > 1")
    page.tap("button", "Unmute all")
    page.wait("!document.body.textContent.includes('1 session muted')")
