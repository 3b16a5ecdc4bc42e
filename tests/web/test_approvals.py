"""Approvals: decided by whom, when there is no connection, and what is said of it (D34, D53)."""

import json

import pytest
from selenium.webdriver.common.keys import Keys

from tests.conformance import agents, approvals
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session
from tests.servers import wait_until
from tests.web.actions import approve, ask_to_run, close_sheet, open_approval, pause, prepare
from tests.web.browser import NETWORK, PHONE, Page
from tests.web.conftest import MakePage
from tests.web.link import Link

pytestmark = pytest.mark.web


def test_one_is_opened_that_the_page_has_not_received(page: Page, bridge: Bridge) -> None:
    """What a tap on a push leads to when the page was closed (D56)."""
    page.driver.get("about:blank")
    session_id = ask_to_run(bridge, "echo pushed > pushed.txt")
    (call_id,) = approvals.pending(bridge, session_id)
    page.open(f"approvals/{session_id}/{call_id}")
    page.find("dialog .whole", "echo pushed > pushed.txt")
    assert "waits" not in page.js("document.querySelector('#toasts').innerText")
    approve(page)
    told = r"/Approved by you\. The agent was told\. [0-9]/.test(document.body.innerText)"
    page.wait(told, what="when")
    close_sheet(page)
    page.open(f"approvals/{session_id}/nothing")
    page.wait_text("This approval is not known here any more.")


def test_all_that_come_together_are_shown(page: Page, bridge: Bridge) -> None:
    page.open("approvals").wait_text("Nothing waits for you.")
    session_id = new_session()
    bridge.accept(*[approvals.pre(session_id, {"n": n}, approval=True) for n in range(20)])
    page.wait_equal("document.querySelectorAll('.cards .card').length", 20)
    bridge.accept(hook("SessionEnd", session_id))


def test_a_question_is_answered(page: Page, bridge: Bridge) -> None:
    """D38: by one of its choices, or in other words."""
    phone = bridge.phone().ready()
    session_id = agents.begin(bridge, phone)
    question = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}
    for several, words, answer in (
        (False, "", "Blue"),
        (False, "Green, please", "Green, please"),
        (True, "and gold", "Blue, and gold"),
    ):
        asked = {"questions": [question | {"multiSelect": several}]}
        agents.say(phone, session_id, f"/tool AskUserQuestion {json.dumps(asked)}")
        open_approval(page, "Which colour?")
        phone.ping()
        page.wait("document.querySelector('dialog .sheet-foot .primary').disabled")
        page.tap("dialog .choice", "Blue")
        if words:
            page.type("dialog .question input[type=text]", words)
        assert page.js("document.querySelectorAll('dialog :checked').length") == (answer != words)
        phone.ping()
        page.tap("dialog .primary", "Answer")
        result = phone.expect("tool_result", session_id=session_id)["payload"]["result"]
        assert result["content"] == f"Which colour? {answer}"
        close_sheet(page)


def test_what_was_changed_is_what_is_shown(page: Page, bridge: Bridge) -> None:
    """In the list, on the sheet and in the conversation, beside what had been asked."""
    session_id = ask_to_run(bridge, "ls first")
    open_approval(page, "ls first")
    page.tap("dialog button", "Change…")
    page.type("dialog textarea", " second")
    page.tap("dialog .primary", "Approve with changes")
    page.wait_text("Approved with changes by you")
    assert page.js("document.querySelector('dialog textarea').disabled")
    close_sheet(page)
    page.open("approvals").tap(".row-link", "Bash: ls first second")
    page.wait_text("What changes in command")
    close_sheet(page)
    page.open(f"s/{session_id}").tap("details.tool summary", "Bash: ls first second")
    page.wait_text("changed by a person", "It had asked for: ls first\n")


MANY = "1" * 5000
ODD = (
    '{"id": 9007199254740993, "deep": [{"id": 12345678901234567890}, 1.0, -0.0], "big": 1e400,'
    ' "many": %s, "__proto__": {"a": 1}, "note": "x"}'
)


def test_only_what_is_changed_goes_back_changed(page: Page, bridge: Bridge) -> None:
    """Digit for digit; what JavaScript cannot hold is edited as text."""
    phone = bridge.phone().ready()
    session_id = agents.begin(bridge, phone)
    for id, typed in ((9007199254740993, ""), (9007199254740995, "9007199254740995")):
        agents.say(phone, session_id, f"/tool Lookup {ODD % MANY}")
        open_approval(page, "Lookup")
        page.wait_text("9007199254740993", '"id": 12345678901234567890', "1e400", "-0.0")
        page.show_as(PHONE | {"height": 7000})  # all of it is seen
        page.tap("dialog button", "Change…")
        page.type("#field-note", "y")
        if typed:
            page.type("#field-id", Keys.BACKSPACE * 20)
            page.wait_text("id must be a number.")
            assert page.js("document.querySelector('dialog .primary').disabled")
            page.type("#field-id", typed)
        page.tap("dialog .primary", "Approve with changes")
        result = phone.expect("tool_result", session_id=session_id)["payload"]["result"]
        params = result["content"].partition("Parameters: ")[2]
        odd = ODD.replace("1e400", '"1e400"').replace('"x"', '"xy"') % f'"{MANY}"'
        assert params == odd.replace("9007199254740993", str(id))
        close_sheet(page)


