"""Every screen by axe, silent, and by the keyboard alone, seen where it is (D53)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.attack.moody_lines import plays, put
from tests.conformance import agents
from tests.conformance.approvals import post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.repositories import Repository
from tests.conformance.samples import hook
from tests.faults.quick import QuickBridge
from tests.servers import wait_until
from tests.web.actions import (
    approve,
    ask_to_run,
    close_sheet,
    open_approval,
    pause,
    say,
    start_demo,
)
from tests.web.browser import DESK, NETWORK, PHONE, Page
from tests.web.conftest import ROOM, MakeBridge, MakePage

pytestmark = pytest.mark.web

SMALL = PHONE | {"width": 320}
LOOKS = [(size, {"dark": dark}) for size in (SMALL, PHONE, DESK) for dark in (False, True)]
LOOKS.append((PHONE, {"forced": True}))
# What a thumb cannot hit: lower than 44 px, but for links within a text.
LOW = (
    "[...document.querySelectorAll('button, summary, input, select, .button, .row-link')]"
    ".concat(...document.querySelectorAll('nav a, dd a'))"
    ".filter((node) => node.checkVisibility() && !node.closest('.unseen')"
    " && (node.closest('label') ?? node).getBoundingClientRect().height < 43.5)"
    ".map((node) => node.outerHTML.slice(0, 120))"
)
# What stands beside the screen though nothing scrolls there.
BESIDE = (
    "[...document.querySelectorAll('body *')].filter((node) => node.checkVisibility()"
    " && !node.closest('.unseen, .diff, pre, .code, .scroll, svg')"
    " && node.getBoundingClientRect().right > innerWidth + 1)"
    ".map((node) => node.outerHTML.slice(0, 120))"
)
# From 900 px the list stands beside the screen, and both are made anew when that changes.
LAID_OUT = (
    "((left) => !left || Boolean(left.childElementCount) === innerWidth >= 900)"
    "(document.querySelector('aside.left'))"
)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge with something on every screen: its sessions have ids that say what they are."""
    settings = ROOM | {"BRIDGE_ACP_AGENTS": "gone=no-such-program"}
    with QuickBridge(tmp_path_factory.mktemp("bridge"), **settings) as bridge:
        repository = Repository(bridge.root)
        repository.commit_files({"src/parser.py": "def parse(text):\n    return text\n"})
        changed = "def parse(text):\n    return [text]\n"
        repository.write_files({"src/parser.py": changed, "notes.txt": "new\n"})
        edit = {"file_path": str(bridge.root / "a.py"), "old_string": "1\n", "new_string": "2\n"}
        run = {"command": "npm test -- --watch=false login"}
        bridge.accept(
            hook("SessionStart", "observed", {"working_directory": str(bridge.root)}),
            hook("UserPromptSubmit", "observed", {"prompt": "Fix the login <b>test</b>"}),
            pre("observed", edit, tool="Edit", tool_use_id="t1"),
            post("observed", edit, tool="Edit", tool_use_id="t1"),
            pre("observed", run, approval=True, risk="medium"),
            hook("SessionStart", "ended", {"working_directory": str(bridge.root)}),
            hook("SessionEnd", "ended"),
        )
        yield bridge


