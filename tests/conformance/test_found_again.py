"""Sessions are found again: searched, named, pinned, archived (D73)."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.conformance import agents
from tests.conformance.admin import Admin, text_of
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge, query
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, prompt
from tests.servers import wait_until

pytestmark = pytest.mark.spec("ws.session_search ws.session_search_response ws.session_edit")
on_both = pytest.mark.usefixtures("database")


def search(phone: Phone, query: str, **more: Any) -> list[dict[str, Any]]:
    answer = phone.request("session_search", {"query": query} | more)
    assert answer["type"] == "session_search_response", answer
    return list(answer["payload"]["hits"])


def until_found(phone: Phone, query: str, count: int = 1) -> list[dict[str, Any]]:
    """The index follows the log."""
    wait_until(lambda: len(search(phone, query)) >= count)
    return search(phone, query)


def edit(phone: Phone, session_id: str, **changes: Any) -> dict[str, Any]:
    seen = len(phone.updates)
    phone.send("session_edit", {"session_id": session_id} | changes)

    def told() -> list[dict[str, Any]]:
        updates = [one for one in phone.updates[seen:] if one["session_id"] == session_id]
        kept = {name: value for name, value in changes.items() if name != "title"}
        return [one for one in updates if kept.items() <= one.items()]

    phone.collect(lambda: bool(told()), "the session as it is now")
    return told()[-1]


@on_both
def test_what_was_said_is_found(bridge: Bridge, phone: Phone) -> None:
    """In prompts and last answers, in whatever case; each hit names its row."""
    sid = new_session()
    bridge.watch(phone, sid)
    deep: list[Any] = []
    for _ in range(97):
        deep = [deep]
    said = [
        hook("UserPromptSubmit", sid, {"prompt": "deep heliotrope", "more": deep}),
        hook("UserPromptSubmit", sid, {"prompt": "Warum ist der Straßentest FLAKY 100%_sure?"}),
        hook("Stop", sid, {"reason": "task_completed", "message": "It waits for 日本語テキスト."}),
        hook("UserPromptSubmit", sid, {"prompt": "x", "context": {"synthetic": True}}),
        hook("UserPromptSubmit", sid, {"prompt": "half \ud83d, none \0 heliotrope"}),
        hook("UserPromptSubmit", sid, {"prompt": ["heliotrope"], "context": "text"}),
    ]
    bridge.accept(*said)
    (hit,) = until_found(phone, "flaky STRASSENTEST")
    assert (hit["session_id"], hit["where"]) == (sid, "prompt")
    assert "Straßentest FLAKY" in hit["excerpt"]
    (row,) = [one for one in phone.events(sid) if "Straßen" in str(one)]
    assert hit["message_id"] == row["id"]
    for words in ("none heliotrope", "deep heliotrope"):
        (hit,) = until_found(phone, words)
        assert "heliotrope" in hit["excerpt"]
    (hit,) = until_found(phone, "本語テ")
    assert hit["where"] == "answer"
    assert "prompt" in [one["where"] for one in search(phone, "100%_sure")]
    for nothing in ("1000_sure", "'; DROP", "100%sure", "\\", " ", "日語", '"'):
        assert sid not in [one["session_id"] for one in search(phone, nothing)], nothing


def test_pages_of_hits(bridge: Bridge, phone: Phone) -> None:
    """Newest first; `before` goes on."""
    sid, word = new_session(), "w" + new_session().replace("-", "")
    bridge.accept(*[prompt(sid, number) for number in range(3)])
    bridge.accept(*[hook("UserPromptSubmit", sid, {"prompt": f"{word} {n}"}) for n in range(5)])
    hits = until_found(phone, word, 5)
    assert [one["excerpt"] for one in hits] == [f"{word} {n}" for n in reversed(range(5))]
    first = phone.request("session_search", {"query": word, "limit": 2})["payload"]
    assert first["more"] is True and len(first["hits"]) == 2
    rest = search(phone, word, before=first["hits"][-1]["at"])
    assert [*first["hits"], *rest] == hits


@on_both
def test_a_page_ends_with_a_millisecond(bridge: Bridge, phone: Phone) -> None:
    """The events of a batch have one time: the next page would not find them."""
    sid, word = new_session(), "w" + new_session().replace("-", "")
    for turn in range(3):
        several = [hook("UserPromptSubmit", sid, {"prompt": f"{word} {turn}"}) for _ in range(7)]
        assert bridge.post_batch(several).status < 300
    hits = until_found(phone, word, 22)  # one is the title
    found: list[Any] = []
    more = True
    while more:
        asked = {"query": word, "limit": 2} | ({"before": found[-1]["at"]} if found else {})
        page = phone.request("session_search", asked)["payload"]
        found, more = found + page["hits"], page["more"]
    assert sorted(str(one) for one in found) == sorted(map(str, hits))


def test_what_a_search_may_ask(phone: Phone) -> None:
    for wrong in ({"query": "x" * 1001}, {"query": "x", "limit": 51}, {}):
        answer = phone.request("session_search", wrong)
        assert assert_refused(answer, "PROTO_INVALID_MESSAGE", True)["violations"]


def test_an_answer_that_streamed(bridge: Bridge, phone: Phone) -> None:
    """Its pieces are one text, found under the row that ends it."""
    sid = agents.begin(bridge, phone, agent="demo")
    agents.ask(phone, sid, "the quick onyx goblin")
    hits = until_found(phone, "onyx goblin", 3)
    assert {one["where"] for one in hits} == {"prompt", "answer", "title"}
    (answer,) = [one for one in hits if one["where"] == "answer"]
    ends = [one["id"] for one in phone.messages if one["type"] == "stream_end"]
    assert answer["message_id"] in ends
    agents.end(phone, sid)


@pytest.fixture
def other(bridge: Bridge) -> Iterator[Phone]:
    with bridge.phones() as (phone,):
        yield phone


@on_both
def test_a_person_names_it(bridge: Bridge, phone: Phone, other: Phone) -> None:
    """For every device, and over what the agent or a prompt would call it; it is found by it."""
    sid = new_session()
    bridge.accept(hook("SessionStart", sid, {"working_directory": "/srv/quartz"}))
    assert edit(phone, sid, title="  Quince\u202e  jam ", pinned=True)["title"].startswith("Quince")
    other.collect(lambda: "Quince" in str(other.updates), "its new title")
    bridge.accept(prompt(sid, 1))
    listed = bridge.get("/api/v1/sessions?query=quince", phone.token).json()["sessions"]
    assert [(one["id"], one["pinned"]) for one in listed] == [(sid, True)]
    assert search(phone, "quartz")[0]["where"] == "directory"
    wrong = phone.request("session_edit", {"session_id": new_session(), "title": "x"})
    assert wrong["payload"]["code"] == "SESSION_NOT_FOUND"
    for title in ("", "x" * 500):
        wrong = phone.request("session_edit", {"session_id": sid, "title": title})
        assert wrong["payload"]["code"] == "PROTO_INVALID_MESSAGE"


def test_a_session_at_rest_is_named(bridge: Bridge, phone: Phone, other: Phone) -> None:
    """Every device is told; it does not become the newest by it."""
    sid, then = new_session(), "2020-01-01 00:00:00"
    bridge.accept(hook("SessionStart", sid))
    named = f"SET last_activity_at = '{then}' WHERE session_id = '{sid}'"
    query(bridge.data / "bridge.sqlite3", f"UPDATE sessions_app_session {named}")
    edit(phone, sid, title="At rest")
    other.collect(lambda: "At rest" in str(other.updates), "its new title")
    assert bridge.session(sid)["last_activity_at"].startswith("2020-01-01")


def test_two_devices_name_it_at_once(bridge: Bridge, phone: Phone, other: Phone) -> None:
    """Each is told last what stands."""
    sid = new_session()
    bridge.accept(prompt(sid, 1))
    for number in range(5):
        for one, who in ((phone, "a"), (other, "b")):
            one.send("session_edit", {"session_id": sid, "title": f"{who} {number}"})

    def is_told(one: Phone) -> bool:
        told = [update["title"] for update in one.updates if update["session_id"] == sid]
        return told[-1:] == [bridge.session(sid)["title"]]

    phone.collect(lambda: is_told(phone), "what stands")
    other.collect(lambda: is_told(other), "what stands")


def test_the_admin_site_finds_the_same(bridge: Bridge, phone: Phone) -> None:
    """By what was said too; the archived ones are a filter."""
    sid, word = new_session(), "w" + new_session().replace("-", "")
    bridge.accept(
        hook("UserPromptSubmit", sid, {"prompt": "first line"}),
        hook("Stop", sid, {"reason": "task_completed", "message": f"It is the {word} 50%."}),
    )
    until_found(phone, word)
    admin = Admin(bridge, "archivist")
    sessions = "/admin/sessions_app/session/"
    for looked in (word, f"50% {word}", sid[-12:]):
        assert "first line" in text_of(admin.page(f"{sessions}?{urlencode({'q': looked})}"))
    for looked in (f"{word}%%", "x" * 2000, '"', "'"):
        assert "first line" not in text_of(admin.page(f"{sessions}?{urlencode({'q': looked})}"))
    edit(phone, sid, archived=True)
    for archived, there in ((1, True), (0, False)):
        page = admin.page(f"{sessions}?q={word}&archived__exact={archived}")
        assert ("first line" in text_of(page)) is there


def test_what_is_archived_is_not_on_the_home_screen(bridge: Bridge, phone: Phone) -> None:
    """Unless it does something; it is listed to who asks."""
    sid = new_session()
    bridge.accept(hook("Stop", sid, {"reason": "task_completed"}))
    assert edit(phone, sid, archived=True)["archived"] is True

    def at_home() -> list[str]:
        phone.close()
        acked = phone.connect().auth()["payload"]
        phone.health_check()
        return [one["session_id"] for one in acked["active_sessions"]]

    assert sid not in at_home()
    path = "/api/v1/sessions?archived="
    assert sid in str(bridge.get(f"{path}true", phone.token).json())
    assert sid not in str(bridge.get(f"{path}false", phone.token).json())
    bridge.accept(prompt(sid, 1))
    assert sid in at_home()


def test_what_a_list_may_ask(bridge: Bridge, phone: Phone) -> None:
    def listed(query: str) -> Any:
        return bridge.get(f"/api/v1/sessions?{query}", phone.token)

    bridge.accept(prompt(new_session(), 1), prompt(new_session(), 2))
    first = listed("limit=1").json()
    assert len(first["sessions"]) == 1 and first["total"] >= 2
    at = first["sessions"][0]["last_activity_at"]
    assert first["sessions"][0]["id"] not in str(listed(f"before={at}").json())
    for wrong in ("limit=0", "limit=x", "archived=perhaps", "before=soon"):
        assert listed(wrong).status == 400, wrong
