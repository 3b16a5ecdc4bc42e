"""A browser as a person with a phone uses it: Debian's chromium, driven by chromedriver."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    JavascriptException,
    StaleElementReferenceException,
)
from selenium.webdriver.remote.webelement import WebElement
from websockets.sync.client import ClientConnection, connect

from tests.conformance.bridge import Bridge, Pairing
from tests.servers import free_port, wait_until

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
CERTUTIL = shutil.which("certutil")
# seconds; what is waited for comes in a fraction of it on a quiet machine, but a client that was
# away tries again after up to 30 s
PATIENCE = 90
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
DESK = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
# what chromium itself writes when a request fails; the client has to deal with it, and says so
NETWORK = "net::ERR_"
# what it tells of itself: an offer to install that is kept for Settings, a worker that it refuses,
# a socket that the client gave up while it was opened (a reload, another tab, 8 s without an
# answer)
REMARKS = (
    "chrome://",  # its own pages, of which the first is left while it loads
    "beforeinstallpromptevent",
    "error occurred when fetching the script.",
    "closed before the connection is established",
)
# what the page loads after its first screen, from a bridge that must be there
LOAD = (
    "import(document.querySelector('script[type=module]').src.replace('app.js', 'later.js'))"
    ".then(() => true)"
)

FIND = (
    "[...document.querySelectorAll(arguments[0])].find((node) => node.checkVisibility()"
    " && !node.disabled && node.textContent.includes(arguments[1])) ?? null"
)
# the same that takes a tap: what has just appeared or changed takes none
TAKES = FIND.replace("!node.disabled", "!node.disabled && !node.closest('.guarded')")
# whether a click missed the element: it had moved, was made anew, or had changed and so took none
WATCH = (
    "void (window.untaken = true) ?? window.addEventListener('click', ({target}) => {"
    " window.untaken = !arguments[0].contains(target) || Boolean(target.closest('.guarded')) },"
    " {capture: true, once: true})"
)


def _trusting_home(home: Path, authority: Path) -> Path:
    """Make a home directory whose browser trusts an authority, as its user would (D55)."""
    if CERTUTIL is None:
        pytest.skip("no certutil on this machine (apt install libnss3-tools)")
    for database in (home / ".pki/nssdb", home / ".local/share/pki/nssdb"):
        database.mkdir(parents=True)
        place = ["-d", f"sql:{database}"]
        subprocess.run([CERTUTIL, "-N", "--empty-password", *place], check=True, timeout=60)
        added = ["-A", "-t", "C,,", "-n", "bridge", "-i", str(authority)]
        subprocess.run([CERTUTIL, *added, *place], check=True, timeout=60)
    return home


class Page:
    """One browser with one window, on one bridge."""

    def __init__(
        self,
        directory: Path,
        bridge: Bridge,
        *,
        trusted: bool = True,
        authority: Path | None = None,
    ) -> None:
        """``trusted``: the bridge's certificate is, whatever it says. ``authority``: nothing is but
        what this one vouches for, by the browser's own verification.
        """
        self.bridge = bridge
        self.base = bridge.settings.get("BRIDGE_PUBLIC_URL", f"https://127.0.0.1:{bridge.port}")
        self.expected: list[str] = []  # complaints that a test is about
        options = webdriver.ChromeOptions()
        options.binary_location = str(BROWSER)
        words = "--headless=new --no-sandbox --disable-dev-shm-usage --disable-gpu --no-first-run"
        arguments = [*words.split(), f"--user-data-dir={directory}"]
        # whatever name the bridge has; nobody else
        arguments.append("--host-resolver-rules=MAP * 127.0.0.1")
        if trusted and authority is None:
            pin = base64.b64encode(bytes.fromhex(bridge.pairing().pin)).decode()
            arguments.append(f"--ignore-certificate-errors-spki-list={pin}")
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.add_experimental_option("browserStartupTimeout", PATIENCE * 1000)
        environment = dict(os.environ)
        if authority is not None:
            environment["HOME"] = str(_trusting_home(directory / "home", authority))
        service = webdriver.ChromeService(str(DRIVER), port=free_port(), env=environment)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.command_executor.client_config.timeout = 2 * PATIENCE  # type: ignore[union-attr]
        self.driver.set_script_timeout(PATIENCE)
        self.show_as(PHONE)

    def show_as(self, metrics: dict[str, Any], *, dark: bool = False, forced: bool = False) -> None:
        """Take a screen's size and theme; ``forced``: the system's few colours."""
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        colours = {"name": "forced-colors", "value": "active" if forced else "none"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme, colours])

    def cdp(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def before_load(self, script: str) -> None:
        """Run a script in every page before its own: a clock that is off, storage that refuses."""
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=script)

    def keep_toasts(self) -> None:
        """Let what this page shows for some seconds stay: a busy machine may look later."""
        stay = "((real) => (act, ms) => ms === 6000 || real(act, ms))(setTimeout)"
        self.js(f"void (window.setTimeout = {stay})")

    def js(self, expression: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {expression}", *arguments)

    def open(self, path: str = "") -> Page:
        """Open a screen by its address, as a bookmark or a reload does."""
        self.driver.get(f"{self.base}/app/{path}")
        return self

    def accept_warning(self, path: str = "") -> None:
        """Click through the warning of a certificate, as a person does."""
        self.open(path)
        self.tap("#details-button")
        self.tap("#proceed-link")

    def offline(self, away: bool = True) -> None:
        """Cut this browser off the network, or put it back; an open socket falls silent."""
        if away:
            self.wait_whole()
        speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.cdp("Network.enable")
        self.cdp("Network.emulateNetworkConditions", offline=away, **speed)

    # -- waiting

    def wait(
        self, expression: str, *arguments: Any, what: str = "", seconds: float = PATIENCE
    ) -> Any:
        """Wait until a JavaScript expression is true; return what it gives.

        One that fails is not true yet: the page may be between two documents.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                found, fault = self.js(expression, *arguments), ""
            except JavascriptException as error:
                found, fault = None, str(error.msg)
            if found:
                return found
            assert time.monotonic() < deadline, (
                f"not within {seconds} s: {what or expression} {fault}\n"
                f"{self.text}\n{self.complaints()}"
            )
            time.sleep(0.05)

    def wait_equal(self, expression: str, value: Any) -> None:
        same = f"JSON.stringify({expression}) === JSON.stringify(arguments[0])"
        self.wait(same, value, what=f"{expression} gives {value}")

    def wait_text(self, *texts: str, seconds: float = PATIENCE) -> None:
        for text in texts:
            has = "document.body.innerText.includes(arguments[0])"
            self.wait(has, text, what=text, seconds=seconds)

    def wait_gone(self, text: str) -> None:
        self.wait("!document.body.innerText.includes(arguments[0])", text, what=f"without {text}")

    def wait_ready(self) -> None:
        """Wait until the connection is good, which hides the sign that says otherwise."""
        self.wait("document.querySelector('.connection')?.hidden", what="the connection is ready")

    def wait_whole(self) -> None:
        """Wait until the page has all of its modules: from then on it asks the bridge for none."""
        self.wait(LOAD, what="the page has all of its modules")

    @property
    def screen(self) -> str:
        return str(self.js("location.pathname"))

    @property
    def text(self) -> str:
        return str(self.js("document.body.innerText"))

    # -- what a person does

    def find(self, selector: str, text: str = "") -> WebElement:
        """Return the first visible, usable element that matches and contains the text."""
        found: WebElement = self.wait(FIND, selector, text, what=f"{selector} {text!r} is there")
        return found

    def tap(self, selector: str, text: str = "") -> None:
        """Click what takes it; again where it moved or changed between look and click."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                what = f"{selector} {text!r} takes a tap"
                element: WebElement = self.wait(TAKES, selector, text, what=what)
                self.js(WATCH, element)
                element.click()
                if not self.js("window.untaken"):
                    return
            except (
                ElementClickInterceptedException,
                ElementNotInteractableException,
                StaleElementReferenceException,
            ):
                pass
            assert time.monotonic() < deadline, f"{selector} {text!r} takes no click"

    def type(self, selector: str, text: str) -> None:
        self.find(selector).send_keys(text)

    def scan(self, pairing: Pairing) -> Page:
        """Open what the code holds: the pairing page."""
        values = f"token={pairing.token}&url={pairing.url}&pin={pairing.pin}"
        self.driver.get(f"{self.base}/pair#v={pairing.v}&{values}")
        return self

    def pair(self, pairing: Pairing | None = None) -> Page:
        """Scan a code, and use it in this browser."""
        self.scan(pairing or self.bridge.pairing())
        self.tap("button", "Use in this browser")
        self.wait("document.querySelector('nav.bottom')")
        self.wait_ready()
        return self

    # -- what the browser has to say

    def complaints(self) -> list[str]:
        """Return what the console was told since this was asked last, but for what is expected."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        told = [str(entry["message"]) for entry in entries]
        known = (*self.expected, *REMARKS)
        return [text for text in told if not any(word in text for word in known)]

    def requests(self) -> list[str]:
        """Return the addresses that the browser asked for since this was asked last."""
        return [str(one["request"]["url"]) for one in self.network("requestWillBeSent")]

    def network(self, *events: str) -> list[dict[str, Any]]:
        """Return what these events of the network had to say since it was asked last."""
        entries = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        wanted = {f"Network.{event}" for event in events}
        return [one["params"] for one in messages if one["method"] in wanted]

    def check_accessibility(self, axe: str) -> None:
        """Fail with what axe finds on the screen, once nothing on it moves."""
        moving = (
            "document.getAnimations().some((one) => one.playState === 'running' &&"
            " one.effect.getComputedTiming().endTime !== Infinity)"
        )
        self.wait(f"!{moving}", what="nothing moves")
        self.driver.execute_script(axe)
        found = self.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run(document, {resultTypes: ['violations']}).then(({violations}) =>"
            " done(violations.map(({id, help, nodes}) =>"
            " [id, help, ...nodes.map(({html}) => html.slice(0, 200))])))"
        )
        assert found == [], f"{self.js('location.pathname')}: {json.dumps(found, indent=1)}"

    def close(self) -> list[str]:
        """Close the browser; return the last complaints, with the screen that they came from."""
        complaints = [f"{self.screen}: {text}" for text in self.complaints()]
        self.driver.quit()
        return complaints


