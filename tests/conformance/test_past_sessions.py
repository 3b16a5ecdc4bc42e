"""Sessions of an agent's own store: listed, searched, and continued (D67)."""

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agents import ask, end, words
from tests.conformance.bridge import Bridge
from tests.conformance.desk import Desk, Place, bridge_beside, place_of_module, refused, take
from tests.conformance.phone import Phone
from tests.conformance.terminal import until

pytestmark = pytest.mark.spec("ws.history_list ws.history_list_response")


place, bridge = place_of_module(), bridge_beside()


@pytest.fixture
def directory(bridge: Bridge, request: pytest.FixtureRequest) -> Path:
    """A directory of this test, in the root."""
    made: Path = (bridge.root / request.node.name).resolve()
    made.mkdir()
    return made


def listed(phone: Phone, agent: str = "claude-code", **asked: Any) -> dict[str, Any]:
    asked = {name: str(one) if isinstance(one, Path) else one for name, one in asked.items()}
    answer = phone.request("history_list", {"agent": agent, **asked})
    assert answer["type"] == "history_list_response", answer
    return dict(answer["payload"])


def titles(phone: Phone, **asked: Any) -> list[str]:
    return [one["title"] for one in listed(phone, **asked)["sessions"]]


def made(place: Place, directory: Path, *said: str, age: float = 0.0) -> str:
    """A past session, of which the first words said are its title; its id."""
    own = str(uuid.uuid4())
    path = place.write(own, directory, *(said or ("a prompt", "an answer")))
    then = time.time() - age
    os.utime(path, (then, then))
    return own


def test_of_a_directory_newest_first(place: Place, phone: Phone, directory: Path) -> None:
    phone.ready()
    below = directory / "below"
    below.mkdir()
    own = made(place, directory, "Fix the parser", "Done.", age=60)
    for age, where in ((30, directory), (90, below)):
        made(place, where, f"{age} seconds old", "x", age=age)
    about = {"agent": "claude-code", "session_id": own, "title": "Fix the parser", "live": False}
    sessions = listed(phone, directory=directory)["sessions"]
    assert [one["title"] for one in sessions] == [
        *("30 seconds old", "Fix the parser", "90 seconds old"),
    ]
    assert sessions[1].items() >= (about | {"working_directory": str(directory)}).items()
    assert titles(phone, directory=below) == ["90 seconds old"]
    assert titles(phone, directory=directory, query="PARSER fix") == ["Fix the parser"]
    first = listed(phone, directory=directory, limit=2)
    assert first["more"] and len(first["sessions"]) == 2
    last = first["sessions"][-1]["last_activity_at"]
    rest = listed(phone, directory=directory, limit=2, before=last)
    assert [one["title"] for one in rest["sessions"]] == ["90 seconds old"] and not rest["more"]


def test_pages_lose_none_of_one_moment(place: Place, phone: Phone, directory: Path) -> None:
    phone.ready()
    then = int(time.time()) - 60
    for number in range(3):
        own = made(place, directory, f"number {number}", "x", age=60)
        [path] = place.home.rglob(f"{own}.jsonl")
        os.utime(path, (then, then))
    made(place, directory, "older", "x", age=90)
    page = listed(phone, directory=directory, limit=2)
    last = page["sessions"][-1]["last_activity_at"]
    rest = listed(phone, directory=directory, limit=2, before=last)
    assert page["more"] and not rest["more"]
    found = [one["title"] for one in (*page["sessions"], *rest["sessions"])]
    assert sorted(found) == ["number 0", "number 1", "number 2", "older"]


def test_titles(place: Place, phone: Phone, directory: Path) -> None:
    """A person's, else the agent's, else the first that was said, and no command."""
    phone.ready()
    command = "<command-name>/init</command-name>"
    made(place, directory, command, "x", "<task-notification>x</task-notification>", "y", "Said")
    own = made(place, directory, "first words")
    for kind, name in (("ai-title", "aiTitle"), ("custom-title", "customTitle")):
        line = {"type": kind, name: f"by {kind}\u202e", "sessionId": own}
        with place.transcript(own, directory).open("a") as file:
            file.write("x" * 200_000 + "\n" + json.dumps(line) + "\n")
        assert sorted(titles(phone, directory=directory)) == ["Said", f"by {kind}"]


