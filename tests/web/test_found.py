"""Sessions are found again: named, pinned, archived, searched, read from their beginning (D73)."""

import time
from collections.abc import Callable

import pytest

from tests.conformance import agents
from tests.conformance.approvals import pre
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session
from tests.web.browser import DESK, NETWORK, PATIENCE, Page
from tests.web.conftest import MakeBridge, MakePage
from tests.web.test_screens import check

pytestmark = pytest.mark.web

YESTERDAY = """
from datetime import timedelta
from django.db.models import F
from sessions_app.models import LogRow
LogRow.objects.update(created_at=F("created_at") - timedelta(hours=25))
"""
# the phone believes that it comes back after a week
WEEK_LATER = "((now) => (Date.now = () => now() + 7 * 86_400_000))(Date.now)"
TITLES = "[...document.querySelectorAll('.rows .row .title')].map((one) => one.innerText)"
SHOWN = "[...document.querySelectorAll('.stream .prompt')].map((one) => one.innerText)"
SCROLLER = "document.querySelector('.scroller.anchored')"
PICTURE = (
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='200' height='500'></svg>"
)
BIDI = "\u202eevil\u2066 שלום \u200fworld"
MORE = (
    "[...document.querySelectorAll('button.wide')]"
    ".find((one) => one.innerText === 'Show more' && !one.hidden)?.click()"
)
IN_SIGHT = (
    "[...document.querySelectorAll('.between')].map((one) => one.getBoundingClientRect())"
    ".some(({top, bottom}) => bottom > 0 && top < innerHeight)"
)
MANY = 2_000


def prompts(
    bridge: Bridge, session_id: str, numbers: range, word: str = "number", directory: str = ""
) -> None:
    where = {"working_directory": directory} if directory else {}
    bodies = [
        hook("UserPromptSubmit", session_id, {"prompt": f"{word} {number}."} | where)
        for number in numbers
    ]
    for at in range(0, len(bodies), 500):
        assert bridge.post_batch(bodies[at : at + 500]).status == 200


def begin(bridge: Bridge, title: str, directory: str = "/srv/one") -> str:
    """A session in a terminal that has said something and is idle."""
    session_id = new_session()
    bridge.accept(
        hook("SessionStart", session_id, {"working_directory": directory}),
        hook("UserPromptSubmit", session_id, {"prompt": title}),
        hook("Stop", session_id, {"reason": "task_completed", "message": f"{title} is done."}),
    )
    return session_id


def look_at(page: Page, title: str) -> None:
    """Open it and come back, so that it is no news any more."""
    page.tap(".row-link", title)
    page.find(".heading h1", title)
    page.tap(".back")
    page.find(".bar h1", "Sessions")


def edit(page: Page, title: str, choice: str) -> None:
    page.tap(".row-link", title)
    page.tap("[aria-label='Rename, pin, mute, archive or end']")
    page.tap("dialog button", choice)
    page.wait("!document.querySelector('dialog')", what="the sheet is closed")
    page.tap(".back")


def test_names_pins_and_the_archive(make_bridge: MakeBridge, make_page: MakePage, axe: str) -> None:
    """What is archived stands among the others while it waits or has news."""
    bridge = make_bridge()
    one, other = begin(bridge, "First thing"), begin(bridge, "Second thing")
    page = make_page(bridge).pair()
    for title in ("First thing", "Second thing"):
        look_at(page, title)
    page.tap(".row-link", "First thing")
    page.tap("[aria-label='Rename, pin, mute, archive or end']")
    page.find("#title")
    page.js("void (document.querySelector('#title').value = '')")
    check(page, axe, "This session")
    page.type("#title", BIDI)
    page.tap("dialog .primary", "Rename")
    page.find(".heading h1", "evil שלום world")
    page.tap(".back")
    edit(page, "Second thing", "Pin")
    page.find("h2", "Pinned")
    page.wait_equal(TITLES, ["Second thing", "evil שלום world"])
    edit(page, "Second thing", "Archive")
    page.tap(".fold", "Archived (1)")
    page.wait_equal(TITLES, ["evil שלום world", "Second thing"])
    check(page, axe, "Archived (1)")

    page.driver.refresh()
    page.wait_ready()
    page.wait_equal(TITLES, ["evil שלום world"])
    bridge.accept(
        hook("UserPromptSubmit", other, {"prompt": "once more"}),
        pre(other, {"command": "make"}, approval=True, tool_use_id="t1"),
    )
    page.wait_equal(TITLES, ["Second thing", "evil שלום world"])
    page.wait_gone("Archived (")
    bridge.accept(hook("Stop", other, {"reason": "task_completed"}))
    page.find(".row[data-state=finished]", "Second thing")
    look_at(page, "Second thing")
    page.find(".fold", "Archived (1)")
    edit(page, "evil", "Archive")
    page.tap(".fold", "Archived (2)")
    edit(page, "evil", "Take out of the archive")
    page.wait_equal(TITLES, ["evil שלום world"])
    assert bridge.session(one)["archived"] is False


