"""Sessions that real agents have begun without the bridge: found, and continued (D67)."""

from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.acp import recipes
from tests.agents.real.desk import desk_program, terminal
from tests.agents.real.place import SECONDS, Place, go_on
from tests.conformance.desk import refused, take
from tests.conformance.phone import Message, Phone
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]


def history(phone: Phone, place: Place, **about: Any) -> Message:
    sent = phone.send("history_list", {"agent": place.agent.name, **about})
    return phone.answer_to(sent, timeout=SECONDS)


def past(phone: Phone, place: Place, directory: Path) -> dict[str, Any]:
    """The one session of a directory."""
    answer = history(phone, place, directory=str(directory))
    assert answer["type"] == "history_list_response", answer
    [found] = answer["payload"]["sessions"]
    row = recipes.ROWS[place.agent.name]
    assert ("may not show" in str(answer["payload"].get("note"))) is row.unshown
    return dict(found)


def test_past(place: Place) -> None:
    """One of a program at the desk waits for that program's end; then it goes on, as it was."""
    row = recipes.ROWS.get(place.agent.name)
    if place.agent.name in ("claude-code", "codex"):
        pytest.skip("tests/agents/claude and test_codex.py have it")
    directory = (place.bridge.root / "begun").resolve()
    directory.mkdir()
    with place.bridge.phones() as (phone,):
        phone.ready()
        if row is not None and row.resume:
            own = begin_at_the_desk(place, directory, phone, row)
            go_on(place, directory, own, row.resume)
            return
        why = refused(history(phone, place), "AGENT_UNAVAILABLE")["message"]
        assert row is None or row.no_past in why


def begin_at_the_desk(place: Place, directory: Path, phone: Phone, row: recipes.Recipe) -> str:
    """A session that is refused, or listed as live, as long as a program of the agent runs."""
    with desk_program(place, directory) as program:
        own = program.say("do: say remember the marmalade")
        if row.store is None:
            asked = {"agent": place.agent.name, "working_directory": str(directory)}
            refused(take(phone, own, None, **asked), "SESS_AT_THE_DESK")
    if row.store is None:
        with terminal(place, directory):
            assert past(phone, place, directory)["live"]
    wait_until(lambda: not past(phone, place, directory)["live"])
    found = past(phone, place, directory)
    about = {"session_id": own, "working_directory": str(directory)}
    assert found.items() >= about.items() and "marmalade" in found["title"]
    return own
