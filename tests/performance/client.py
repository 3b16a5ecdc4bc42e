"""The web client as a phone has it: Chromium with a fourth of the processor and a slow network.

The debugging protocol throttles the processor and what the page loads, but no socket: so the bridge
is behind a proxy that delays what it carries.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session, prompt
from tests.performance.report import Goal, Report, progress
from tests.performance.servers import bridge, directory
from tests.web.actions import approve, open_approval
from tests.web.browser import Page
from tests.web.link import Link

COLUMNS = ("what", "median", "worst", "unit")
SCREEN = {"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": True}
CPU, DELAY, BYTES_A_SECOND = 4, 0.075, 180_000  # Slow 4G: 150 ms there and back
ROWS, AT_ONCE, PER_SECOND = 10_000, 100, 2_000
FILLED = 240  # seconds in which all rows must have come
# Marks when the list of sessions, and when a connection that is ready, are first on the screen.
WATCH = """
new MutationObserver(() => {
  window.listed ??= document.querySelector('.row-link .title') ? performance.now() : undefined;
  const sign = document.querySelector('.connection');
  window.live ??= sign && sign.hidden ? performance.now() : undefined;
}).observe(document, {subtree: true, childList: true, attributes: true});
window.longest = 0;
new PerformanceObserver((list) => {
  for (const {duration} of list.getEntries()) window.longest = Math.max(window.longest, duration);
}).observe({type: 'longtask', buffered: true});
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) {
  if (String(data).includes('approval_response')) window.decided ??= performance.now();
  return send.call(this, data);
};
"""
# Marks how long after the page woke its connection was ready again: the sign was shown, and hides.
BACK = """(() => {
  const sign = document.querySelector('.connection');
  document.addEventListener('resume', () => {
    const woke = performance.now();
    window.back = undefined;
    new MutationObserver(() => {
      if (sign.hidden) window.back ??= performance.now() - woke;
    }).observe(sign, {attributes: true, attributeFilter: ['hidden']});
  }, {once: true});
})()"""


def measure(rounds: int, seconds: float) -> Report:
    report = Report("client", "Chromium, 360×640, processor ×4 slower, Slow 4G", COLUMNS)
    link = Link()
    with (
        directory() as path,
        bridge(
            path / "bridge",
            BRIDGE_PUBLIC_URL=link.url,
            BRIDGE_QUEUE_MAX=str(ROWS * 4),
            BRIDGE_DEMO_SHELL="1",
        ) as ours,
    ):
        link.bridge = ours
        page = Page(path / "profile", ours)
        try:
            _measure(report, page, link, rounds, seconds)
        finally:
            page.close()
            link.close()
    return report


def _measure(report: Report, page: Page, link: Link, rounds: int, seconds: float) -> None:
    ours, session = page.bridge, new_session()
    ours.accept(hook("SessionStart", session, {"working_directory": str(ours.root)}))
    ours.accept(prompt(session, "Ten thousand rows"))
    _throttle(page, link)
    page.before_load(WATCH)
    _first_load(report, page)
    page.show_as(SCREEN)
    page.pair()
    page.wait_text("Ten thousand rows")
    page.wait("navigator.serviceWorker.getRegistration().then((one) => Boolean(one?.active))")

    _rows(report, page, session, seconds)
    listed, live, back, decided = [], [], [], []
    for number in range(rounds):
        page.open()
        listed.append(float(page.wait("window.listed")))
        live.append(float(page.wait("window.live")))
        back.append(_back(page))
        decided.append(_decide(page, f"ls {number}"))
        progress(f"client: round {number + 1}")
    _add(report, "icon to cached list", listed, 500)
    _add(report, "icon to live", live, 1500)
    _add(report, "back from background to live", back, 1000)
    _add(report, "tap on Approve to frame", decided, 100)


def _throttle(page: Page, link: Link) -> None:
    link.delay = DELAY
    page.cdp("Network.enable")
    page.cdp(
        "Network.emulateNetworkConditions",
        offline=False,
        latency=0,
        downloadThroughput=BYTES_A_SECOND,
        uploadThroughput=BYTES_A_SECOND,
    )
    page.cdp("Emulation.setCPUThrottlingRate", rate=CPU)


def _first_load(report: Report, page: Page) -> None:
    page.open().find("h1", "Pair this device")
    loaded = page.js(
        "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map(({encodedBodySize}) => encodedBodySize)"
    )
    report.add("first load", sum(loaded) / 1000, sum(loaded) / 1000, "KB")
    report.add("first load", len(loaded), len(loaded), "requests")
    report.goals.append(Goal("first load", sum(loaded) / 1000, 60, "KB"))
    report.goals.append(Goal("first load", len(loaded), 25, "requests"))


def _back(page: Page) -> float:
    """Freeze the page as a phone does, let its socket die, and bring it back."""
    page.js(BACK)
    page.cdp("Page.setWebLifecycleState", state="frozen")
    time.sleep(1)  # what the page is away; nothing is waited for
    page.cdp("Page.setWebLifecycleState", state="active")
    return float(page.wait("window.back"))


def _decide(page: Page, command: str) -> float:
    with page.bridge.phones() as [phone]:
        agents.tool(phone, agents.begin(page.bridge, phone), command=command)
    page.open("approvals")
    open_approval(page, command)
    page.js("window.decided = undefined")
    page.js("document.addEventListener('click', () => (window.tapped = performance.now()), true)")
    approve(page)
    return float(page.wait("window.decided && window.decided - window.tapped"))


def _rows(report: Report, page: Page, session: str, seconds: float) -> None:
    """Ten thousand rows: how the session opens, what it holds, and the longest task under load."""
    ours = page.bridge
    page.open(f"s/{session}").wait_ready()
    page.find(".bubble.mine", "Ten thousand rows")
    _post(ours, session, ROWS)
    deadline = time.monotonic() + FILLED
    while f"prompt {ROWS}" not in page.text:
        assert time.monotonic() < deadline, f"{ROWS} rows within {FILLED} s: {page.text[-300:]}"
        time.sleep(0.5)
    progress("client: the session is full")
    page.open()
    page.find(".row-link", "Ten thousand rows")
    page.wait_ready()
    page.js("window.tapped = performance.now()")
    page.tap(".row-link", "Ten thousand rows")
    opened = page.wait(
        "document.querySelector('.bubble.mine') && performance.now() - window.tapped"
    )
    _add(report, "a session of 10,000 rows opens", [float(opened)], 300)
    page.js("window.longest = 0")
    stop = time.monotonic() + seconds
    posting = threading.Thread(target=_while, args=(stop, lambda: _post(ours, session, PER_SECOND)))
    posting.start()
    posting.join()
    page.wait_ready()
    _add(report, "longest task while rows come", [float(page.js("window.longest"))], 50)
    page.cdp("HeapProfiler.collectGarbage")
    metrics = page.cdp("Runtime.getHeapUsage")
    _add(report, "heap", [metrics["usedSize"] / 1e6], 50, "MB")
    nodes = page.js("document.querySelectorAll('*').length")
    _add(report, "elements", [float(nodes)], 3000, "")


def _post(ours: Bridge, session: str, count: int) -> None:
    """Post prompts in batches, as a forwarder does that has something to catch up."""
    for start in range(0, count, AT_ONCE):
        numbers = range(start + 1, min(start + AT_ONCE, count) + 1)
        answer = ours.post_batch([prompt(session, number) for number in numbers])
        assert answer.status < 300, answer.json


def _while(stop: float, do: Callable[[], None]) -> None:
    while time.monotonic() < stop:
        began = time.monotonic()
        do()
        time.sleep(max(0.0, 1 - (time.monotonic() - began)))


def _add(report: Report, what: str, found: list[float], limit: float, unit: str = "ms") -> None:
    report.add(what, statistics.median(found), max(found), unit)
    report.goals.append(Goal(what, statistics.median(found), limit, unit))