class Debugger:
    """The debugging protocol; Selenium hears no events."""

    def __init__(self, connection: ClientConnection) -> None:
        self._socket, self._numbers = connection, count(1)

    def tell(self, method: str, **params: Any) -> int:
        """Send a command; its number."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        return number

    def ask(self, method: str, **params: Any) -> Any:
        """Send a command, and wait for its result."""
        told = self.until("id", self.tell(method, **params))
        assert "error" not in told, told
        return told["result"]

    def until(self, field: str, value: object) -> Any:
        """The next message that has this."""
        while (told := json.loads(self._socket.recv(PATIENCE))).get(field) != value:
            pass
        return told


@contextmanager
def debug(page: Page, kind: str) -> Iterator[Debugger]:
    """Debug a page, a service_worker or the browser itself."""
    address = page.driver.capabilities["goog:chromeOptions"]["debuggerAddress"]
    targets: list[str] = []

    def look() -> list[str]:
        what = "version" if kind == "browser" else "list"
        with urllib.request.urlopen(f"http://{address}/json/{what}") as answer:
            found = json.load(answer)
        several = [found | {"type": kind}] if kind == "browser" else found
        targets.extend(one["webSocketDebuggerUrl"] for one in several if one["type"] == kind)
        return targets

    wait_until(look, f"a {kind}")
    with connect(targets[0], max_size=None) as connection:
        yield Debugger(connection)
