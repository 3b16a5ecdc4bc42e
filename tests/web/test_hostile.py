"""The web client against who means it harm: an agent, a page in another tab (D53)."""

from pathlib import Path

import pytest

from tests.conformance import agents
from tests.conformance.agent_tools import Script, bridge_of, script_of
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge
from tests.web.actions import open_approval
from tests.web.browser import NETWORK, PHONE, Page
from tests.web.conftest import ROOM
from tests.web.link import site

pytestmark = pytest.mark.web

MARKUP = "<img src=x onerror=alert(1)><svg onload=alert(2)><script>alert(3)</script>"
BIDI = "report\u202etxt.exe\u2066\u200b hidden\u2069"
LINKS = "[x](javascript:alert(4)) [y](data:text/html,z) ![z](https://evil.example/z.png) <a href=x>w</a>"
EVIL = f"{MARKUP} {BIDI} {LINKS} {'x' * 300}"
# by every way that an agent has: words, thoughts, calls, results, diffs, questions, failures
HOSTILE = f"""/do evil = {EVIL!r}
def text(what): return {{'type': 'text', 'text': what}}
def shown(what): return [{{'type': 'content', 'content': text(what)}}]
say('# ' + evil + '\\n\\n- ' + evil + '\\n\\n|' + evil + '|b|\\n|---|---|\\n|1|2|\\n\\n```' + evil + '\\n' + evil + '\\n```\\n')
update('agent_thought_chunk', content=text(evil))
update('tool_call', toolCallId=evil, title=evil, kind='other', status='in_progress', rawInput={{evil: evil, 'command': evil}}, locations=[{{'path': evil}}])
update('tool_call_update', toolCallId=evil, status='completed', content=shown(evil) + [{{'type': 'diff', 'path': evil, 'oldText': evil, 'newText': evil + '!'}}])
update('tool_call', toolCallId='fails', title=evil, kind='execute', status='in_progress', rawInput={{'command': evil}})
update('tool_call_update', toolCallId='fails', status='failed', content=shown(evil), rawOutput={{'stderr': evil, 'exit_code': 1}})
allowed(ask('q', title=evil, kind='edit', rawInput={{'file_path': evil, 'content': evil, evil: [evil, {{evil: evil}}]}}))
"""
INJECTED = (
    "document.querySelectorAll('#app img, #app svg[onload], #app script, #app iframe,"
    ' #app form[action], a[href^="javascript:"], a[href^="data:"], [onerror], [onload]\').length'
)
TOP = "document.querySelector('.deciding').getBoundingClientRect().top"
LAST = "document.querySelector('.stream').lastElementChild.getBoundingClientRect().bottom"
NARROW = "document.documentElement.scrollWidth <= innerWidth"

# an agent that says whatever it is told to
script, bridge = script_of("plain"), bridge_of(**ROOM)


def check(page: Page) -> None:
    """Nothing of it became a part of the page, and nothing is wider than a phone."""
    assert page.js(INJECTED) == 0
    assert page.js(NARROW)
    assert "\u202e" not in page.text and "\u2066" not in page.text


def test_a_card_stays_under_the_finger(page: Page, bridge: Bridge, script: Script) -> None:
    """While an agent goes on speaking and working beside the call that waits."""
    script.go.unlink(missing_ok=True)
    phone = bridge.phone().ready()
    session = agents.begin(bridge, phone, agent="plain")
    page.open(f"s/{session}")
    page.find(".composer")
    agents.say(
        phone,
        session,
        "/do n = ask('c', kind='execute', rawInput={'command': 'ls'})\n"
        "while not os.path.exists(JOURNAL + '-go'): time.sleep(0.01)\n"
        "for i in range(30):\n"
        "    say('Meanwhile. ' * 30)\n"
        "    update('tool_call', toolCallId=str(i), kind='read', status='in_progress')\n"
        "    update('tool_call_update', toolCallId=str(i), status='completed')\n"
        "say('Enough. ')\n"
        "allowed(n)",
    )
    page.find(".deciding .primary")
    before = page.js(TOP)
    script.go.touch()
    page.find(".newer")
    phone.until(lambda message: "Enough" in str(message), "what it says last")
    assert abs(page.js(TOP) - before) < 2
    page.tap(".deciding .primary", "Approve")
    page.wait("document.querySelector('.newer').hidden")
    page.wait(f"{LAST} < innerHeight && {LAST} > 0", what="it follows the end again")


def test_what_an_agent_says_is_text_in_every_view(page: Page, bridge: Bridge) -> None:
    """Its words, calls, results, questions and failures, in the list, the chat and the sheet."""
    page.js("void (window.alert = (text) => console.error('alert', text))")
    phone = bridge.phone().ready()
    session = agents.begin(bridge, phone, agent="plain")
    agents.say(phone, session, HOSTILE)
    asked = agents.question(phone, session)
    for screen in ("approvals", "settings", ""):
        page.open(screen)
        page.find("nav.bottom")
        page.wait_text("evil" if screen != "settings" else "Bridge version")
        check(page)
    page.open("approvals")
    open_approval(page, "img src=x")
    check(page)
    page.open("")
    page.tap(".row-link", "evil")
    page.find("li.tool[data-state=pending]")  # the last of all
    page.js("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    page.wait(
        "[...document.querySelectorAll('.tool-body')].every((body) => body.childElementCount)"
    )
    check(page)
    phone.close()  # it may have been silent for too long
    phone.ready().join(session)
    decide(phone, session, asked["tool_call_id"], "rejected")
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    agents.say(phone, session, f"/do sys.stderr.write({EVIL!r}); sys.stderr.flush(); os._exit(1)")
    phone.expect("error", session_id=session)
    page.wait_text("has stopped")
    check(page)
    page.driver.refresh()
    page.wait_text("has stopped")
    page.find(".why", "has stopped")
    check(page)


