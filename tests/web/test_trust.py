"""What a browser that trusts the bridge's authority trusts (D55), and how it comes to."""

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
from tests.web.conftest import MakePage
from tests.web.link import site
from tests.web.test_offline import wait_kept

pytestmark = pytest.mark.web


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
    page.wait_text("nobody vouches for what you download here", "compare before you trust it")
    page.tap("a", "the profile")
    profile = tmp_path / "bridge.mobileconfig"
    wait_until(lambda: profile.exists() and profile.read_bytes(), "the profile is there")
    assert profile.read_bytes() == bridge.get("/ca.mobileconfig").body
    page.tap("summary", "Android")
    page.tap("[data-system=android] a", "the certificate")
    wait_until((tmp_path / "bridge-ca.crt").exists, "the certificate is there")
    assert (tmp_path / "bridge-ca.crt").read_bytes() == (bridge.data / "tls/ca.crt").read_bytes()
