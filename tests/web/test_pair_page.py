"""Pairing: the page of the code, which never leaves it, and the client that uses it (D43, D53)."""

import json

import pytest

from tests.conformance.bridge import Bridge
from tests.web.browser import Page
from tests.web.conftest import MakePage

pytestmark = pytest.mark.web

TOKEN = "bridge_device_" + "Az0-_" * 8 + "abc"
PIN = "0123456789abcdef" * 4
VALUES = "['url', 'token', 'pin'].map((id) => document.getElementById(id).textContent)"
CODE_IS_SHOWN = "document.getElementById('code').checkVisibility()"


@pytest.fixture
def page(make_page: MakePage, bridge: Bridge) -> Page:
    """A browser that is not paired."""
    return make_page(bridge)


def url_of(page: Page) -> str:
    return page.base.replace("https", "wss") + "/api/v1/ws"


def scan(page: Page, *, token: str = TOKEN, url: str = "", pin: str = PIN, v: str = "1") -> str:
    """Open the page with these values; the link."""
    link = f"{page.base}/pair#v={v}&token={token}&url={url or url_of(page)}&pin={pin}"
    page.driver.get(link)
    return link


def allow_the_clipboard(page: Page) -> None:
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    page.cdp("Browser.grantPermissions", permissions=permissions, origin=page.base)


def test_it_shows_the_code_and_tells_nobody(page: Page) -> None:
    """Neither another address nor the history, nor who reloads the page."""
    scan(page)
    page.tap("summary")
    page.wait_equal(VALUES, [url_of(page), TOKEN, PIN])
    asked = [url for url in page.requests() if url.startswith("http")]
    assert asked == [f"{page.base}/pair"]
    assert page.driver.get_cookies() == []
    assert page.driver.current_url == f"{page.base}/pair"
    history = page.cdp("Page.getNavigationHistory")["entries"]
    assert not [entry for entry in history if TOKEN in entry["url"]]
    page.driver.refresh()
    page.wait_text("without a pairing code")
    assert not page.js(CODE_IS_SHOWN)


def test_it_copies(page: Page) -> None:
    """Each value, the link, or all as JSON; without a clipboard it selects."""
    allow_the_clipboard(page)
    link = scan(page)
    page.tap("summary")
    values = {"url": url_of(page), "token": TOKEN, "pin": PIN}
    read = "navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))"
    for name, expected in (values | {"link": link, "all": {"v": 1} | values}).items():
        page.tap(f"[data-copy={name}]")
        page.wait("document.getElementById('said').textContent.startsWith('Copied')")
        copied = page.driver.execute_async_script(read)
        assert (json.loads(copied) if name == "all" else copied) == expected
        page.js("document.getElementById('said').textContent = ''")
    page.js("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    page.tap("[data-copy=token]")
    page.wait("document.getElementById('said').textContent.startsWith('Selected')")
    assert page.js("String(getSelection())") == TOKEN


WRONG = [
    ({"token": "<img/src=x>"}, "damaged (token)"),
    ({"pin": "zz", "v": "2"}, "damaged (version, pin)"),
    ({"url": "javascript:alert(1)"}, "damaged (address)"),
    ({"url": "wss://evil.example/api/v1/ws"}, "another place"),
    ({"url": "wss://127.0.0.1@evil.example/"}, "another place"),
]


def test_another_code_in_the_same_tab(page: Page) -> None:
    """Takes the place of the first; one that is wrong is said and not shown."""
    scan(page)
    other = TOKEN[:-3] + "xyz"
    scan(page, token=other)
    page.wait_equal(VALUES, [url_of(page), other, PIN])
    assert other not in page.driver.current_url
    for changes, says in WRONG:
        page.driver.get("about:blank")
        scan(page, **changes)
        page.wait_text(says)
        assert not page.js(CODE_IS_SHOWN)
        assert page.js(VALUES) == ["", "", ""]
        assert page.driver.current_url == f"{page.base}/pair"


def test_a_code_pairs_this_browser_and_leaves_no_trace(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge)
    pairing = bridge.pairing()
    page.scan(pairing)
    assert bridge.get("/api/v1/sessions", pairing.token).status == 200  # not used yet
    page.tap("button", "Use in this browser")
    page.wait_ready()
    page.wait_text("No session yet")
    assert page.js("location.href") == f"{page.base}/app/"
    assert (
        page.js("[sessionStorage.length, localStorage.length, document.cookie.length]") == [0] * 3
    )
    history = page.cdp("Page.getNavigationHistory")["entries"]
    assert pairing.token not in str(history) + page.driver.page_source
    # What a camera may have seen besides is void: the client has changed it for another (D62).
    assert bridge.get("/api/v1/sessions", pairing.token).status == 401


def test_a_link_is_pasted(make_page: MakePage, bridge: Bridge) -> None:
    """On the pairing page the link is copied, in the app it is pasted; a wrong one is said."""
    page = make_page(bridge).scan(bridge.pairing())
    allow_the_clipboard(page)
    page.tap("button", "Copy pairing link")
    page.wait_text("Copied")
    page.open().type("#link", "nothing")
    page.tap("button", "Pair")
    page.wait_text("This is no pairing link")
    page.tap("button", "Paste pairing link")
    page.wait_ready()


def test_nothing_is_asked_for_elsewhere(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge).pair()
    for path in ("", "approvals", "new", "settings", "wrong", "s/none", "s/none/changes"):
        page.open(path).find("h1")
    asked = page.requests()
    assert len(asked) > 20
    assert [url for url in asked if not url.startswith((f"{page.base}/", "data:", "chrome:"))] == []
