"""The page of a code, the client that uses it, the authority it trusts (D43, D53, D55)."""

import contextlib
import ssl
from pathlib import Path

import pytest
from selenium.common.exceptions import WebDriverException

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates
from tests.conformance.bridge import Bridge
from tests.edge.test_trust import forged
from tests.servers import wait_until
from tests.web.browser import Page
from tests.web.conftest import MakePage
from tests.web.link import site
from tests.web.test_offline import wait_kept

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


def scan(page: Page, *, token: str = TOKEN, url: str = "", pin: str = PIN, v: str = "1") -> None:
    """Open the page with these values."""
    values = f"v={v}&token={token}&url={url or url_of(page)}&pin={pin}"
    page.driver.get(f"{page.base}/pair#{values}")


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
    for _ in range(2):  # opened once more, as by an old tab, it costs nothing
        page.scan(pairing).tap("button", "Use in this browser")
        page.wait_ready()
        assert page.js("location.pathname") == "/app/"


def test_a_link_is_pasted(make_page: MakePage, bridge: Bridge) -> None:
    """On the pairing page the link is copied, in the app it is pasted; a wrong one is said."""
    page = make_page(bridge).scan(bridge.pairing())
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    page.cdp("Browser.grantPermissions", permissions=permissions, origin=page.base)
    page.tap("button", "Copy pairing link")
    page.wait_text("Copied")
    page.open().type("#link", "nothing")
    page.tap("button", "Pair")
    page.wait_text("This is no pairing link")
    page.tap("button", "Paste pairing link")
    page.wait_ready()


def test_chromium_takes_the_authority_for_private_names_only(
    make_page: MakePage, bridge: Bridge
) -> None:
    """The bridge's own page is trusted, with its worker; a forged certificate only inside."""
    authority = bridge.data / "tls/ca.crt"
    page = make_page(bridge, authority=authority)
    page.pair()
    wait_kept(page)  # by its worker, which needs trust
    page.base = f"https://localhost:{bridge.port}"
    page.open()
    page.wait_text("Pair")
    found = certificates.load_or_renew(Conf(bridge_data_dir=bridge.data))
    for name, good in (("desk.local", True), ("a.ts.net", True), ("bank.example", False)):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*forged(found, name))
        with site(context) as port:
            address = f"https://{name}:{port}/"
            with contextlib.suppress(WebDriverException):  # the driver's word for a warning
                page.driver.get(address)
            page.wait_text("reached" if good else "NET::ERR_CERT_INVALID")


IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Safari/604.1"


def test_the_authority_is_downloaded_from_an_address_that_is_not_trusted(
    make_page: MakePage, bridge: Bridge, tmp_path: Path
) -> None:
    """It works, and the page says what that means, with the fingerprint that `doctor` shows."""
    page = make_page(bridge, trusted=False)
    page.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.cdp("Emulation.setUserAgentOverride", userAgent=IPHONE)
    page.driver.get(f"{page.base}/pair#trust")
    page.tap("#details-button")
    page.tap("#proceed-link")
    page.find("h1", "Trust this bridge")
    page.wait_text("could replace what you download here", "compare before you trust it")
    page.tap("a", "the profile")
    profile = tmp_path / "bridge.mobileconfig"
    wait_until(lambda: profile.exists() and profile.read_bytes(), "the profile is there")
    assert profile.read_bytes() == bridge.get("/ca.mobileconfig").body
    page.tap("summary", "Android")
    page.tap("[data-system=android] a", "the certificate")
    wait_until((tmp_path / "bridge-ca.crt").exists, "the certificate is there")
    assert (tmp_path / "bridge-ca.crt").read_bytes() == (bridge.data / "tls/ca.crt").read_bytes()
