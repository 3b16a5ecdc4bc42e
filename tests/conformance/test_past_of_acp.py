"""Sessions that an ACP agent lists itself: found, and continued (D67)."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agents import ask, end, start, words
from tests.conformance.desk import give_back, refused, take
from tests.conformance.keeper import Keeper, Session, bridge_of_keeper, keeper_of_module, kept
from tests.conformance.phone import Message, Phone
from tests.conformance.terminal import until
from tests.faults.quick import QuickBridge
from tests.servers import wait_until
from tests.short import short

pytestmark = pytest.mark.spec("ws.history_list ws.history_list_response")

SEEN, SHOWN = "does not see when a terminal opens it", "may not show what was said here"
LISTED_ANEW = short("ACP_LIST_KEPT_SECONDS", "ACP_LIST_AGAIN_SECONDS")
keeper, bridge = keeper_of_module(), bridge_of_keeper(**LISTED_ANEW)


@pytest.fixture
def directory(bridge: QuickBridge, request: pytest.FixtureRequest) -> Path:
    made: Path = (bridge.root / request.node.name).resolve()
    made.mkdir()
    return made


def asked(phone: Phone, keeper: Keeper, **about: Any) -> Message:
    about = {name: str(one) if isinstance(one, Path) else one for name, one in about.items()}
    return phone.answer_to(phone.send("history_list", {"agent": keeper.name, **about}), timeout=60)


def listed(phone: Phone, keeper: Keeper, **about: Any) -> list[Session]:
    answer = asked(phone, keeper, **about)
    assert answer["type"] == "history_list_response", answer
    return list(answer["payload"]["sessions"])


def begin(phone: Phone, keeper: Keeper, own: str) -> Message:
    return take(phone, own, None, agent=keeper.name)


def test_listed_page_by_page(keeper: Keeper, phone: Phone, directory: Path) -> None:
    """Newest first whatever the order of the agent's pages, searched, with its note."""
    phone.ready()
    below = directory / "below"
    below.mkdir()
    sessions = [
        kept(directory, word, age) for word, age in (("forty", 40), ("ten", 10), ("thirty", 30))
    ]
    keeper.keep(*sessions, kept(below, "twenty", 20), kept(directory, None, updatedAt=7), page=2)
    found = listed(phone, keeper, directory=directory)
    titles = [one["title"] for one in found]
    assert titles[:-1] == ["ten", "twenty", "thirty", "forty"]
    assert titles[-1] == found[-1]["session_id"], "it has no title"
    about = {"agent": keeper.name, "working_directory": str(directory), "live": False}
    assert found[0].items() >= (about | {"session_id": sessions[1]["sessionId"]}).items()
    assert keeper.heard("list")[-1]["cwd"] is None, "it lists those of all directories at once"
    note = asked(phone, keeper)["payload"]["note"]
    assert SEEN in note and SHOWN in note
    assert [one["title"] for one in listed(phone, keeper, query="HIRT")] == ["thirty"]
    page = asked(phone, keeper, directory=directory, limit=2)["payload"]
    assert page["more"] and len(page["sessions"]) == 2
    before = page["sessions"][-1]["last_activity_at"]
    rest = listed(phone, keeper, directory=directory, before=before)
    assert [one["title"] for one in rest] == titles[2:]


def test_what_is_not_listed(keeper: Keeper, phone: Phone, directory: Path, tmp_path: Path) -> None:
    """Outside the roots, gone, through a link that leads out, ids that are none; nor begun."""
    phone.ready()
    (directory / "link").symlink_to(tmp_path)
    hidden = [kept(where) for where in (tmp_path, directory / "gone", directory / "link", "here")]
    odd = [kept(directory, sessionId=own) for own in ("a/b/c/d/e/f", "../../etc/passwd", "short")]
    odd += [kept(directory, sessionId=7), kept(directory, cwd=None), "x", None]  # type: ignore[list-item]
    good = kept(directory)
    keeper.keep(*hidden, *odd, good)
    assert [one["session_id"] for one in listed(phone, keeper)] == [good["sessionId"]]
    assert listed(phone, keeper, directory=tmp_path) == []
    for own in (*(one["sessionId"] for one in hidden), "a/b/c/d/e/f", f"ses_{uuid.uuid4().hex}"):
        error = refused(begin(phone, keeper, own), "SESS_NOT_FOUND")
        assert error["message"] == "No session has this id."
    assert not keeper.heard("load")