def test_directories_are_folded_on_this_phone(
    make_bridge: MakeBridge, make_page: MakePage, axe: str
) -> None:
    bridge = make_bridge()
    page = make_page(bridge).pair()
    titles = ["In one", "Alone", "In two", "Also in two"]
    begin(bridge, "Also in two", "/srv/two")
    other = begin(bridge, "In two", "/srv/two")
    page.find(".row", "In two")
    assert not page.js("document.querySelector('.groups .fold').checkVisibility()")
    begin(bridge, "Alone", "/srv/three")
    begin(bridge, "In one", "/srv/one")
    for title in titles:
        look_at(page, title)
    page.find(".fold", "Others")
    page.wait_equal(TITLES, titles)
    page.tap(".fold", "srv/two")
    page.wait_equal(TITLES, ["In one", "Alone"])
    check(page, axe, "srv/two")
    page.driver.refresh()
    page.wait_ready()
    page.wait_equal(TITLES, ["In one", "Alone"])
    # what needs somebody is never folded away
    bridge.accept(hook("UserPromptSubmit", other, {"prompt": "on"}))
    page.find(".fold", "1 working")
    page.wait_equal(f"{TITLES}.slice(-2)", ["In one", "Alone"])
    assert "In two" not in page.js(TITLES)
    bridge.accept(hook("Stop", other, {"reason": "task_completed"}))
    page.wait_equal(TITLES, ["In two", "In one", "Alone"])


