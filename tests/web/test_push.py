"""Push in the browser: switched on in Settings, shown while the page is closed, tapped (D56).

Chromium has no push service here: `PushManager` is replaced, the bridge sends to a service of the
tests, and what that decrypts is given to the service worker by the debugging protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge
from tests.push.conftest import ask, finish, service
from tests.push.service import Browser, PushService, status
from tests.servers import wait_until
from tests.short import short
from tests.web.browser import Page, debug
from tests.web.conftest import ROOM, MakePage
from tests.web.test_screens import check

__all__ = ["service"]
pytestmark = pytest.mark.web

SUBSCRIPTION = Path(__file__).with_name("subscription.js").read_text()
SHOWN = (
    "navigator.serviceWorker.getRegistration('/app/')"
    ".then((found) => found.getNotifications())"
    ".then((all) => all.map(({title, body, tag, data}) => ({title, body, tag, data})))"
)
TIMES = SHOWN.replace(
    "({title, body, tag, data}) => ({title, body, tag, data})", "(one) => one.timestamp"
)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, service: PushService) -> Iterator[Bridge]:
    place = tmp_path_factory.mktemp("bridge")
    with QuickBridge(place, **ROOM, **short("PUSH_PROOF_SECONDS"), **service.settings) as bridge:
        yield bridge


class Phone:
    """A page, the browser's subscription, and what is pushed to it."""

    def __init__(self, page: Page, browser: Browser, next_one: Browser) -> None:
        self.page, self.browser, self.next_one = page, browser, next_one
        page.cdp("Browser.grantPermissions", origin=page.base, permissions=["notifications"])
        page.before_load(SUBSCRIPTION % json.dumps([browser.subscription, next_one.subscription]))
        page.pair()

    def switch_on(self) -> Phone:
        self.page.open("settings").tap("button", "Switch push on")
        self.page.find("button", "Switch push off")
        return self

    def deliver(self, said: dict[str, Any]) -> None:
        """Give the service worker what came, as the browser's maker would."""
        ours: list[dict[str, Any]] = []
        with debug(self.page, "page") as debugger:
            debugger.tell("ServiceWorker.enable")  # what it tells comes before its answer
            while not ours:
                told = debugger.until("method", "ServiceWorker.workerRegistrationUpdated")
                ours = told["params"]["registrations"]
            push = {"origin": self.page.base, "registrationId": ours[0]["registrationId"]}
            debugger.ask("ServiceWorker.deliverPushMessage", data=json.dumps(said), **push)

    def tap(self) -> None:
        """Tap what is shown, as far as that goes: the worker hears of it."""
        tap = (
            "self.registration.getNotifications().then(([notification]) => self.dispatchEvent("
            "new NotificationEvent('notificationclick', {notification})))"
        )
        with debug(self.page, "page") as debugger:  # a worker with nothing to do has been ended
            debugger.tell("ServiceWorker.enable")
            debugger.ask("ServiceWorker.startWorker", scopeURL=f"{self.page.base}/app/")
        with debug(self.page, "service_worker") as debugger:
            debugger.ask("Runtime.evaluate", expression=tap, awaitPromise=True, userGesture=True)


@pytest.fixture
def phone(make_page: MakePage, bridge: Bridge, service: PushService) -> Phone:
    return Phone(make_page(bridge), service.browser(), service.browser())


def test_settings(phone: Phone, axe: str) -> None:
    """The switch, how much is said, and a test; all of it by axe."""
    page = phone.page
    page.open("settings").wait_text("but cannot read it")
    page.find("button", "Switch push on")
    check(page, axe)
    phone.switch_on()
    check(page, axe)
    page.tap("button", "Send a test")
    page.wait_text("Sent. It is shown here")
    assert [one["title"] for one in phone.browser.wait()] == ["Test"]
    page.tap("label.choice", "Show the tool")
    page.tap("button", "Send a test")
    page.wait_text("Sent. It is shown here")
    page.open("settings")
    page.wait("document.querySelector('label.choice input')?.checked")
    page.tap("button", "Switch push off")
    page.find("button", "Switch push on")