def test_what_is_not_listed(
    place: Place, bridge: Bridge, phone: Phone, directory: Path, tmp_path: Path
) -> None:
    """Outside the roots, gone, through a link that leads out, damaged, a subagent's, no file."""
    phone.ready()
    secret, gone, link = tmp_path / "secret", directory / "gone", directory / "link"
    secret.mkdir()
    link.symlink_to(secret)
    hidden = [made(place, where, "hidden", "x") for where in (secret, gone, link)]
    hidden.append(made(place, directory, "hidden"))
    place.transcript(hidden[-1], directory).write_bytes(b"\xff" * 300_000)
    own = made(place, directory)
    project = place.transcript(own, directory).parent
    sidechain = place.transcript(str(uuid.uuid4()), directory)
    sidechain.write_text('{"isSidechain":true}\n' + place.transcript(own, directory).read_text())
    place.transcript(str(uuid.uuid4()), directory).mkdir()
    os.mkfifo(place.transcript(str(uuid.uuid4()), directory))
    (project / f"{uuid.uuid4()}.jsonl").symlink_to(place.transcript(hidden[0], secret))
    assert titles(phone, directory=directory) == ["a prompt"]
    assert titles(phone, query="hidden") == [] == titles(phone, directory=tmp_path)
    assert not listed(phone, query="hidden", limit=1)["more"]
    for own in (*hidden, str(uuid.uuid4()), "../../etc/passwd", "a/b/c/d/e/f", "short", "x" * 200):
        error = refused(take(phone, own, None), "SESS_NOT_FOUND")
        assert error["message"] == "No session has this id."
    assert sessions_of(bridge).isdisjoint(hidden)


def sessions_of(bridge: Bridge) -> set[str]:
    found = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    return {one["id"] for one in found}


def test_one_begins_in_its_own_directory(place: Place, phone: Phone, directory: Path) -> None:
    """With what was said before, told from the agent's records."""
    phone.ready()
    own = made(place, directory, "Fix the parser", "Done.")
    ready = take(phone, own, None)
    assert ready["type"] == "session_ready", ready
    assert ready["payload"]["session_id"] == own
    assert ready["payload"]["working_directory"] == str(directory)
    view = phone.expect("session_started", session_id=own)["payload"]["session"]
    assert (view["title"], view["kind"]) == ("Fix the parser", "bridge")
    before = phone.expect("replay_buffer", session_id=own, source="agent")["payload"]["messages"]
    assert before[0]["payload"]["payload"]["prompt"] == "Fix the parser"
    assert words(ask(phone, own, "And now?")) == "bridge: And now?"
    assert place.said(own, directory) == ["Fix the parser", "Done.", "And now?", "bridge: And now?"]
    assert take(phone, own, None)["type"] == "session_ready", "once more it is only joined"
    end(phone, own)
    refused(take(phone, own, None), "SESS_CLOSED")


def test_one_that_runs_at_the_desk(
    place: Place, bridge: Bridge, phone: Phone, directory: Path
) -> None:
    """Without hooks, or of another machine's home: it is seen in the agent's registry."""
    phone.ready()
    desk = Desk(place, bridge, directory=str(directory), spool=place.home)
    try:
        desk.register("idle")
        (found,) = listed(phone, directory=directory)["sessions"]
        assert found["live"]
        refused(take(phone, desk.session_id, None), "SESS_AT_THE_DESK")
    finally:
        desk.kill()
    (found,) = listed(phone, directory=directory)["sessions"]
    assert not found["live"], "it was killed, and its word is still there"


def test_a_session_of_the_bridge_is_listed_as_what_it_is(
    bridge: Bridge, phone: Phone, directory: Path
) -> None:
    """Its agent has another id for it; nobody begins it a second time."""
    about = {"agent": "claude-code", "session_id": None, "resume": False}
    phone.ready()
    ready = phone.request("session_start", about | {"working_directory": str(directory)})
    sid = ready["payload"]["session_id"]
    ask(phone, sid, "begun here")
    own = phone.join(sid)["payload"]["resume_command"].split()[-1]
    (found,) = listed(phone, directory=directory)["sessions"]
    assert found["session_id"] == sid != own
    assert take(phone, own, None)["payload"]["session_id"] == sid
    until(phone, sid, kind="bridge")
    end(phone, sid)


def test_an_agent_without_a_store(bridge: Bridge, phone: Phone) -> None:
    phone.ready()
    agents = bridge.get("/api/v1/info", phone.token).json()["agents"]
    why = {one["name"]: one.get("history") for one in agents}
    assert why["claude-code"] is None and why["demo"]
    for agent in ("demo", "nobody"):
        error = refused(phone.request("history_list", {"agent": agent}), "AGENT_UNAVAILABLE")
        assert agent in error["message"]


def test_a_thousand_and_a_large_one(place: Place, phone: Phone, directory: Path) -> None:
    """In under a second; only the beginning and the end of each are read."""
    phone.ready()
    for number in range(1000):
        made(place, directory, f"number {number}", "x" * 50_000, age=number)
    large = made(place, directory, "large", "x")
    with place.transcript(large, directory).open("r+b") as file:
        file.truncate(300 * 2**20)
    began = time.monotonic()
    first = listed(phone, directory=directory)
    took = time.monotonic() - began
    assert first["more"] and len(first["sessions"]) == 100
    assert titles(phone, query="number 999") == ["number 999"]
    assert took < 10, "a second on a machine that does nothing else"
