"""Scan, and you are in: pairing and the first event (D53)."""

from __future__ import annotations

import pytest

from tests.conformance.bridge import Bridge
from tests.web.conftest import MakePage

pytestmark = pytest.mark.web


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
    page = make_page(bridge).open()
    pairing = bridge.pairing()
    link = f"{page.base}/pair#v=1&token={pairing.token}&url={pairing.url}&pin={pairing.pin}"
    for wrong, says in (
        ("", "no pairing code"),
        (link.replace(pairing.pin, "ff"), "damaged (pin)"),
        (link.replace("wss://127.0.0.1", "wss://evil.example"), "belongs to the bridge at evil"),
    ):
        page.js("arguments[0].value = arguments[1]", page.find("#link"), wrong)
        page.tap("button", "Pair")
        page.wait_text(says)
    page.js("document.querySelector('#link').value = arguments[0]", link)
    page.tap("button", "Pair")
    page.wait_ready()


def test_paste_reads_the_clipboard(make_page: MakePage, bridge: Bridge) -> None:
    """On the pairing page the link is copied, in the app it is pasted."""
    page = make_page(bridge).scan(bridge.pairing())
    page.cdp(
        "Browser.grantPermissions",
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
        origin=page.base,
    )
    page.tap("button", "Copy pairing link")
    page.wait_text("Copied")
    page.open().tap("button", "Paste pairing link")
    page.wait_ready()


def test_nothing_is_asked_for_elsewhere(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge).pair()
    for path in ("", "approvals", "new", "settings", "wrong", "s/none", "s/none/changes"):
        page.open(path).find("h1")
    asked = page.requests()
    assert len(asked) > 20
    assert [url for url in asked if not url.startswith((f"{page.base}/", "data:", "chrome:"))] == []