def test_what_continues_it_has_an_id_in_one_word(
    bridge: QuickBridge, keeper: Keeper, phone: Phone
) -> None:
    """A person types it into a shell, and the agent has chosen the id."""
    phone.ready()
    named = Path(f"{keeper.journal}-id")
    named.write_text("x; touch y")
    try:
        ready = start(phone, bridge.root, agent=keeper.name)
    finally:
        named.unlink()
    assert ready["payload"]["resume_command"] == "keeper -s 'x; touch y'"
    end(phone, ready["payload"]["session_id"])


def test_one_goes_on_with_its_history(keeper: Keeper, phone: Phone, directory: Path) -> None:
    """In its own directory; given back and continued again, it is the same one."""
    phone.ready()
    session = kept(directory, "Fix the parser")
    own = session["sessionId"]
    keeper.say(own, "What is wrong?")
    keeper.keep(session)
    ready = begin(phone, keeper, own)
    assert ready["type"] == "session_ready", ready
    about = {"session_id": own, "working_directory": str(directory), "asks": True}
    about |= {"resume_command": f"keeper -s {own}"}
    assert ready["payload"].items() >= about.items()
    assert keeper.heard("load")[-1]["session"] == own
    view = phone.expect("session_started", session_id=own)["payload"]["session"]
    assert (view["title"], view["kind"]) == ("Fix the parser", "bridge")
    before = phone.expect("replay_buffer", session_id=own, source="agent")["payload"]["messages"]
    assert before[0]["payload"]["payload"]["prompt"] == "What is wrong?"
    assert words(ask(phone, own, "And now?")).endswith("And now?")
    [found] = listed(phone, keeper, directory=directory)
    assert not found["live"], "the program that runs it is the bridge's own"
    give_back(phone, own)
    view = until(phone, own, kind="observed", session_status="paused")
    assert view["continue"]["how"] == "take_over" and SHOWN in view["continue"]["reason"]
    with keeper.sit_down() as at_the_desk:
        refused(take(phone, own, agent=keeper.name), "SESS_AT_THE_DESK")
        at_the_desk.kill()
    assert take(phone, own, agent=keeper.name)["type"] == "session_ready"
    assert words(ask(phone, own, "And then?")).endswith("And then?")
    end(phone, own)


def test_none_goes_on_beside_a_program_at_the_desk(
    keeper: Keeper, phone: Phone, directory: Path
) -> None:
    """In whatever directory that is: nothing locks, and what it shows would be stale."""
    phone.ready()
    session = kept(directory)
    keeper.keep(session)
    loaded = len(keeper.heard("load"))
    with keeper.sit_down() as at_the_desk:
        [found] = listed(phone, keeper, directory=directory)
        assert found["live"]
        error = refused(begin(phone, keeper, session["sessionId"]), "SESS_AT_THE_DESK")
        assert "end it there first" in error["message"]
        assert len(keeper.heard("load")) == loaded
        at_the_desk.kill()
    assert begin(phone, keeper, session["sessionId"])["type"] == "session_ready"
    end(phone, session["sessionId"])


def test_what_rests_is_resumed_beside_it_if_it_was_begun_here(
    keeper: Keeper, phone: Phone, directory: Path
) -> None:
    """And not if it came from the agent's store: a terminal may have it open again."""
    phone.ready()
    session = kept(directory)
    keeper.keep(session)
    store = session["sessionId"]
    assert begin(phone, keeper, store)["type"] == "session_ready"
    ready = phone.request("session_start", _new(keeper, directory))
    here = ready["payload"]["session_id"]
    for sid in (store, here):
        ask(phone, sid, "/exit 0")
        until(phone, sid, session_status="error")
    with keeper.sit_down() as at_the_desk:
        refused(begin(phone, keeper, store), "SESS_AT_THE_DESK")
        assert begin(phone, keeper, here)["type"] == "session_ready"
        at_the_desk.kill()
    assert begin(phone, keeper, store)["type"] == "session_ready"
    for sid in (store, here):
        end(phone, sid)


