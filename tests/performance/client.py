"""The web client as a phone has it: Chromium with a fourth of the processor and a slow network.

The debugging protocol throttles no socket: so the bridge is behind a proxy that delays. Of tasks
the time on the processor counts, for on a busy machine they also wait for a core.
"""

import json
import statistics
import time
from collections import defaultdict
from contextlib import closing
from datetime import datetime
from pathlib import Path

from tests.conformance import agents, approvals
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session, prompt
from tests.performance.report import Report, progress
from tests.performance.servers import bridge, directory
from tests.web.actions import approve, open_approval, say, session_of, start_demo
from tests.web.browser import Debugger, Page, debug
from tests.web.link import Link

SCREEN = {"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": True}
CPU, DELAY, BYTES_A_SECOND = 4, 0.075, 180_000  # Slow 4G: 150 ms there and back
ROWS, AT_ONCE, PER_SECOND = 10_000, 100, 2_000
TASK, MAIN = "ThreadControllerImpl::RunTask", "CrRendererMain"
NEWEST = "(document.querySelector('.stream')?.lastElementChild?.textContent ?? '')"
# what a page runs; each says what it measures, and the last two are expressions
WATCH, BACK, OPENS = (
    Path(__file__).with_name(f"{name}.js").read_text() for name in ("watch", "back", "opens")
)


def client(rounds: int, seconds: float) -> Report:
    about = "Chromium, 360×640, processor ×4 slower, Slow 4G"
    report = Report("client", about, "what | median | worst | unit")
    settings = {"BRIDGE_QUEUE_MAX": str(ROWS * 4), "BRIDGE_DEMO_SHELL": "1"}
    with closing(Link()) as link, directory() as path:
        settings["BRIDGE_PUBLIC_URL"] = link.url
        with bridge(path / "bridge", **settings) as ours:
            link.bridge = ours
            with closing(Page(path / "profile", ours)) as page:
                _measure(report, page, link, rounds, seconds)
    return report


def _measure(report: Report, page: Page, link: Link, rounds: int, seconds: float) -> None:
    ours, session = page.bridge, new_session()
    ours.accept(hook("SessionStart", session, {"working_directory": str(ours.root)}))
    ours.accept(prompt(session, "Ten thousand rows"))
    _throttle(page, link)
    page.before_load(WATCH)
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
    _catch_up(report, page, session, rounds)
    _taps(report, page, link, rounds)


def _catch_up(report: Report, page: Page, session: str, rounds: int) -> None:
    """Come back to 10,000 missed rows: when what waits is there, what comes now, and the rest."""
    ours, number = page.bridge, ROWS * 3
    waiting, live, whole = [], [], []
    for turn in range(rounds):
        page.open(f"s/{session}").wait_ready()
        page.open("approvals").wait_ready()
        with ours.phones() as [phone]:
            page.js(BACK)
            _freeze(page)
            asks, other = agents.begin(ours, phone), agents.begin(ours, phone)
            agents.tool(phone, asks, command=f"echo waiting {turn}")
            _post(ours, session, number, ROWS)
            number += ROWS
            page.js("window.wanted = arguments[0]", f"echo waiting {turn}")
            _wake(page)
            began = time.monotonic()
            waiting.append(_since_woken(page))
            page.js("void ([window.wanted, window.carded] = [arguments[0]])", f"echo live {turn}")
            agents.tool(phone, other, command=f"echo live {turn}")
            live.append(_since_woken(page))
            for one in (asks, other):
                agents.end(phone, one)
        page.open(f"s/{session}")
        _wait_shown(page, number - 1)
        whole.append((time.monotonic() - began) * 1e3)
        progress(f"client: came back {turn + 1}")
    _add(report, "10,000 rows missed: what waits is on the screen", waiting, 1000)
    _add(report, "what an agent asks now is", live, 2000)
    report.add("all of them are", statistics.median(whole), max(whole), "ms")


def _since_woken(page: Page) -> float:
    return float(page.wait("window.carded && window.carded - window.woke"))


def _taps(report: Report, page: Page, link: Link, rounds: int) -> None:
    """What a tap takes on a desk's processor and network, and after a silent loss."""
    link.delay = 0.0
    page.cdp("Network.disable")
    page.cdp("Emulation.setCPUThrottlingRate", rate=1)
    page.open()
    start_demo(page, page.bridge, "At full speed")
    session = session_of(page)
    said, decided, shown, whole = [], [], [], []
    for number in range(rounds):
        page.open(f"s/{session}").wait_ready()
        said.append(_say(page, f"said {number}"))
        whole.append(_whole_again(page, link, f"lost {number}"))
        shown.append(_card(page, f"echo {number}"))
        decided.append(_decide(page, f"ls at once {number}"))
        progress(f"client, not throttled: round {number + 1}")
    _add(report, "not throttled: tap on Send to frame", said, 15)
    _add(report, "tap on Approve to frame", decided, 15)
    _add(report, "an approval's row to its card", shown, 90)
    _add(report, "tap after a silent loss to the agent's answer", whole, 3000)


def _throttle(page: Page, link: Link) -> None:
    link.delay = DELAY
    page.cdp("Network.enable")
    both = dict.fromkeys(("downloadThroughput", "uploadThroughput"), BYTES_A_SECOND)
    page.cdp("Network.emulateNetworkConditions", offline=False, latency=0, **both)
    page.cdp("Emulation.setCPUThrottlingRate", rate=CPU)


def _say(page: Page, text: str) -> float:
    page.js("window.said = undefined")
    say(page, text)
    took = float(page.wait("window.said && window.said - window.tapped"))
    page.wait_text(f"repeats what you say: {text}")
    return took


