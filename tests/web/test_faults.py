"""The bridge dies, the network fails, pages sleep, tabs share: nothing is doubled or lost."""

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.servers import wait_until
from tests.web.actions import PROMPTS, prepare_demo, say, session_of, start_demo, talk
from tests.web.browser import NETWORK, PHONE, Page
from tests.web.conftest import MakeBridge, MakePage
from tests.web.link import Link

pytestmark = pytest.mark.web


def taken(bridge: Bridge, session_id: str, text: str) -> int:
    """How often the bridge has taken this prompt."""
    with bridge.phones() as [phone]:
        phone.join(session_id)
        log = agents.log_of(phone, session_id)
    events = [message["payload"] for message in log if message["type"] == "agent_event"]
    return sum(event["payload"].get("prompt") == text for event in events)


# what was said and is not confirmed: "Sending…" until the page gives the connection up
SENT = "document.querySelector('.outgoing .sent')"
NO_HEARTBEAT = """
const set = setTimeout;
window.setTimeout = (what, ms, ...more) =>
  set(what, ms === 15_000 || ms === 10_000 ? 1 << 30 : ms, ...more);
"""
STREAM = "document.querySelector('.stream')?.innerText"


def test_the_bridge_is_killed_in_a_stream(make_bridge: MakeBridge, make_page: MakePage) -> None:
    bridge = make_bridge()
    page = make_page(bridge).pair()
    page.expected.append(NETWORK)
    start_demo(page, bridge, "/sleep 600")
    page.wait_text("5 6 7")
    page.wait_whole()
    bridge.kill_all()
    page.wait("document.querySelector('.connection').innerText.includes('Offline')")
    say(page, "Are you still there?")
    page.wait_text("Waits for the connection")
    bridge.start()
    page.wait_ready()
    # What was said goes out by itself, wakes the session, and is answered once.
    page.wait_text("repeats what you say: Are you still there?")
    page.wait("!document.querySelector('.streaming')", what="nothing is still being said")
    page.wait_equal(PROMPTS, ["/sleep 600", "Are you still there?"])
    assert taken(bridge, session_of(page), "Are you still there?") == 1
    shown = page.js(STREAM)
    page.driver.refresh()
    page.wait_ready()
    page.wait_equal(STREAM, shown)


def test_the_network_is_cut_before_the_answer_arrives(make_page: MakePage, link: Link) -> None:
    page = make_page(link.bridge).pair()
    page.expected.append(NETWORK)
    prepare_demo(page, link.bridge, "Hello")
    page.wait_whole()
    before = link.bridge.health()["active_sessions"]
    link.heard.clear()
    page.tap("button", "Start")
    wait_until(lambda: link.bridge.health()["active_sessions"] > before)
    link.cut()
    page.wait_text("Waits for the connection")
    session_id = session_of(page)
    link.mend()
    page.wait_text("repeats what you say: Hello")
    assert taken(link.bridge, session_id, "Hello") == 1
    link.heard.clear()
    say(page, "Only once")
    wait_until(lambda: taken(link.bridge, session_id, "Only once") == 1)
    assert page.js(SENT)
    link.cut()
    page.wait_text("Not confirmed yet")
    link.mend()
    page.wait_text("repeats what you say: Only once")
    page.wait_gone("Not confirmed yet")
    page.wait_equal(PROMPTS, ["Hello", "Only once"])
    assert taken(link.bridge, session_id, "Only once") == 1


def test_a_tap_finds_that_the_connection_is_dead(make_page: MakePage, link: Link) -> None:
    """No heartbeat does it here: the page's are never due."""
    page = make_page(link.bridge)
    page.before_load(NO_HEARTBEAT)
    page.pair()
    start_demo(page, link.bridge, "While it lives")
    session_id = session_of(page)
    link.lose()
    say(page, "Only once, and now")
    page.wait_text("repeats what you say: Only once, and now")
    assert taken(link.bridge, session_id, "Only once, and now") == 1