def test_what_became_of_the_last_push(phone: Phone, axe: str) -> None:
    """D74: the service's word, then the service worker's own receipt; on the admin site too."""
    page = phone.switch_on().page
    # as a page is that was loaded before its worker was there
    page.cdp("Page.reload", ignoreCache=True)
    page.wait("navigator.serviceWorker?.controller === null")
    page.find("button", "Send a test")
    page.js("navigator.serviceWorker.addEventListener('message', ({data}) => (window.told = data))")
    page.tap("button", "Send a test")
    page.wait_text("The last push was accepted by localhost")
    delivered = 0

    def is_shown() -> bool:
        """Of a slow page the last push may be about something that it has not proven to have."""
        nonlocal delivered
        for said in phone.browser.read()[delivered:]:
            phone.deliver(said)
            delivered += 1
        return page.js("window.told === 'shown'") and ", shown " in page.text

    wait_until(is_shown)
    check(page, axe)


def test_a_subscription_that_died_is_made_anew(phone: Phone, bridge: Bridge) -> None:
    """D74: by the page when it is opened, for the bridge does not take the dead one again."""
    page = phone.switch_on().page
    phone.browser.answer(status(410))
    page.tap("button", "Send a test")
    page.wait_text("It is subscribed anew: try once more.")
    page.wait_text("The last push failed at ")
    page.tap("button", "Send a test")
    page.wait_text("Sent. It is shown here")
    assert [one["title"] for one in phone.next_one.wait()] == ["Test"]


def test_the_service_worker_renews_a_subscription(phone: Phone) -> None:
    """D74: while the page is closed, with the device's token."""
    page = phone.switch_on().page
    page.driver.get(f"{page.base}/docs")
    change = (
        "self.dispatchEvent(Object.assign(new ExtendableEvent('pushsubscriptionchange'), "
        f"{{newSubscription: {{toJSON: () => ({json.dumps(phone.next_one.subscription)})}}}}))"
    )
    with debug(page, "page") as debugger:
        debugger.tell("ServiceWorker.enable")
        debugger.ask("ServiceWorker.startWorker", scopeURL=f"{page.base}/app/")
    with debug(page, "service_worker") as debugger:
        debugger.ask("Runtime.evaluate", expression=change)

    def renewed() -> bool:
        page.open("settings").tap("button", "Send a test")
        page.wait_text("Sent. It is shown here")
        return bool(phone.next_one.requests)

    wait_until(renewed)


def test_a_page_that_nobody_looks_at_is_sent_one(phone: Phone, bridge: Bridge) -> None:
    """It has the row, and acknowledges it when somebody looks (D56); in front it says so."""
    page = phone.switch_on().page
    seen = "Object.defineProperty(document, 'visibilityState', {configurable: true, value: '%s'})"
    page.js(f"void {seen % 'hidden'}")
    session_id = ask(bridge, "npm publish")
    (said,) = phone.browser.wait()
    assert said["session_id"] == session_id
    page.js(f"void {seen % 'visible'} ?? document.dispatchEvent(new Event('visibilitychange'))")
    page.keep_toasts()
    finish(bridge)
    page.find(".toast", "Finished")


def test_a_push_shows_a_notification_and_a_tap_opens_the_approval(
    phone: Phone, bridge: Bridge
) -> None:
    """While the page is closed, one for each approval; the tap opens it in the open tab."""
    page = phone.switch_on().page
    page.driver.get(f"{page.base}/docs")  # of the same origin, and not the client
    session_id = ask(bridge, "npm publish")
    (said,) = phone.browser.wait()
    path = f"/app/approvals/{session_id}/call-1"
    shown = {"title": "An agent needs you", "body": "", "tag": path, "data": path}
    before = 0
    for _ in "once", "again":  # one for each approval
        phone.deliver(said)
        page.wait(f"{TIMES}.then((all) => all.length === 1 && all[0] > arguments[0])", before)
        assert page.js(SHOWN) == [shown]
        (before,) = page.js(TIMES)
    page.open("settings").wait_text("This machine only")
    page.wait(f"{SHOWN}.then((all) => !all.length)", what="whoever opens the page has been told")
    phone.deliver(said)
    page.wait(f"{SHOWN}.then((all) => all.length)", what="another notification")
    page.expected += ["Not allowed to focus a window", "waitUntil"]  # no finger has tapped
    phone.tap()
    page.wait("location.pathname === arguments[0]", path, what="the approval's own address")
    page.find("dialog", "npm publish")
    page.wait(f"{SHOWN}.then((all) => !all.length)", what="the notification is gone")