def _whole_again(page: Page, link: Link, text: str) -> float:
    """Lose the connection without a word to anybody, and say something."""
    link.lose()
    page.type(".composer textarea", text)
    began = time.monotonic()
    page.tap(".composer button[type=submit]")
    page.wait_text(f"repeats what you say: {text}")
    took = (time.monotonic() - began) * 1e3
    link.cut()  # the browser's other connections are lost too, and it would wait for them
    link.mend()
    page.wait_ready()
    return took


def _card(page: Page, command: str) -> float:
    """From the row of an approval to its card, on the screen of all that waits."""
    session = session_of(page)
    page.open("approvals").wait_ready()
    page.js("void ([window.wanted, window.carded] = [arguments[0], undefined])", command)
    with page.bridge.phones() as [phone]:
        phone.join(session)
        asked = agents.tool(phone, session, command=command)
        carded = float(page.wait("window.carded"))
        (row,) = (one for one in phone.messages if one["payload"] == asked)
        approvals.decide(phone, session, asked["tool_call_id"], "approved")
        phone.expect("stream_end", session_id=session)
    return carded - datetime.fromisoformat(row["timestamp"]).timestamp() * 1e3


def _back(page: Page) -> float:
    """Freeze the page as a phone does, let its socket die, and bring it back."""
    page.js(BACK)
    _freeze(page)
    time.sleep(1)  # what the page is away; nothing is waited for
    _wake(page)
    return float(page.wait("window.back"))


def _freeze(page: Page) -> None:
    page.cdp("Emulation.setFocusEmulationEnabled", enabled=False)
    page.cdp("Page.setWebLifecycleState", state="frozen")


def _wake(page: Page) -> None:
    """Bring a frozen page back; Chromium leaves it hidden, and a hidden page draws nothing."""
    page.cdp("Page.setWebLifecycleState", state="active")
    page.cdp("Emulation.setFocusEmulationEnabled", enabled=True)


def _decide(page: Page, command: str) -> float:
    with page.bridge.phones() as [phone]:
        agents.tool(phone, agents.begin(page.bridge, phone), command=command)
    page.open("approvals")
    open_approval(page, command)
    page.js("window.decided = undefined")
    approve(page)
    return float(page.wait("window.decided && window.decided - window.tapped"))


def _rows(report: Report, page: Page, session: str, seconds: float) -> None:
    """Ten thousand rows: how the session opens, what it holds, and the longest task under load."""
    ours = page.bridge
    page.open(f"s/{session}").wait_ready()
    page.find(".bubble.mine", "Ten thousand rows")
    _post(ours, session, 1, ROWS)
    _wait_shown(page, ROWS)
    progress("client: the session is full")
    page.open()
    page.find(".row-link", "Ten thousand rows")
    page.wait_ready()
    page.js(OPENS)
    page.tap(".row-link", "Ten thousand rows")
    opened = page.wait("window.opened")
    _add(report, "a session of 10,000 rows opens", [float(opened)], 300)
    with debug(page, "browser") as debugger:
        config = {"recordMode": "recordAsMuchAsPossible", "includedCategories": ["toplevel"]}
        debugger.ask("Tracing.start", transferMode="ReturnAsStream", traceConfig=config)
        turns, began = max(1, round(seconds)), time.monotonic()
        for turn in range(turns):
            _post(ours, session, ROWS + 1 + turn * PER_SECOND, PER_SECOND)
            time.sleep(max(0.0, began + turn + 1 - time.monotonic()))
        _wait_shown(page, ROWS + turns * PER_SECOND)
        longest = max(_trace(debugger))
    _add(report, "longest task while rows come, on the processor", [longest], 50)
    page.cdp("HeapProfiler.collectGarbage")
    metrics = page.cdp("Runtime.getHeapUsage")
    _add(report, "heap", [metrics["usedSize"] / 1e6], 50, "MB")
    nodes = page.js("document.querySelectorAll('*').length")
    _add(report, "elements", [float(nodes)], 3000, "")


def _post(ours: Bridge, session: str, first: int, count: int) -> None:
    """Post prompts in batches, as a forwarder does that has something to catch up."""
    for start in range(first, first + count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, first + count))
        answer = ours.post_batch([prompt(session, number) for number in numbers])
        assert answer.status < 300, answer.json


def _wait_shown(page: Page, number: int) -> None:
    page.wait(f"{NEWEST}.includes('prompt {number}')", seconds=300)  # some megabytes, slowly


def _add(report: Report, what: str, found: list[float], limit: float, unit: str = "ms") -> None:
    report.add(what, statistics.median(found), max(found), unit)
    report.goal(what, statistics.median(found), limit, unit)


def _trace(debugger: Debugger) -> list[float]:
    """End the trace: what each task of the busiest page's main thread took, in ms."""
    debugger.ask("Tracing.end")
    stream = debugger.until("method", "Tracing.tracingComplete")["params"]["stream"]
    text, more = "", True
    while more:
        part = debugger.ask("IO.read", handle=stream, size=1 << 22)
        text, more = text + part["data"], not part["eof"]
    main, pages = set[tuple[int, int]](), defaultdict[int, list[float]](list)
    events = json.loads(text)["traceEvents"]
    for event in events:
        if event["name"] == "thread_name" and event["args"]["name"] == MAIN:
            main.add((event["pid"], event["tid"]))
    for event in events:
        if event["name"] == TASK and (event["pid"], event["tid"]) in main and "tdur" in event:
            pages[event["pid"]].append(event["tdur"] / 1000)
    return max(pages.values(), key=sum)
