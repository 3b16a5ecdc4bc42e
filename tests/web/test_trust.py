"""What a browser that trusts the bridge's authority trusts (D55), and how it comes to."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium.common.exceptions import WebDriverException

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates
from tests.conformance.bridge import Bridge
from tests.edge.test_trust import forged
from tests.servers import wait_until
from tests.web.browser import PATIENCE
from tests.web.conftest import MakePage

KEPT = "navigator.serviceWorker.getRegistration().then((found) => Boolean(found?.active))"
pytestmark = pytest.mark.web


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<link rel=icon href=data:,><p>reached</p>")

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that refuses the certificate hangs up."""


@contextmanager
def site(chain: Path, key: Path) -> Iterator[int]:
    """A server with this certificate; its port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    with QuietServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def test_chromium_takes_the_authority_for_private_names_only(
    make_page: MakePage, bridge: Bridge
) -> None:
    """The bridge's own page is trusted, with its worker; a forged certificate only inside."""
    authority = bridge.data / "tls/ca.crt"
    page = make_page(bridge, authority=authority)
    page.pair()
    page.wait(KEPT, what="its worker keeps the client, which needs trust")
    page.base = f"https://localhost:{bridge.port}"
    page.open()
    page.wait_text("Pair")
    found = certificates.load_or_renew(Conf(bridge_data_dir=bridge.data))
    for name, good in (("desk.local", True), ("a.ts.net", True), ("bank.example", False)):
        with site(*forged(found, name)) as port:
            address = f"https://{name}:{port}/"
            with contextlib.suppress(WebDriverException):  # the driver's word for a warning
                page.driver.get(address)
            page.wait_text("reached" if good else "NET::ERR_CERT_INVALID")


SYSTEMS = {
    "ios": "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
    "android": "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36",
    "mac": "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15",
    "windows": "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "linux": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
}


def test_the_page_opens_the_steps_for_its_system(
    make_page: MakePage, bridge: Bridge, axe: str
) -> None:
    """All others stay within reach, and nothing complains of a missing code."""
    page = make_page(bridge)
    for system, agent in SYSTEMS.items():
        page.cdp("Emulation.setUserAgentOverride", userAgent=agent)
        page.cdp("Emulation.setTouchEmulationEnabled", enabled=system in ("ios", "android"))
        page.driver.get("about:blank")
        page.driver.get(f"{page.base}/pair#trust")
        opened = "[...document.querySelectorAll('[data-system]')].filter(({open}) => open)"
        assert page.js(f"{opened}.map(({{dataset}}) => dataset.system)") == [system]
        assert page.js("document.querySelector('#problem').hidden")
        assert page.js("[...document.querySelectorAll('summary')].length") > len(SYSTEMS) - 1
    page.check_accessibility(axe)


def test_the_authority_is_downloaded_from_an_address_that_is_not_trusted(
    make_page: MakePage, bridge: Bridge, tmp_path: Path
) -> None:
    """It works, and the page says what that means, with the fingerprint that `doctor` shows."""
    page = make_page(bridge, trusted=False)
    page.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.cdp("Emulation.setUserAgentOverride", userAgent=SYSTEMS["ios"])
    page.driver.get(f"{page.base}/pair#trust")
    page.tap("#details-button")
    page.tap("#proceed-link")
    page.wait_text("nobody vouches for what you download here", "compare before you trust it")
    page.tap("a", "the profile")
    profile = tmp_path / "bridge.mobileconfig"
    wait_until(lambda: profile.exists() and profile.read_bytes(), "the profile is there")
    assert profile.read_bytes() == bridge.get("/ca.mobileconfig").body
    page.tap("summary", "Android")
    page.tap("[data-system=android] a", "the certificate")
    wait_until((tmp_path / "bridge-ca.crt").exists, "the certificate is there")
    assert (tmp_path / "bridge-ca.crt").read_bytes() == (bridge.data / "tls/ca.crt").read_bytes()