def test_a_page_dies_before_the_bridge_has_answered(make_page: MakePage, link: Link) -> None:
    page = make_page(link.bridge).pair()
    page.expected.append(NETWORK)
    start_demo(page, link.bridge, "Before it dies")
    session_id = session_of(page)
    page.wait_whole()
    link.heard.clear()
    say(page, "Said once")
    page.wait_text("Kept here, sending…")
    wait_until(lambda: taken(link.bridge, session_id, "Said once") == 1)
    page.driver.get("about:blank")
    link.mend()
    page.open(f"s/{session_id}")
    page.wait_text("repeats what you say: Said once")
    page.wait("!document.querySelector('.outgoing .sent')", what="it is confirmed")
    page.wait_equal(PROMPTS, ["Before it dies", "Said once"])
    assert taken(link.bridge, session_id, "Said once") == 1


def new_tab(page: Page) -> tuple[str, str]:
    """Open a second tab and go to it; return the first and the second."""
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.show_as(PHONE)
    return first, page.driver.current_window_handle


def go_to(page: Page, tab: str) -> None:
    page.driver.switch_to.window(tab)
    page.cdp("Page.bringToFront")


def freeze(page: Page) -> None:
    page.cdp("Page.setWebLifecycleState", state="frozen")


def thaw(page: Page) -> None:
    page.cdp("Page.setWebLifecycleState", state="active")
    page.cdp("Emulation.setFocusEmulationEnabled", enabled=True)  # in front again


def sockets(bridge: Bridge) -> int:
    return int(bridge.health()["active_websockets"])


def test_a_reload_finds_everything_again(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "Before the reload")
    page.type(".composer textarea", "A draft that is not")
    page.wait("document.querySelector('.grow').dataset.text === 'A draft that is not'")
    page.driver.refresh()
    page.wait_text("repeats what you say: Before the reload")
    page.wait_ready()
    page.wait_equal(PROMPTS, ["Before the reload"])
    page.wait("document.querySelector('.composer textarea').value === 'A draft that is not'")
    say(page, " lost")
    page.wait_text("repeats what you say: A draft that is not lost")


def test_two_tabs_share_one_connection(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "From the first tab")
    path = f"s/{session_of(page)}"
    first, second = new_tab(page)
    page.open(path)
    page.wait_text("repeats what you say: From the first tab")
    page.wait_ready()
    wait_until(lambda: sockets(bridge) == 1)
    talk(page, "From the second tab")
    # The first goes away with the connection: the second takes it over.
    go_to(page, first)
    page.wait_text("repeats what you say: From the second tab")
    page.driver.close()
    go_to(page, second)
    wait_until(lambda: sockets(bridge) == 1)
    talk(page, "Alone")
    page.wait_equal(PROMPTS, ["From the first tab", "From the second tab", "Alone"])


def test_a_frozen_page_lets_another_tab_go_on_and_comes_back(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "While awake")
    path = f"s/{session_of(page)}"
    first, second = new_tab(page)
    page.open("settings")
    go_to(page, first)
    freeze(page)
    go_to(page, second)
    page.open(path)
    page.wait_ready()
    talk(page, "While the other tab sleeps")
    go_to(page, first)
    thaw(page)
    page.wait_text("repeats what you say: While the other tab sleeps")
    page.wait_ready()
    talk(page, "Awake again")
    go_to(page, second)
    page.wait_text("repeats what you say: Awake again")
    page.wait_equal(PROMPTS, ["While awake", "While the other tab sleeps", "Awake again"])
    wait_until(lambda: sockets(bridge) == 1)


def test_a_page_that_slept_alone_is_live_again(page: Page, bridge: Bridge) -> None:
    start_demo(page, bridge, "Before the sleep")
    session_id = session_of(page)
    freeze(page)
    other = bridge.phone().ready()
    other.join(session_id)
    agents.ask(other, session_id, "Meanwhile")
    thaw(page)
    page.wait_text("repeats what you say: Meanwhile")
    page.wait_ready()
    page.wait_equal(PROMPTS, ["Before the sleep", "Meanwhile"])
