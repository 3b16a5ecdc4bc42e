"""The client without a network, in a newer version, and when the bridge refuses or warns."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devices_app.web_client import DIRECTORY
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session, prompt
from tests.faults.quick import QuickBridge
from tests.servers import free_port
from tests.web.actions import start_demo
from tests.web.browser import NETWORK, Page
from tests.web.conftest import MakeBridge, MakePage

pytestmark = pytest.mark.web

VERSION = "document.querySelector('script[type=module]').src"
KEPT = "navigator.serviceWorker.getRegistration().then((found) => Boolean(found?.active))"


def wait_kept(page: Page) -> None:
    """Wait until the service worker has the client."""
    page.wait(f"({KEPT})", what="the service worker is active")


def shown(page: Page, *texts: str) -> None:
    """Open "What is wrong?" and wait for what it says."""
    page.open("wrong").wait_text(*texts)


def test_what_was_kept_is_on_the_screen_without_a_network(page: Page, bridge: Bridge) -> None:
    """The icon is tapped in a tunnel: the list is there, and the connection comes by itself."""
    page.expected.append(NETWORK)
    session_id = new_session()
    bridge.accept(hook("SessionStart", session_id, {"working_directory": str(bridge.root)}))
    bridge.accept(prompt(session_id, "Fix the failing login test"))
    page.tap(".row-link", "Fix the failing login test")
    page.find(".bubble.mine", "Fix the failing login test")
    wait_kept(page)
    page.offline()
    page.open().wait_text("Fix the failing login test", "Offline")
    page.tap(".row-link", "Fix the failing login test")
    page.find(".bubble.mine", "Fix the failing login test")
    shown(page, "This device has no network")
    page.offline(False)
    page.tap("button", "Look again")
    page.wait_text(f"Connected to 127.0.0.1:{bridge.port}")


def test_the_worker_keeps_the_client_and_nothing_that_the_bridge_says(
    page: Page, bridge: Bridge
) -> None:
    wait_kept(page)
    page.open("settings").wait_text("Other bridges")
    kept = page.js(
        "caches.keys().then(async (names) => Promise.all(names.map(async (name) =>"
        " (await (await caches.open(name)).keys()).map(({url}) => new URL(url).pathname))))"
    )
    (paths,) = kept
    assert "/app/" in paths
    assert all(path.startswith("/app/") for path in paths)
    scripts = page.js(
        "performance.getEntriesByType('resource').filter(({name}) => /\\.(js|css)$/.test(name))"
        ".map(({transferSize}) => transferSize)"
    )
    assert len(scripts) > 1
    assert set(scripts) == {0}, "a start that asks the network for nothing of the page"


class Upgradable(QuickBridge):
    """Serves a copy of the client, which can become a newer version."""

    first = """
