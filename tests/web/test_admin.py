"""The admin site in a browser: what the person at the desk sees and does (docs/operations.md)."""

import base64
import io
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qsl, urlsplit

import pytest
import zxingcpp
from PIL import Image

from tests.conformance.admin import PASSWORD
from tests.conformance.approvals import ask, decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_session
from tests.faults.quick import QuickBridge
from tests.web.browser import DESK, PHONE, Page
from tests.web.conftest import ROOM, MakePage

QR = zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode)

pytestmark = pytest.mark.web

SMALL = PHONE | {"width": 390, "height": 844}
LOOKS = [(size, dark) for size in (DESK, SMALL) for dark in (False, True)]
SHOWN = "!document.documentElement.hasAttribute('x-cloak') && document.fonts.ready.then(() => true)"
COMMAND = "git push --force origin main # \u202egnp.exe"
HTML = "<img src=x onerror=alert(1)>"
# the first page asks for itself every half minute, and may be left meanwhile
LEFT = ("htmx:sendAbort", "htmx:sendError", "ERR_ABORTED")
SCREENS = {
    "": "Approvals that wait",
    "devices_app/device/": "Revoke…",
    "devices_app/device/1/change/": "Tokens",
    "devices_app/device/1/revoke/": "Yes, revoke",
    "devices_app/device/pair/": "Show the code",
    "devices_app/auditentry/": "decision",
    "sessions_app/toolcall/": "modified",
    "sessions_app/toolcall/1/change/": "Asked by the agent.",
    "sessions_app/session/": "prompt before",
    "sessions_app/session/1/change/": "prompt before",
    "sessions_app/session/agents/": "Why not",
    "hooks_app/hookevent/": "PreToolUse",
    "auth/user/1/change/": "Last login",
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge with an admin user, an approval of each kind, and a device."""
    settings = ROOM | {"DJANGO_SUPERUSER_PASSWORD": PASSWORD}
    with QuickBridge(tmp_path_factory.mktemp("bridge"), **settings) as bridge:
        bridge.manage("make_admin", "--username", "ada")
        phone = bridge.phone(bridge.mint("--name", f"Ada's {HTML}")).ready()
        session_id = new_session()
        bridge.watch(phone, session_id)
        for decision in ("modified", "rejected", "approved"):
            call_id = ask(bridge, phone, session_id, {"command": f"ls {decision}"})
            decide(phone, session_id, call_id, decision, {"command": "ls -l"})
        ask(bridge, phone, session_id, {"command": COMMAND}, risk="critical", reasoning=HTML)
        phone.close()
        yield bridge


@pytest.fixture
def page(make_page: MakePage, desk: Bridge) -> Page:
    """A browser that has just signed in."""
    made = make_page(desk)
    made.expected += LEFT
    made.show_as(DESK)
    go(made, "")
    made.type("#id_username", "ada")
    made.type("#id_password", PASSWORD)
    made.tap("button", "Log in")
    made.find("#now")
    made.wait(SHOWN)
    return made


def go(page: Page, path: str) -> None:
    page.driver.get(f"{page.base}/admin/{path}")
    page.wait(SHOWN, what="the page is shown")


def show(page: Page, path: str, size: dict[str, int], dark: bool) -> None:
    """Open a page in a size and a theme, which the site takes as it loads."""
    page.show_as(size, dark=dark)
    go(page, path)
    page.wait("document.documentElement.classList.contains('dark') === arguments[0]", dark)


@pytest.mark.parametrize(("size", "dark"), LOOKS)
def test_every_screen(page: Page, axe: str, size: dict[str, int], dark: bool) -> None:
    """axe finds nothing, nothing hangs over, nothing is asked for elsewhere."""
    page.requests()  # what the browser's own first page asked for
    for path, text in SCREENS.items():
        show(page, path, size, dark)
        page.wait("document.body.textContent.includes(arguments[0])", text, what=text)
        page.check_accessibility(axe)
        wide = page.js("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, (path, wide)
        assert not page.js("document.querySelector('[onerror]')")
    asked = [one for one in page.requests() if not one.startswith("data:")]
    assert asked and all(one.startswith(f"{page.base}/") for one in asked)


def test_the_first_page(page: Page, desk: Bridge) -> None:
    """What waits with its whole command, who is connected, the events, what doctor says."""
    page.wait_text("Approvals that wait 1", "prompt before", "Hook events an hour")
    page.wait_text("git push --force origin main # \ufffdgnp.exe")
    assert "\u202e" not in page.text
    assert page.find("#nav-sidebar a", "Approvals").text.split()[-1] == "1"
    assert page.js("document.querySelectorAll('.bridge-hour').length") == 24
    page.wait_text("What doctor finds", "quick checks found nothing wrong")
    with desk.phones(1):
        page.driver.refresh()
        page.find("#now li", "connected")
    page.tap("#now .bridge-call a", "Bash")
    page.wait_text("What was asked", HTML, "Asked by the agent.")
    assert page.js("document.querySelector('#content form [type=submit]')") is None


def test_pairing(page: Page, desk: Bridge, axe: str) -> None:
    """The picture is a code that pairs one device, and the page says when that has happened."""
    page.tap("#nav-sidebar a", "Pair a device")
    page.type("#name", "Bob's tablet")
    page.tap("button", "Show the code")
    code = page.find(".bridge-code")
    link = page.find("pre.bridge-text").text
    page.check_accessibility(axe)
    picture = Image.open(io.BytesIO(base64.b64decode(code.screenshot_as_base64)))
    (read,) = zxingcpp.read_barcodes(picture, formats=QR)
    assert read.text == link
    values = dict(parse_qsl(urlsplit(link).fragment))
    page.wait_text("Waiting for the device")
    with closing(Phone(desk.port, values["token"], values["pin"]).ready()):
        page.wait_text("Bob's tablet is paired, from 127.0.0.1.")
    go(page, "devices_app/auditentry/?q=ada")
    page.wait_text("pairing_code", "Bob's tablet")