CLOSE_WHILE_HELD = """void document.querySelector('.hold').addEventListener('pointerdown', () => {
  setTimeout(() => document.querySelector('dialog').close(), 1);
  setTimeout(() => { window.held = true; }, 2000);
})"""


SLIDE = """window.held = void document.querySelector('.hold').addEventListener(
  'pointerdown', () => setTimeout(() => { window.held = true; }, 3000))"""


def hold(page: Page, *, slide: bool = False) -> None:
    """Hold it for long enough with one finger, or slide off with two."""
    box = page.find("dialog .hold").rect
    touch = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    page.cdp("Input.dispatchTouchEvent", type="touchStart", touchPoints=[touch])
    if slide:
        for kind, place in (("touchStart", touch), ("touchMove", {"x": 9, "y": 9})):
            both = [place | {"id": number} for number in range(2)]
            page.cdp("Input.dispatchTouchEvent", type=kind, touchPoints=both)
    page.wait("window.held", what="it was held for long enough")
    page.cdp("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def test_changes_take_the_steps_of_the_call(page: Page, bridge: Bridge) -> None:
    ask_to_run(bridge, "rm -rf\u00a0 nothing")
    open_approval(page, "rm -rf nothing")
    page.show_as(PHONE | {"height": 1400})
    page.tap("dialog button", "Change…")
    page.type("dialog textarea", "-here")
    page.wait_gone("Scroll to the end to approve.")
    page.js(CLOSE_WHILE_HELD)
    pause(page)
    hold(page)
    open_approval(page, "rm -rf nothing")
    page.find("dialog .odd", "U+00A0")
    page.tap("dialog button", "Change…")
    pause(page)
    page.js(SLIDE)
    hold(page, slide=True)
    page.find("dialog .hold", "Hold to approve with changes")  # what was typed is still there
    page.tap("dialog button", "Tap twice instead")
    page.tap("dialog .armed", "Yes, approve with changes")
    page.wait_text("Approved with changes by you")


def test_an_edit_is_seen_whole_first(page: Page, bridge: Bridge) -> None:
    """Each line of it, and what its difference does not say."""
    phone = bridge.phone().ready()
    lines = "".join(f"line {number}\n" for number in range(400))
    edits = [{"old_string": "", "new_string": lines, "replace_all": True}]
    odd = {"note": "", "n" * 400: None, "no\u200bte": 2**60}
    session_id = agents.begin(bridge, phone)
    agents.tool(phone, session_id, "Edit", file_path="a.py", edits=edits, **odd)
    open_approval(page, "a.py")
    page.wait_text("replace_all\ntrue", "An empty text.", "null", "noU+200Bte", str(2**60))
    assert page.js("document.querySelector('.sheet-body').scrollWidth <= innerWidth")
    end = "document.querySelector('.sheet-body').scrollTop = 1e6"
    page.wait(f"({end}) && document.querySelector('.sheet-body').scrollTop > 1000")
    page.wait_text("Scroll to the end to approve.")
    assert page.js("document.querySelector('dialog .sheet-foot .primary').disabled")
    page.tap("dialog .more", "Show more")
    page.js(end)
    page.find("dialog .primary", "Approve")


def test_an_edit_in_its_conversation_is_seen_whole(page: Page, bridge: Bridge) -> None:
    phone = bridge.phone().ready()
    session_id, old = agents.begin(bridge, phone), "name = 'x'"
    edit = {"old_string": old, "new_string": f"{old}{' ' * 22}; __import__('os').system('evil')"}
    agents.tool(phone, session_id, "Edit", file_path="a.py", **edit)
    page.open(f"s/{session_id}").find(".deciding .diff", "evil")
    over = "((n) => n.scrollWidth - n.clientWidth)(document.querySelector('.deciding .diff'))"
    assert page.js(over) == 0


def test_what_is_long_is_seen_first(page: Page, bridge: Bridge) -> None:
    """Whatever is said of it meanwhile; by scrolling, or on a larger screen."""
    ask_to_run(bridge, "\n".join(f"echo {number} > long.txt" for number in range(15)))
    open_approval(page, "echo 0")
    page.wait_text("Scroll to the end to approve.")
    page.keep_toasts()
    ask_to_run(bridge, "echo other")
    page.find("dialog .toast", "New device")  # not behind the sheet
    page.wait("document.querySelectorAll('.card').length > 1", what="the page has news")
    assert "Scroll to the end to approve." in page.text
    assert page.js("document.querySelector('dialog .primary').disabled")
    page.show_as(PHONE | {"height": 1400})
    page.wait_gone("Scroll to the end to approve.")
    prepare(page)
    page.wait("!document.querySelector('dialog .armed')", what="the second step is not for ever")


def test_buttons_that_move_take_no_tap(make_page: MakePage, link: Link) -> None:
    """A sentence above them comes when the connection goes."""
    page = make_page(link.bridge).pair()
    page.open(f"s/{ask_to_run(link.bridge, 'ls moves')}").find(".deciding .reject")
    page.expected.append(NETWORK)
    page.wait_whole()
    pause(page)
    page.js(
        "new MutationObserver((_, seen) => { window.guarded = seen.disconnect() ?? true })"
        ".observe(document.querySelector('.deciding .actions'), {attributes: true})"
    )
    link.cut()
    page.wait_text("Offline: what you decide waits")
    assert page.js("window.guarded")
    link.mend()


def approve_offline(make_page: MakePage, link: Link, name: str) -> tuple[Page, str]:
    """A page without a network that has approved a command which makes this file; its session."""
    page = make_page(link.bridge).pair()
    session_id = ask_to_run(link.bridge, f"echo x > {name}")
    open_approval(page, name)
    page.expected.append(NETWORK)
    page.wait_whole()
    link.cut()
    page.wait("document.querySelector('.connection')?.hidden === false", what="it is offline")
    approve(page)
    page.wait_text("Approved here, waits for the connection")
    return page, session_id


def test_what_is_decided_offline_waits_and_is_sent(make_page: MakePage, link: Link) -> None:
    page, _ = approve_offline(make_page, link, "late.txt")
    link.mend()
    page.driver.refresh()  # a decision outlives the page
    page.wait_text("Approved by you. The agent was told.")
    wait_until((link.bridge.root / "late.txt").exists)


def test_what_is_decided_offline_can_be_withdrawn(make_page: MakePage, link: Link) -> None:
    page, session_id = approve_offline(make_page, link, "never.txt")
    page.tap("dialog button", "Withdraw")
    page.tap("dialog button", "Change…")
    page.type("dialog textarea", ".bak")
    approve(page)
    page.tap("dialog button", "Withdraw")
    page.find("dialog .primary", "Approve…")
    assert not page.js("document.querySelector('dialog .edit')"), "what it would not send"
    link.mend()
    page.wait_ready()
    assert len(approvals.pending(link.bridge, session_id)) == 1
    page.tap("dialog button", "Reject")
    page.wait_text("Rejected by you")
    assert not (link.bridge.root / "never.txt").exists()


def test_what_was_on_the_screen_is_not_news_after_a_cut(make_page: MakePage, link: Link) -> None:
    page = make_page(link.bridge).pair()
    session_id = ask_to_run(link.bridge, "ls seen")
    page.open(f"s/{session_id}").find(".deciding .reject")
    page.expected.append(NETWORK)
    page.wait_whole()
    (call_id,) = approvals.pending(link.bridge, session_id)
    link.cut()
    page.wait_text("Offline: what you decide waits")
    with link.bridge.phones() as (other,):
        approvals.decide(other, session_id, call_id, "rejected")
    wait_until(lambda: link.bridge.session(session_id)["turn"] == "idle")
    link.mend()
    page.wait("!document.querySelector('.deciding')", what="it was decided")
    page.open("").find(".row-link", "ls seen")
    assert "Finished" not in page.text


def test_what_is_decided_offline_may_be_overtaken(make_page: MakePage, link: Link) -> None:
    """Somebody else was first: his decision stands, and this device says so and sends nothing.

    It says so whatever else has happened meanwhile, and it stays with the call.
    """
    page, session_id = approve_offline(make_page, link, "over.txt")
    (call_id,) = approvals.pending(link.bridge, session_id)
    with link.bridge.phones(4) as (*_, last):
        approvals.decide(last, session_id, call_id, "rejected")
    page.keep_toasts()
    link.mend()
    page.wait_text("Rejected by phone-")
    name = page.text.split("Rejected by ")[1].split()[0].rstrip(".")
    page.find("dialog .toast", f"New device: {name}")
    assert "Decided too late here: Bash: echo x > over.txt." in page.text
    assert "too late" in page.js("document.querySelector('#announce').textContent")
    page.wait("/Rejected by phone-.*told\\. [0-9]/.test(document.body.innerText)", what="when")
    assert not (link.bridge.root / "over.txt").exists()
    page.open(f"s/{session_id}").tap("details.tool summary", "Bash: echo x")
    page.find(".tool-body", "Too late here: Approved")