import os, pathlib
from devices_app import web_client
web_client.DIRECTORY = pathlib.Path(os.environ["CLIENT"])
"""

    def upgrade(self, *, stays: bool) -> None:
        """Serve a newer version; its worker takes over when it is told to, or ``stays`` waiting."""
        self.stop()
        client = Path(self.settings["CLIENT"])
        with (client / "app.css").open("a") as stylesheet:
            stylesheet.write("\n/* a newer version */\n")
        if stays:
            worker = client / "sw.js"
            worker.write_text(worker.read_text().replace("worker.skipWaiting()", "null"))
        self.start()


@pytest.fixture
def upgradable(tmp_path: Path) -> Iterator[Upgradable]:
    client = shutil.copytree(DIRECTORY, tmp_path / "client")
    with Upgradable(tmp_path / "bridge", CLIENT=str(client)) as bridge:
        yield bridge


@pytest.mark.parametrize(
    ("trusted", "stays"),
    [(True, False), (True, True), (False, False)],
    ids=["with a worker", "whose successor does not take over", "without"],
)
def test_a_newer_version_waits_for_a_tap(
    trusted: bool, stays: bool, make_page: MakePage, upgradable: Upgradable
) -> None:
    page = make_page(upgradable, trusted=trusted)
    # the browser asks in its own time for what the newer bridge does not have
    page.expected += [NETWORK, "/icon.svg", "/manifest."]
    if not trusted:
        page.accept_warning()
    page.pair()
    if trusted:
        wait_kept(page)
        page.open().wait_ready()
    page.wait_whole()  # the newer bridge has no module of this version
    before = page.js(VERSION)
    page.js("window.untouched = true")
    upgradable.upgrade(stays=stays)
    page.wait_text("The bridge has a newer version of this page")
    assert page.js("window.untouched") is True, "it does not reload by itself"
    assert page.js(VERSION) == before
    page.tap("button", "Use it now")
    page.wait(
        f"document.querySelector('script[type=module]') && {VERSION} !== arguments[0]", before
    )
    page.wait_ready()
    page.wait_gone("newer version")


def test_a_certificate_that_was_clicked_through(make_page: MakePage, bridge: Bridge) -> None:
    """The client is whole without the worker, and says what is not."""
    page = make_page(bridge, trusted=False)
    page.accept_warning()
    page.pair()
    shown(
        page,
        "This browser does not trust the certificate",
        "cannot be installed",
        "Tailscale",
        "Let this device trust the bridge: the steps.",
        f"Connected to 127.0.0.1:{bridge.port}",
    )
    assert page.js("navigator.serviceWorker.getRegistrations().then(({length}) => length)") == 0
    start_demo(page.open(), bridge, "Without trust")


def test_other_bridges_are_links(page: Page, bridge: Bridge) -> None:
    """A pairing link that is pasted here leaves its token out."""
    pairing = bridge.pairing()
    page.tap("nav a", "Settings")
    for text, says in (
        ("not an address", "no address of a bridge"),
        (page.base, "the bridge that you are using"),
        ("http://machine.local:8443", "no address of a bridge"),
    ):
        page.find("#address")
        page.js("document.querySelector('#address').value = arguments[0]", text)
        page.tap("button", "Add")
        page.wait_text(says)
    for text in ("desk.local:8443", f"https://lab.local:8443/pair#v=1&token={pairing.token}"):
        page.js("document.querySelector('#address').value = arguments[0]", text)
        page.tap("button", "Add")
        page.wait("document.querySelector('#address').value === ''")
    page.open("settings")
    page.wait_text("desk.local:8443", "lab.local:8443")
    links = "[...document.querySelectorAll('.pair a')].map(({href}) => href)"
    assert page.js(links) == ["https://desk.local:8443/app/", "https://lab.local:8443/app/"]
    page.tap(".pair button", "Remove")
    page.wait_gone("desk.local")


def test_a_revoked_device_is_told_and_pairs_again(make_page: MakePage, bridge: Bridge) -> None:
    pairing = bridge.pairing()
    page = make_page(bridge).pair(pairing)
    wait_kept(page)
    bridge.manage("revoke_device", pairing.name)
    page.wait("document.querySelector('.connection').innerText === 'Not connected'")
    page.tap(".connection")
    page.wait_text("What is wrong?", "revoked", "Scan a new code")
    page.driver.refresh()
    page.tap("button", "Pair again")  # in an installed app a code opens elsewhere
    again = bridge.pairing()
    page.type("#link", f"#v={again.v}&token={again.token}&url={again.url}&pin={again.pin}")
    page.tap("button", "Pair")
    page.wait_ready()
    page.open("settings")
    page.tap("button", "Forget this bridge")
    page.tap("button", "Yes, forget everything here")
    page.find("h1", "Pair this device")
    assert page.js("caches.keys()") == [], "forgetting leaves nothing"
    assert page.js("navigator.serviceWorker.getRegistrations().then(({length}) => length)") == 0
    page.pair()
    page.wait_text("Sessions")
    page.wait("performance.now() > 10_000", what="its storage was good for a while")
    page.cdp("Storage.clearDataForOrigin", origin=page.base, storageTypes="indexeddb")
    page.find("h1", "Pair this device")


def test_what_is_about_no_session_is_said_and_noted(page: Page, bridge: Bridge) -> None:
    bridge.phone().ready()  # paired just now
    page.wait_text("New device: phone-")
    shown(page, "New device.", "was paired")


def test_a_version_that_is_too_old(make_bridge: MakeBridge, make_page: MakePage) -> None:
    bridge = make_bridge(BRIDGE_MIN_CLIENT_VERSION="1.900.0", BRIDGE_MAX_CLIENT_VERSION="1.999.0")
    page = make_page(bridge)
    page.scan(bridge.pairing())
    page.tap("button", "Use in this browser")
    page.wait("document.querySelector('.connection')?.innerText === 'Not connected'")
    page.wait_text("1.900.0")
    page.tap(".connection")
    page.wait_text("What is wrong?", "Reload this page")


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
    page.wait_equal("document.activeElement.innerText", "Before you go on")
    page.tap("button", "I understand, go on")
    page.wait_ready()
    page.wait_gone("Before you go on")
    start_demo(page, bridge, "Hello from far away")
    page.driver.refresh()  # accepted for hours (D24)
    page.wait_ready()
    assert "Before you go on" not in page.text
