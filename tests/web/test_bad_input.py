"""What cannot be read, kept or trusted: said, and the client goes on (D53)."""

import json
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_id, new_session
from tests.web.actions import start_demo, talk
from tests.web.browser import Page
from tests.web.conftest import MakePage

pytestmark = pytest.mark.web

KEEP_SOCKETS = """
window.sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) { super(...given); window.sockets.push(this); }
};
"""
NO_STORAGE = """
Object.defineProperty(window, "indexedDB", {
  value: { open() { throw new DOMException("not in this window", "SecurityError"); } },
});
"""
FULL = """
const put = IDBObjectStore.prototype.put;
IDBObjectStore.prototype.put = function (...given) {
  const request = put.apply(this, given);
  if (window.isFull) this.transaction.abort(); // as chromium does
  return request;
};
"""
ID = "0b8f7c1e-2d45-4f6a-8f7e-1c2d3e4f5a6b"


def receive(page: Page, message: Any) -> None:
    """Let the client receive this as if the bridge had sent it."""
    text = message if isinstance(message, str) else json.dumps(message)
    page.js(
        "void window.sockets.at(-1).dispatchEvent(new MessageEvent('message', "
        "{data: arguments[0]}))",
        text,
    )


def envelope(kind: str, payload: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": ID, "timestamp": "2026-01-31T12:00:00Z", "payload": payload} | more


def ask_what_is_wrong(page: Page) -> None:
    """Go from a conversation to "What is wrong?"."""
    page.tap(".back")
    page.tap("nav a", "Settings")
    page.tap(".row-link", "What is wrong?")


def test_what_cannot_be_read_is_kept_aside(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge)
    page.before_load(KEEP_SOCKETS)
    page.pair()
    session_id = new_session()
    bridge.accept(hook("UserPromptSubmit", session_id, {"prompt": "Before"}))
    page.tap(".row-link", "Before")
    page.wait_text("it can be watched here")
    about = {"session_id": session_id}
    asked: dict[str, Any] = {"tool_call_id": "d", "tool": "T", "params": {}, "risk_level": "x"}
    asked |= {"source": "y", "description": 5, "reasoning": {"a": 1}}
    replayed = {"messages": [None, 5, {"type": "tool_call"}], "complete": True}
    for message in (
        "no JSON",
        envelope("from_the_future", {"news": "<b>markup</b>"}),
        envelope("stream_chunk", {**about, "message_id": ID, "content": {"not": "text"}}),
        envelope("session_update", {"session": None}),
        envelope("session_update", {"session": {**about, "last_activity_at": 5, "doing": 3}}),
        envelope("tool_result", {**about, "tool_call_id": "c", "tool": 5, "result": {"diff": 7}}),
        envelope("approval_required", about | asked, id=new_id()),
        envelope("replay_buffer", about | replayed),
    ):
        receive(page, message)
    bridge.accept(hook("UserPromptSubmit", session_id, {"prompt": "After"}))
    page.wait_text("After")
    said = about | {"message_id": ID, "content": "Dear.", "finish_reason": "stop"}
    cost: dict[str, Any] = {"usage": {"cost": {"amount": 0.5, "currency": "EUR"}}}
    for kind in ("stream_chunk", "stream_end"):
        receive(page, envelope(kind, said | cost, id=new_id()))
    page.wait_text("0.500 EUR so far")
    ask_what_is_wrong(page)
    page.wait_text("could not be read (not JSON)", "unknown type", "<b>markup</b>")
    page.wait_text("wrong or missing: content")
    page.wait_text("could not be read (no message)", '{"type":"tool_call"}')  # within a replay
    page.open("approvals")
    page.wait_ready()


def test_a_browser_that_refuses_storage(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge)
    page.before_load(NO_STORAGE)
    page.pair()
    start_demo(page, bridge, "Keep nothing")
    page.tap(".back")
    page.tap("nav a", "Settings")
    page.wait_text("only until this page is closed")
    page.tap(".row-link", "What is wrong?")
    page.wait_text("This browser keeps nothing: not in this window", "private browsing")


def test_storage_that_is_full(make_page: MakePage, bridge: Bridge) -> None:
    page = make_page(bridge)
    page.before_load(FULL)
    page.pair()
    start_demo(page, bridge, "While there is room")
    page.js("void (window.isFull = true)")
    talk(page, "When there is none")
    page.wait_text("storage is full")
    talk(page, "And again")
    ask_what_is_wrong(page)
    page.wait_text("could not be stored")
    # With room again nothing is missing: what was not kept was not acknowledged.
    page.driver.refresh()
    page.wait_text("Connected to")
    page.open()
    page.tap(".row-link", "While there is room")
    page.wait_text("say: When there is none", "repeats what you say: And again")
    assert page.text.count("repeats what you say: And again") == 1
