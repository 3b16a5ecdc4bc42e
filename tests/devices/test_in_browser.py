"""The pairing page in a real browser: the fragment is read, cleared, shown, copied, and never
leaves it (D43). And the admin site's forms.
"""

from __future__ import annotations

import json
import shutil
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import pytest
from django.core.handlers.wsgi import WSGIHandler
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from bridge_project.kernel.config import conf
from bridge_project.network import certificates as tls_certificates

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.skipif(
        not (BROWSER and DRIVER),
        reason="no chromium and chromedriver on this machine (apt install chromium-driver)",
    ),
]

TOKEN = "bridge_device_" + "Az0-_" * 8 + "abc"
PIN = "0123456789abcdef" * 4


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@dataclass
class Site:
    """The bridge's pages over TLS; ``asked`` holds the first line of every request and its
    headers.
    """

    host: str
    asked: list[str]

    def link(self, *, token: str = TOKEN, url: str = "", pin: str = PIN, version: str = "1") -> str:
        return f"https://{self.host}/pair#v={version}&token={token}&url={url or self.url}&pin={pin}"

    @property
    def url(self) -> str:
        return f"wss://{self.host}/api/v1/ws"


@pytest.fixture
def site() -> Iterator[Site]:
    asked: list[str] = []
    certificates = tls_certificates.load_or_renew(conf)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.chain, certificates.key)

    class Handler(WSGIRequestHandler):
        def setup(self) -> None:
            self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def get_environ(self) -> dict[str, Any]:
            asked.append(f"{self.requestline}\n{self.headers}")
            return {**super().get_environ(), "HTTPS": "on"}

        def log_message(self, format: str, *args: Any) -> None:
            """The test reads ``asked`` instead."""

    class Quiet(_Server):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A browser opens connections that it does not use."""

    server = Quiet(("127.0.0.1", 0), Handler)
    server.set_app(WSGIHandler())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Site(f"localhost:{server.server_port}", asked)
    server.shutdown()
    server.server_close()
    thread.join(180)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    profile = tmp_path_factory.mktemp("profile")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={profile}",
        "--window-size=430,932",
    ):
        options.add_argument(argument)
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=str(DRIVER))
    )
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome, site: Site) -> webdriver.Chrome:
    chromium.get("about:blank")
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    for kind in ("performance", "browser"):
        log_of(chromium, kind)  # what came before is not this test's
    return chromium


def log_of(browser: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    """What the browser logged since this was asked last."""
    return list(browser.get_log(kind))  # type: ignore[no-untyped-call]


def text_of(browser: webdriver.Chrome, name: str) -> str:
    return browser.find_element(By.ID, name).text


def open_values(browser: webdriver.Chrome, link: str) -> None:
    """Open the pairing page, and the part that is for other clients."""
    browser.get(link)
    browser.find_element(By.TAG_NAME, "summary").click()


def shown(browser: webdriver.Chrome) -> dict[str, str]:
    return {name: text_of(browser, name) for name in ("url", "token", "pin")}


def history_of(browser: webdriver.Chrome) -> list[str]:
    """The addresses that "back" and "forward" and the list of recent pages offer."""
    return [
        entry["url"]
        for entry in browser.execute_cdp_cmd("Page.getNavigationHistory", {})["entries"]
    ]


def requests_in(browser: webdriver.Chrome) -> list[str]:
    """Every address that the browser asked for, as its own log has it."""
    entries = [json.loads(entry["message"])["message"] for entry in log_of(browser, "performance")]
    found = [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in found if not url.startswith(("about:", "data:", "chrome:"))]


def test_it_shows_the_code_and_tells_nobody(browser: webdriver.Chrome, site: Site) -> None:
    open_values(browser, site.link())
    assert shown(browser) == {"url": site.url, "token": TOKEN, "pin": PIN}
    assert not browser.find_element(By.ID, "problem").is_displayed()
    assert [url.partition("#")[0] for url in requests_in(browser)] == [f"https://{site.host}/pair"]
    assert len(site.asked) == 1 and site.asked[0].startswith("GET /pair HTTP/1.1\n")
    assert TOKEN not in site.asked[0] and PIN not in site.asked[0]
    assert browser.get_cookies() == []
    assert log_of(browser, "browser") == []


def test_it_clears_the_fragment_from_address_and_history(
    browser: webdriver.Chrome, site: Site
) -> None:
    browser.get(site.link())
    assert browser.current_url == f"https://{site.host}/pair"
    assert TOKEN not in "".join(history_of(browser))
    browser.refresh()
    assert "without a pairing code" in text_of(browser, "problem")
    assert not browser.find_element(By.ID, "code").is_displayed()


def test_it_copies(browser: webdriver.Chrome, site: Site) -> None:
    browser.execute_cdp_cmd(
        "Browser.grantPermissions",
        {
            "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"],
            "origin": f"https://{site.host}",
        },
    )
    open_values(browser, site.link())
    expected = {"url": site.url, "token": TOKEN, "pin": PIN}
    expected["link"] = site.link()
    for name in expected | {"all": ""}:
        browser.find_element(By.CSS_SELECTOR, f"[data-copy={name}]").click()
        WebDriverWait(browser, 20).until(lambda b: text_of(b, "said").startswith("Copied"))
        copied = browser.execute_async_script(
            "navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))"
        )
        assert (
            copied == expected[name]
            if name != "all"
            else json.loads(copied) == {"v": 1, "url": site.url, "token": TOKEN, "pin": PIN}
        )
        browser.execute_script("document.getElementById('said').textContent = ''")


def test_without_a_clipboard_it_selects(browser: webdriver.Chrome, site: Site) -> None:
    open_values(browser, site.link())
    browser.execute_script(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: () => Promise.reject(new Error('no'))}})"
    )
    browser.find_element(By.CSS_SELECTOR, "[data-copy=token]").click()
    WebDriverWait(browser, 20).until(lambda b: text_of(b, "said").startswith("Selected"))
    assert browser.execute_script("return String(getSelection())") == TOKEN


def test_another_code_in_the_same_tab(browser: webdriver.Chrome, site: Site) -> None:
    open_values(browser, site.link())
    other = TOKEN[:-3] + "xyz"
    browser.get(site.link(token=other))
    WebDriverWait(browser, 20).until(lambda b: text_of(b, "token") == other)
    assert browser.current_url == f"https://{site.host}/pair"
    assert other not in "".join(history_of(browser))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"token": "<img/src=x>"}, "damaged (token)"),
        ({"pin": "zz", "version": "2"}, "damaged (version, pin)"),
        ({"url": "javascript:alert(1)"}, "damaged (address)"),
        ({"url": "wss://evil.example/api/v1/ws"}, "another place"),
        ({"url": "wss://localhost@evil.example/"}, "another place"),
    ],
)
def test_a_wrong_code_is_said_and_not_shown(
    changes: dict[str, str], says: str, browser: webdriver.Chrome, site: Site
) -> None:
    browser.get(site.link(**changes))
    assert says in text_of(browser, "problem")
    assert not browser.find_element(By.ID, "code").is_displayed()
    assert browser.current_url == f"https://{site.host}/pair"
    assert (
        browser.execute_script(
            "return ['url', 'token', 'pin'].map((id) => document.getElementById(id).textContent).join('')"
        )
        == ""
    )


def test_the_policy_stops_what_somebody_would_slip_in(
    browser: webdriver.Chrome, site: Site
) -> None:
    browser.get(site.link())
    del site.asked[:]
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'document.title = \"run\"'; document.body.append(s)"
    )
    assert browser.title == "Pair this device"
    sent = browser.execute_async_script(
        "fetch('/pair?leak').then(() => arguments[0]('sent'), () => arguments[0]('stopped'))"
    )
    assert sent == "stopped"
    image = browser.execute_async_script(
        "const i = new Image(); i.onload = () => arguments[0]('sent'); i.onerror = () => arguments[0]('stopped'); i.src = '/pair?leak'"
    )
    assert image == "stopped"
    assert site.asked == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(
    scheme: str, browser: webdriver.Chrome, site: Site, tmp_path: Path
) -> None:
    """Contrast of at least 4.5 (WCAG AA), a name for every button, nothing wider than a small
    phone, targets of at least 44 pixels.
    """
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 320, "height": 800, "deviceScaleFactor": 2, "mobile": True},
    )
    try:
        open_values(browser, site.link())
        measured = browser.execute_script(MEASURE)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert measured["dark"] == (scheme == "dark")
    assert measured["scrollWidth"] <= 320
    assert len(measured["texts"]) > 10
    assert [found for found in measured["texts"] if found["contrast"] < 4.5] == []
    assert [name for name in measured["buttons"] if not name["text"] or name["height"] < 44] == []


MEASURE = """
const channel = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const luminance = (rgb) => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } return "rgb(255, 255, 255)"; };
const texts = [...document.querySelectorAll("main *")].filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
return {
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  scrollWidth: document.documentElement.scrollWidth,
  texts: texts.map((e) => {
    const [a, b] = [luminance(getComputedStyle(e).color), luminance(behind(e))].sort((x, y) => y - x);
    return { text: e.textContent.trim().slice(0, 30), contrast: (a + 0.05) / (b + 0.05) };
  }),
  buttons: [...document.querySelectorAll("button, summary")].filter((e) => e.checkVisibility()).map((e) => ({ text: e.textContent.trim(), height: e.getBoundingClientRect().height })),
};
"""
