"""The bridge dies in a stream, the network in a send: nothing doubled, nothing lost, all said."""

import socket
import threading
from contextlib import suppress

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge, eventually
from tests.web.actions import say, start_demo
from tests.web.browser import NETWORK, Page
from tests.web.conftest import MakeBridge, MakePage
from tests.web.link import Link

pytestmark = pytest.mark.web


class OneWay(Link):
    """A network that can lose what the bridge says and still carry what the phone says."""

    def __init__(self) -> None:
        self.heard = threading.Event()
        self.heard.set()
        super().__init__()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            is_answer = sink.getsockname()[1] == self.port
            while data := source.recv(65536):
                if is_answer:
                    self.heard.wait()
                sink.sendall(data)


def taken(bridge: Bridge, session_id: str, text: str) -> int:
    """How often the bridge has taken this prompt."""
    phone = bridge.phone().ready()
    try:
        phone.join(session_id)
        log = agents.log_of(phone, session_id)
    finally:
        phone.close()
    events = [message["payload"] for message in log if message["type"] == "agent_event"]
    return sum(event["payload"].get("prompt") == text for event in events)


def session_of(page: Page) -> str:
    return str(page.js("location.pathname")).split("/")[-1]


# the prompts on the screen, without the line under each
PROMPTS = "[...document.querySelectorAll('.bubble.mine p:first-child')].map((p) => p.innerText)"
# what was said and is not confirmed: "Sending…" until the page gives the connection up
SENT = "document.querySelector('.outgoing .sent')"
START = "document.querySelector('form .primary')"
NEVER_STARTS = """
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (text) {
  if (!text.includes("session_start")) send.call(this, text);
};
"""
STREAM = "document.querySelector('.stream')?.innerText"


def test_the_bridge_is_killed_in_a_stream(make_bridge: MakeBridge, make_page: MakePage) -> None:
    bridge = make_bridge()
    page = make_page(bridge).pair()
    page.expected.append(NETWORK)
    start_demo(page, bridge, "/sleep 600")
    page.wait_text("5 6 7")
    page.wait_whole()
    bridge.kill()
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


def test_one_tap_starts_one_session(page: Page, bridge: Bridge) -> None:
    """However long it takes, and whatever is shown meanwhile."""
    page.tap("a.button")
    page.wait(f"document.querySelector('#directory') && !{START}.disabled")
    page.js("document.querySelector('#directory').value = arguments[0]", str(bridge.root))
    page.driver.execute_script(NEVER_STARTS)
    page.tap("button", "Start")
    page.js("void dispatchEvent(new PopStateEvent('popstate'))")  # the screen is painted again
    assert page.js(f"{START}.disabled")


def test_the_network_is_cut_before_the_answer_arrives(
    make_bridge: MakeBridge, make_page: MakePage
) -> None:
    link = OneWay()
    link.bridge = make_bridge(BRIDGE_PUBLIC_URL=link.url)
    page = make_page(link.bridge).pair()
    page.expected.append(NETWORK)
    start_demo(page, link.bridge, "Hello")
    page.wait_text("repeats what you say: Hello")
    session_id = session_of(page)
    page.wait_whole()
    link.heard.clear()
    say(page, "Only once")
    eventually(lambda: taken(link.bridge, session_id, "Only once") == 1)
    assert page.js(SENT)
    link.cut()
    link.heard.set()
    page.wait_text("Not confirmed yet")
    link.mend()
    page.wait_text("repeats what you say: Only once")
    page.wait_gone("Not confirmed yet")
    page.wait_equal(PROMPTS, ["Hello", "Only once"])
    assert taken(link.bridge, session_id, "Only once") == 1
    link.close()