LONG = """
const [count, done] = arguments;
const { src } = document.querySelector("script[type=module]");
import(src.replace("app.js", "later.js")).then(({ showMarkdown }) => {
  const began = performance.now();
  for (const text of ["+", "**a ", "__a "])
    showMarkdown(document.createElement("div"), text.repeat(count / text.length), () => ({}));
  const runs = Array.from({ length: Math.sqrt(2 * count) }, (_, more) => "`".repeat(1 + more));
  showMarkdown(document.createElement("div"), runs.join(" a "), () => ({}));
  done(performance.now() - began);
});
"""


def test_a_long_text_does_not_freeze_the_page(page: Page) -> None:
    """Twice as long takes about twice the time, and not four times."""
    page.open()
    short, long = (page.driver.execute_async_script(LONG, count) for count in (20_000, 160_000))
    assert long < 24 * short + 5000


LINKED = {
    "[https://bank.example/pay](https://bank.ex/)": "https://bank.example/pay (bank.ex)",
    "[bank.example/evil.example](https://evil.example/)": "bank.example/evil.example (evil.example)",
    "[docs](https://evil.example/)": "docs (evil.example)",
    "[evil.example](https://evil.example/a)": "evil.example",
    "https://bank.example@evil.example/": "https://bank.example@evil.example/ (evil.example)",
    "https://b\u0430nk.example/": "https://b\u0430nk.example/ (xn--bnk-6cd.example)",
    "https://evil.example/a": "https://evil.example/a",
}
LINK = """
const [texts, done] = arguments;
const { src } = document.querySelector("script[type=module]");
import(src.replace("app.js", "later.js")).then(({ showMarkdown }) => {
  const node = document.createElement("div");
  done(texts.map((text) => (showMarkdown(node, text, () => ({})), node.textContent)));
});
"""


def test_a_link_says_where_it_leads(page: Page) -> None:
    """A label that looks like another address does not hide it, nor do letters that look alike."""
    page.open()
    shown = page.driver.execute_async_script(LINK, list(LINKED))
    assert dict(zip(LINKED, shown, strict=True)) == LINKED


ATTACK = Path(__file__).with_name("other_tab.js").read_text()


def test_a_page_in_another_tab(page: Page, bridge: Bridge) -> None:
    """It can open the client, and neither read, frame nor steer it; nothing of it gets through."""
    page.expected += [NETWORK, "evil", "WebSocket", "CORS", "frame", "Refused", "Blocked"]
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    with site() as port:
        page.driver.get(f"http://localhost:{port}/")
        found = page.driver.execute_async_script(ATTACK, page.base + "/app/")
    assert found["closed"], "the client severs the tie to who opened it"
    assert found["socket"] == "refused" and found["read"] in ("TypeError", 401)
    assert found["inFrame"] == "closed" or found["inFrame"] == "SecurityError"
    assert found["document"] in ("SecurityError", "TypeError") or not found["document"]
    page.driver.switch_to.window(first)
    page.show_as(PHONE)
    page.open("")
    page.wait_ready()
    phone = bridge.phone().ready()
    agents.begin(bridge, phone, agent="plain")
    page.find(".row-link")


def test_each_way_to_allow_a_call_is_a_button(page: Page, bridge: Bridge, script: Script) -> None:
    """None is taken for another: the agent is given the one that was tapped (D68)."""
    phone = bridge.phone().ready()
    session = agents.begin(bridge, phone, agent="plain")
    ways = [("pg", "Postgres", "allow_once"), ("lite", "SQLite", "allow_once")]
    ways.append(("no", "Ask later", "reject_once"))
    offered = [{"optionId": id_, "name": name, "kind": kind} for id_, name, kind in ways]
    sent = [{"type": "content", "content": {"type": "text", "text": "It runs ./migrate"}}]
    about = f"kind='other', rawInput={{'a': 1}}, content={sent}"
    asked = f"ask('q', title='Which database?', {about}, options={offered})"
    agents.say(phone, session, f"/do say('It took ' + str(answer({asked})))")
    page.open(f"s/{session}")
    page.tap(".decide", "Decide")
    page.find("dialog .ways button", "Postgres")
    page.find("dialog pre", "It runs ./migrate")
    check(page)
    page.js("document.querySelector('dialog .sheet-body').scrollTop = 1e6")
    page.js("document.querySelector('dialog').scrollTop = 1e6")
    page.tap("dialog .ways button:enabled", "SQLite")
    page.wait_text("Approved")
    page.find(".markdown", "'lite'")