def test_the_list_stands_beside_what_waits(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """On a wide screen; the cards do so once."""
    bridge = make_bridge()
    page = make_page(bridge).pair()
    begin(bridge, "In one", "/srv/one")
    with bridge.phones() as [phone]:
        agents.tool(phone, agents.begin(bridge, phone), command="ls")
    page.show_as(DESK)
    page.open("approvals").find(".detail .card", "ls")
    page.find(".left .row-link", "In one")
    cards = "[...document.querySelectorAll('.card')].filter((one) => one.checkVisibility()).length"
    page.wait_equal(cards, 1)


def test_what_is_finished_since_one_looked(
    make_bridge: MakeBridge, make_page: MakePage, axe: str
) -> None:
    bridge = make_bridge()
    page = make_page(bridge).pair()
    begin(bridge, "First thing")
    begin(bridge, "Second thing")
    failed = begin(bridge, "Third thing")
    bridge.accept(hook("Stop", failed, {"reason": "error", "error": "No more."}))
    page.find(".done", "2 done, 1 failed since ")
    check(page, axe, "2 done, 1 failed")
    for title, rest in (("Third", "2 done since "), ("First", "1 done since "), ("Second", "")):
        page.tap(".done")
        page.find(".heading h1", f"{title} thing")
        page.tap(".back")
        if rest:
            page.find(".done", rest)
    page.wait("document.querySelector('.done').hidden", what="all was looked at")


def search(page: Page, text: str) -> None:
    page.find("#search")
    page.js("void (document.querySelector('#search').value = '')")
    page.type("#search", text)


def test_search(make_bridge: MakeBridge, make_page: MakePage, axe: str) -> None:
    """A tap on a hit opens its session at that row, also far from its end and not kept here."""
    bridge = make_bridge()
    session_id = new_session()
    prompts(bridge, session_id, range(1), "Ein Heuhaufen, Zeile")
    prompts(bridge, session_id, range(1, 4), 'the <b>Needle</b> 針を探す 100%_"sure"')
    prompts(bridge, session_id, range(4, 700))
    bridge.manage("shell", "--command", YESTERDAY)
    bridge.manage("prune")
    prompts(bridge, session_id, range(700, 703))
    for number in range(25):
        begin(bridge, f"Cobalt {number}")
    page = make_page(bridge).pair()
    page.tap(".find", "Search")
    page.wait_text("In titles and directories")
    check(page, axe)

    search(page, "cobalt")
    page.wait_text("20 results, and more")
    check(page, axe, "20 results")
    # a title, a prompt and an answer of each, of which several have the same time
    page.wait(f"({MORE}, document.body.innerText.includes('75 results'))", what="all of them")
    texts = page.js("[...document.querySelectorAll('.hits .row')].map((one) => one.innerText)")
    assert len(set(texts)) == len(texts) == 75

    for odd, count in (
        ("%", "3 results"),
        ('"sure"', "3 results"),
        ("針を", "3 results"),
        ("' OR 1=1 --", "Nothing was found."),
        ("\\", "Nothing was found."),
        ("n", "20 results, and more"),
    ):
        search(page, odd)
        page.wait_text(count)
    assert page.js("document.querySelectorAll('.hits b').length") == 0
    page.js(
        "((box) => { box.value = 'x'.repeat(10_000); box.dispatchEvent(new Event('input')) })"
        "(document.querySelector('#search'))"
    )
    page.wait_text("Nothing was found.")

    search(page, "NEEDLE zeile")
    page.wait_text("Nothing was found.")
    search(page, "heuhaufen")
    page.find(".hits mark", "Heuhaufen")
    page.tap(".hits .row-link", "Asked")
    page.find(".item.found", "Ein Heuhaufen, Zeile 0.")
    box = "document.querySelector('.found').getBoundingClientRect()"
    assert page.js(f"{box}.top > 0 && {box}.bottom < innerHeight")
    check(page, axe, "Zeile 0.")
    page.tap(".tabs a", "Changes")
    page.find(".tabs [aria-current=page]", "Changes")
    page.tap("a.back")  # to where one came from
    page.find(".hits .row-link", "Zeile 0.")
    assert page.js("document.querySelector('#search').value") == "heuhaufen"


def test_search_without_a_network(page: Page, bridge: Bridge, axe: str) -> None:
    """It says so, and finds what is kept here."""
    page.expected.append(NETWORK)
    session_id = begin(bridge, "Vermilion 朱色の thing")
    look_at(page, "Vermilion")
    page.tap(".find", "Search")
    page.find("#search")
    page.offline()
    page.wait_text("Offline")
    search(page, "朱色")
    page.wait_text("Offline: only what is kept on this phone was searched. 3 results")
    check(page, axe, "3 results")
    page.tap(".hits .row-link", "Answered")
    page.find(".item.found", "is done.")
    assert session_id in page.screen
    page.driver.back()
    page.offline(False)
    page.wait_ready()
    page.wait_gone("only what is kept")
    page.wait_text("3 results")


def place_of(page: Page, text: str) -> float:
    return float(
        page.js(
            "[...document.querySelectorAll('.stream .item')]"
            ".find((one) => one.innerText.includes(arguments[0])).getBoundingClientRect().top",
            text,
        )
    )


def test_older_messages(make_bridge: MakeBridge, make_page: MakePage, axe: str) -> None:
    """They come in pages while one scrolls up, and what is read stays where it is."""
    bridge = make_bridge()
    session_id = new_session()
    prompts(bridge, session_id, range(500))
    bridge.manage("shell", "--command", YESTERDAY)
    bridge.manage("prune")
    prompts(bridge, session_id, range(500, 530))
    page = make_page(bridge).pair()
    page.tap(".row-link", "number")
    page.find(".prompt", "number 529.")
    count = (
        "new Promise((done) => { const opened = indexedDB.open('bridge');"
        " opened.onsuccess = () => { opened.result.transaction('rows').objectStore('rows')"
        ".count().onsuccess = ({target}) => done(target.result); } })"
    )
    assert page.js(count) < 500, "of a day ago not all comes"
    up = f"((list) => {{ list.scrollTop = 0; return {SHOWN}[0]?.includes(arguments[0]) }})"
    page.wait(f"{up}({SCROLLER})", "number 0.", what="the first message")
    page.wait_text("The beginning")
    assert not page.js("document.querySelector('.older button').checkVisibility()")
    check(page, axe, "The beginning")

    # What grows above what is read moves nothing: a picture that comes late.
    page.js(f"void ({SCROLLER}.scrollTop = 1500)")
    read = next(one for one in page.js(SHOWN) if place_of(page, one.split("\n")[0]) > 100)
    read = read.split("\n")[0]
    before = place_of(page, read)
    grow = "document.querySelector('.stream .item').style.paddingTop = '700px'"
    page.js(f"void ({grow})")
    page.wait_equal(f"Math.round({SCROLLER}.scrollTop)", 2200)
    assert abs(place_of(page, read) - before) < 2


def test_what_is_missing_between(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """After a week what is new comes at once; the rest when somebody scrolls there."""
    bridge = make_bridge()
    session_id = new_session()
    prompts(bridge, session_id, range(3), "before")
    page = make_page(bridge).pair()
    page.tap(".row-link", "before")
    page.find(".prompt", "before 2.")
    page.driver.get(f"{page.base}/docs")
    prompts(bridge, session_id, range(450), "meanwhile")
    bridge.manage("shell", "--command", YESTERDAY)
    bridge.manage("prune")
    prompts(bridge, session_id, range(40), "since")
    page.before_load(WEEK_LATER)
    page.open(f"s/{session_id}")
    page.find(".prompt", "since 39.")
    assert "meanwhile" not in page.text
    up = f"((list) => {{ list.scrollTop = 0; return {SHOWN}[0]?.includes(arguments[0]) }})"
    page.wait(f"{up}({SCROLLER})", "before 0.", what="the first message")
    seen: list[str] = []

    def look() -> bool:
        if page.js(IN_SIGHT):
            return False  # it is loaded
        for one in page.js(SHOWN):
            if (line := one.split("\n")[0]) not in seen:
                seen.append(line)
        page.js(f"void ({SCROLLER}.scrollTop += 400)")
        return "since 39." in seen

    until(page, look)
    wanted = [f"before {n}." for n in range(3)] + [f"meanwhile {n}." for n in range(450)]
    assert seen == wanted + [f"since {n}." for n in range(40)]


def until(page: Page, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, page.text
        page.js("new Promise(requestAnimationFrame)")


def test_older_messages_that_do_not_come(make_bridge: MakeBridge, make_page: MakePage) -> None:
    bridge = make_bridge()
    session_id = new_session()
    prompts(bridge, session_id, range(300))
    bridge.manage("shell", "--command", YESTERDAY)
    bridge.manage("prune")
    prompts(bridge, session_id, range(300, 302))
    page = make_page(bridge)
    page.expected.append(NETWORK)
    # requests for older messages are lost, until the test lets them through
    page.before_load(
        "WebSocket.prototype.send = ((send) => function (text) {"
        " if (window.through || !text.includes('before_id')) return send.call(this, text);"
        " const {id} = JSON.parse(text); const answer = {type: 'error', id,"
        " timestamp: new Date().toISOString(), payload: {code: 'INTERNAL_ERROR',"
        " message: 'It did not work.', recoverable: true}};"
        " this.onmessage({data: JSON.stringify(answer)}); })(WebSocket.prototype.send)"
    )
    page.pair()
    page.tap(".row-link", "number")
    page.find(".prompt", "number 301.")
    page.wait(f"({SCROLLER}.scrollTop = 0, document.querySelector('.older').checkVisibility())")
    page.find(".older", "It did not work.")
    page.js("void (window.through = true)")
    page.tap(".older button", "Try again")
    page.wait_gone("It did not work.")
    up = f"((list) => {{ list.scrollTop = 0; return {SHOWN}[0]?.includes(arguments[0]) }})"
    page.wait(f"{up}({SCROLLER})", "number 0.", what="the first message")
    page.offline()


def test_two_devices_name_it_at_once(make_bridge: MakeBridge, make_page: MakePage) -> None:
    """Both show the title that stands."""
    bridge = make_bridge()
    session_id = begin(bridge, "Before")
    page = make_page(bridge).pair()
    page.tap(".row-link", "Before")
    with bridge.phones() as (phone,):
        page.tap("[aria-label='Rename, pin, mute, archive or end']")
        page.find("#title")
        page.js("void (document.querySelector('#title').value = 'Mine')")
        phone.send("session_edit", {"session_id": session_id, "title": "Theirs"})
        page.tap("dialog .primary", "Rename")
        page.wait("!document.querySelector('dialog')", what="the sheet is closed")
        phone.collect(lambda: bool(phone.updates), "its answer")
        title = bridge.session(session_id)["title"]
        page.find(".heading h1", title)


def test_two_thousand_sessions(make_bridge: MakeBridge, make_page: MakePage) -> None:
    bridge = make_bridge()
    bodies = [
        hook("UserPromptSubmit", new_session(), {"prompt": f"Session {number}."})
        | {"working_directory": f"/srv/d{number % 7}"}
        for number in range(MANY)
    ]
    ends = [hook("Stop", one["session_id"], {"reason": "task_completed"}) for one in bodies[:1000]]
    for at in range(0, MANY, 500):
        assert bridge.post_batch(bodies[at : at + 500]).status == 200
    for at in range(0, len(ends), 500):
        assert bridge.post_batch(ends[at : at + 500]).status == 200
    page = make_page(bridge).pair()
    page.find(".row", "Session")
    assert page.js("document.getElementsByTagName('*').length") < 3000