def _new(keeper: Keeper, directory: Path) -> dict[str, Any]:
    about = {"agent": keeper.name, "session_id": None, "resume": False}
    return about | {"working_directory": str(directory)}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"answer": []}, "does not answer as"),
        ({"answer": {"sessions": "many"}}, "does not answer as"),
        ({"refusal": [-32603, "Internal error", "the disk is full"]}, "the disk is full"),
        ({"refusal": [-32000, "Authentication required", ""]}, "wants a login"),
    ],
)
def test_a_wrong_answer(keeper: Keeper, phone: Phone, how: dict[str, Any], words: str) -> None:
    phone.ready()
    keeper.keep(**how)
    error = refused(asked(phone, keeper), "AGENT_UNAVAILABLE")
    assert words in error["message"] and keeper.name in error["message"]


def test_a_hundred_thousand(keeper: Keeper, phone: Phone, directory: Path) -> None:
    """Ten thousand of them are taken, whether by pages or at once."""
    phone.ready()
    sessions = [kept(directory, f"number {age}", age) for age in range(100_000)]
    for page in (1000, 100_000):
        keeper.keep(*sessions, page=page)
        asked_before = len(keeper.heard("list"))
        first = asked(phone, keeper, directory=directory, limit=20)["payload"]
        assert first["more"]
        assert [one["title"] for one in first["sessions"]] == [f"number {n}" for n in range(20)]
        assert len(keeper.heard("list")) - asked_before == max(1, 10_000 // page)


def test_pages_without_an_end(keeper: Keeper, phone: Phone) -> None:
    phone.ready()
    keeper.keep(answer={"sessions": [], "nextCursor": "again"})
    assert listed(phone, keeper) == []


def test_a_slow_agent_is_ended(keeper: Keeper, tmp_path: Path) -> None:
    settings = short("ACP_LIST_SECONDS")
    with keeper.bridge(tmp_path, **settings) as bridge, bridge.phones() as (phone,):
        phone.ready()
        keeper.keep(silent=True)
        error = refused(asked(phone, keeper), "AGENT_UNAVAILABLE")
        assert "within 3 seconds" in error["message"]
        wait_until(lambda: not keeper.processes())


def test_kept_for_a_moment(keeper: Keeper, tmp_path: Path) -> None:
    """The list is not asked for again by each key that is typed; an unknown id waits for it."""
    with keeper.bridge(tmp_path) as bridge, bridge.phones() as (phone,):
        phone.ready()
        session = kept(bridge.root.resolve())
        keeper.keep(session)
        before = len(keeper.heard("list"))
        for query in ("f", "fi", "fix"):
            assert len(listed(phone, keeper, query=query)) == 1
        assert len(keeper.heard("list")) == before + 1
        later = kept(bridge.root.resolve())
        keeper.keep(session, later)
        assert begin(phone, keeper, later["sessionId"])["type"] == "session_ready"
        end(phone, later["sessionId"])
        assert len(keeper.heard("list")) == before + 2


def test_an_agent_that_lists_one_directory_at_a_time(keeper: Keeper, tmp_path: Path) -> None:
    """It is asked about the one that is asked for, else the roots and where agents have worked."""
    row = {"directory_at_a_time": True}
    with (
        keeper.bridge(tmp_path, row, **LISTED_ANEW) as bridge,
        bridge.phones() as (phone,),
    ):
        phone.ready()
        root = bridge.root.resolve()
        (root / "a").mkdir()
        keeper.keep()
        ready = phone.request("session_start", _new(keeper, root / "a"))
        before = len(keeper.heard("list"))
        listed(phone, keeper)
        listed(phone, keeper, directory=root / "a")
        about = [one["cwd"] for one in keeper.heard("list")[before:]]
        assert about == [str(root), str(root / "a"), str(root / "a")]
        assert all(not Path(one["directory"]).exists() for one in keeper.heard("list")[before:])
        end(phone, ready["payload"]["session_id"])