def check(page: Page, axe: str, *texts: str) -> None:
    """In every size and theme: axe finds nothing, all is within the screen and in reach."""
    for metrics, theme in LOOKS:
        page.show_as(metrics, **theme)
        page.wait(LAID_OUT, what="the screen is laid out for this size")
        page.wait_text(*texts)
        page.check_accessibility(axe)
        wide = page.js("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{page.js('location.pathname')}: {wide} pixels too wide at {metrics}"
        assert page.js(BESIDE) == []
        assert page.js(LOW) == []
    page.show_as(PHONE)
    page.wait(LAID_OUT, what="the screen is laid out for a phone again")


def test_before_it_is_paired(make_page: MakePage, bridge: Bridge, axe: str) -> None:
    page = make_page(bridge).scan(bridge.pairing())
    page.find("button", "Use in this browser")
    check(page, axe)
    page.open().find("button", "Paste pairing link")
    check(page, axe)


def test_agents_that_are_found_come_first(
    make_bridge: MakeBridge, make_page: MakePage, tmp_path: Path, axe: str
) -> None:
    """The others are behind a fold, each with the reason (D75)."""
    programs = put(tmp_path / "bin/opencode", plays("opencode")).parent
    put(programs / "gemini", "true", version="exit 3")
    path = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    page = make_page(make_bridge(BRIDGE_AGENTS="opencode, gemini, qwen", **path)).pair()
    page.open("new").wait_text("opencode 1.2.3")
    names = "[...document.querySelectorAll('#agent option')].map((one) => one.value)"
    assert page.js(names) == ["opencode", "demo", "gemini"]
    page.tap("summary", "Other agents (2)")
    page.wait_text("gemini --version ended with code 3", "Qwen Code (qwen) is not installed")
    check(page, axe)


def test_with_nothing_on_them(page: Page, axe: str) -> None:
    for path, text in (
        ("", "No session yet"),
        ("approvals", "Nothing waits for you"),
        ("new", "First message"),
        ("settings", "What is wrong?"),
        ("wrong", "The clocks of this device and of the bridge agree"),
        ("s/unknown", "unknown"),
    ):
        page.open(path).wait_text(text)
        check(page, axe, text)
    asked = page.requests()
    assert len(asked) > 20
    assert [url for url in asked if not url.startswith((f"{page.base}/", "data:", "chrome:"))] == []


def test_with_something_on_them(make_page: MakePage, busy: Bridge, axe: str) -> None:
    page = make_page(busy).pair()
    for path, text in (
        ("", "Fix the login <b>test</b>"),
        ("new", "Other agents (1)"),
        ("approvals", "npm test"),
        ("s/observed", "Edit: "),
        ("s/observed/changes", "parser.py"),
        ("s/observed/files", "notes.txt"),
        ("s/observed/files/notes.txt", "new"),
    ):
        page.open(path).wait_text(text)
        check(page, axe, text)
    page.open("s/observed").tap("summary", "Edit: ")
    page.wait_text("Open file")
    check(page, axe)
    page.open("s/observed/changes").tap("summary", "parser.py")
    page.wait_text("return [text]")
    check(page, axe)


def test_an_approval_at_each_step(make_page: MakePage, busy: Bridge, axe: str) -> None:
    page = make_page(busy).pair()
    for command in ("ls -la", "echo high > high.txt", "rm -rf gone"):
        ask_to_run(busy, command)
        page.open("approvals")
        open_approval(page, command)
        check(page, axe)
        if command != "rm -rf gone":
            approve(page)
            page.wait_text("The agent was told")
            check(page, axe)
            close_sheet(page)


def test_a_long_edit_is_shown_whole(make_page: MakePage, busy: Bridge) -> None:
    """Nothing of what is decided about scrolls within itself: the sheet's end is its end."""
    text = {name: f"{name} {'word ' * 30}\n" * 20 for name in ("old_string", "new_string")}
    with busy.phones() as [phone]:
        agents.tool(phone, agents.begin(busy, phone), "Edit", file_path="long.py", **text)
    page = make_page(busy).pair()
    page.open("approvals")
    open_approval(page, "long.py")
    page.find(".sheet .diff", "new_string")
    cut = "[...document.querySelectorAll('.sheet-body *:not(.unseen)')].filter((node) =>"
    cut += (
        " node.clientHeight && node.scrollHeight > node.clientHeight + 1).map((n) => n.className)"
    )
    assert page.js(cut) == []


def test_a_conversation(make_page: MakePage, busy: Bridge, axe: str) -> None:
    page = make_page(busy).pair()
    start_demo(page, busy, "# Title\n\n- **bold** `code`\n- [a link](https://example.org)\n")
    say(page, "/fail because it was asked to")
    page.wait_text("The turn ended with an error")
    check(page, axe)
    say(page, '/tool Bash {"command": "echo in its card > card.txt"}')
    page.find(".deciding .reject")
    check(page, axe, "in its card")
    page.tap(".deciding .reject")
    page.wait("!document.querySelector('.deciding')")


def test_with_an_error(make_page: MakePage, busy: Bridge, axe: str) -> None:
    """Without a network: what was kept, what waits, and what cannot be read now."""
    page = make_page(busy).pair()
    page.expected.append(NETWORK)
    start_demo(page, busy, "Hello")
    page.offline()
    page.wait_text("Offline")
    say(page, "Try once more")
    page.wait_text("Waits for the connection")
    check(page, axe)
    for tab in ("Changes", "Files"):
        page.tap(".tabs a", tab)
        page.wait_text("Waits for the connection")
        check(page, axe)
    page.tap("header a.connection")
    page.wait_text("This device has no network")
    check(page, axe)


STEPS = 60  # more than any screen here has
NAMED = (
    "((at) => at.matches(arguments[0]) && (at.textContent + (at.getAttribute('aria-label') ?? ''))"
    ".includes(arguments[1]))"
)
HERE = f"{NAMED}(document.activeElement)"
THERE = f"[...document.querySelectorAll('*')].filter((at) => at.checkVisibility()).some({NAMED})"
SEEN = (
    "((at) => getComputedStyle(at).outlineStyle !== 'none' && at.checkVisibility())"
    "(document.activeElement)"
)

HELD_ENTER = {"type": "keyDown", "key": "Enter", "code": "Enter", "text": "\r"} | {
    "windowsVirtualKeyCode": 13,
    "autoRepeat": True,
}


def press(page: Page, *keys: str) -> None:
    ActionChains(page.driver).send_keys(*keys).perform()


def go(page: Page, selector: str, text: str = "") -> None:
    """Press Tab until the focus is on such an element, once it is there, and see the focus."""
    page.wait(THERE, selector, text, what=f"{selector} {text!r} is there")
    for _ in range(STEPS):
        press(page, Keys.TAB)
        if page.js(HERE, selector, text):
            assert page.js(SEEN), f"the focus on {selector} {text!r} is not seen"
            return
    raise AssertionError(f"no way to {selector} {text!r} by Tab:\n{page.text}")


def test_pair_decide_and_talk_by_the_keyboard(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge).scan(bridge.pairing())
    go(page, "button", "Use in this browser")
    press(page, Keys.ENTER)
    page.wait("document.querySelector('nav.bottom')")
    page.wait_ready()

    ask_to_run(bridge, "echo keys > keys.txt")
    go(page, ".card", "echo keys")
    pause(page)
    press(page, Keys.ENTER)
    page.find("dialog .sheet-foot")
    press(page, Keys.ESCAPE)
    page.wait("!document.querySelector('dialog')")
    page.wait(HERE, ".card", "echo keys", what="the focus is where it was")
    page.wait_equal("location.pathname", "/app/")
    press(page, Keys.ENTER)
    go(page, "dialog .primary", "Approve…")
    pause(page)
    press(page, Keys.ENTER)
    go(page, "dialog .armed")
    pause(page)
    page.cdp("Input.dispatchKeyEvent", **HELD_ENTER)  # one that is still held from before
    assert page.js(HERE, "dialog .armed", "")
    press(page, Keys.ENTER)
    page.wait(HERE, "dialog .primary", "Done", what="the focus is on what comes next")
    pause(page)
    press(page, Keys.ENTER)
    page.wait("!document.querySelector('dialog')")
    page.wait(HERE, "h1", "Sessions", what="the card is gone: the focus is on the screen")
    wait_until((bridge.root / "keys.txt").exists)

    go(page, ".row-link", "echo keys")
    press(page, Keys.ENTER)
    go(page, ".composer textarea")
    press(page, "Hello")
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait_text("repeats what you say: Hello")
