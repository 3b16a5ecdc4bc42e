"""What a person is told when the bridge refuses, warns, or is not trusted."""

import pytest

from tests.conformance.bridge import Bridge
from tests.servers import free_port
from tests.web.actions import start_demo
from tests.web.browser import Page
from tests.web.conftest import MakeBridge, MakePage

pytestmark = pytest.mark.web


def problem(page: Page) -> str:
    """What "What is wrong?" says, reached as a person reaches it."""
    page.tap(".connection")
    page.wait_text("What is wrong?")
    page.find("li.finding")
    return page.text


def test_a_revoked_device_is_told_and_pairs_again(make_page: MakePage, bridge: Bridge) -> None:
    pairing = bridge.pairing()
    page = make_page(bridge).pair(pairing)
    bridge.manage("revoke_device", pairing.name)
    page.wait("document.querySelector('.connection').innerText === 'Not connected'")
    said = problem(page)
    assert "revoked" in said
    assert "Scan a new code" in said
    page.driver.refresh()
    page.wait_text("revoked")
    page.open("settings")
    page.tap("button", "Forget this bridge")
    page.tap("button", "Yes, forget everything here")
    page.wait_text("Pair this device")
    page.pair()
    page.wait_text("Sessions")


def test_a_version_that_is_too_old(make_bridge: MakeBridge, make_page: MakePage) -> None:
    bridge = make_bridge(BRIDGE_MIN_CLIENT_VERSION="1.900.0", BRIDGE_MAX_CLIENT_VERSION="1.999.0")
    page = make_page(bridge)
    page.scan(bridge.pairing())
    page.tap("button", "Use in this browser")
    page.wait("document.querySelector('.connection')?.innerText === 'Not connected'")
    page.wait_text("1.900.0")
    assert "Reload this page" in problem(page)


def test_a_public_connection_is_accepted_first(
    make_bridge: MakeBridge, make_page: MakePage
) -> None:
    port = str(free_port())
    url = f"https://bridge.example.com:{port}"
    bridge = make_bridge(BRIDGE_PUBLIC_URL=url, BRIDGE_PORT=port)
    page = make_page(bridge)
    page.scan(bridge.pairing())
    page.tap("button", "Use in this browser")
    page.wait_text("Before you go on", "public address")
    page.tap("button", "I understand, go on")
    page.wait_ready()
    page.wait_gone("Before you go on")
    start_demo(page, bridge, "Hello from far away")
    page.wait_text("repeats what you say: Hello from far away")
    page.driver.refresh()  # accepted for hours (D24)
    page.wait_ready()
    assert "Before you go on" not in page.text
