"""Each real agent behind a bridge, as a phone has it: every case with every agent, against a
scripted model and without a network (D35, D38, D40, D59; `make test-agents`).
"""

import base64
import contextlib
from collections.abc import Callable, Iterator
from urllib.parse import quote

import psutil
import pytest

from tests.agents.real.place import SECONDS, Decision, Place, Talk, payloads
from tests.agents.real.table import MEMORY
from tests.conformance.agent_tools import status, wait_status
from tests.conformance.agents import answers, log_of, start, words
from tests.conformance.phone import Message
from tests.conformance.terminal import take_back
from tests.conformance.test_attachments import PNG, sent
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]
# codex tries an approved command in its read-only sandbox first, and may not see in time that it
# failed for that: the person is asked again, in another turn
TRIES = 10
Begin = Callable[[], Talk]


@pytest.fixture
def begin(place: Place, request: pytest.FixtureRequest) -> Iterator[Begin]:
    """Begins a session in a directory that is named after the test; it is closed afterwards."""
    begun: list[Talk] = []

    def begin_() -> Talk:
        begun.append(place.talk(request.function.__name__))
        return begun[-1]

    yield begin_
    for talk in begun:
        if talk.phone.connected:
            talk.close()


def test_turn(begin: Begin, place: Place) -> None:
    """The first words are there while the others are not; a turn may fail, and the next works."""
    talk = begin()
    place.model.go_on.clear()
    first = talk.begin("do: hold Good morning from the model")
    place.model.go_on.set()
    assert talk.answer()["payload"]["finish_reason"] == "stop"
    assert first is None or first["payload"]["content"].strip() == "Good"
    assert words(log_of(talk.phone, talk.session)) == "Good morning from the model"

    failed = talk.turn("do: fail")
    assert payloads(failed, "stream_end")[-1]["finish_reason"] == place.agent.failure
    assert words(talk.turn("do: say still here")) == "still here"


def test_approve(begin: Begin, place: Place) -> None:
    """A command that is approved runs, once; a file that may be written is written."""
    talk = begin()
    assert talk.ready["payload"]["asks"] is place.agent.asks
    said = until_made(talk, "do: run touch approved", "approved")
    [asked], [result] = payloads(said, "approval_required"), payloads(said, "tool_result")
    assert (asked["tool"], asked["source"]) == ("Bash", "agent_sdk")
    assert result["tool_call_id"] == asked["tool_call_id"] and result["result"]["success"] is True
    assert talk.files() == ["approved"] and words(said).endswith("All done.")
    assert payloads(said, "stream_end")[-1]["finish_reason"] == "stop"

    said = until_made(talk, talk.order_write("hello.txt", "hello there"), "hello.txt")
    assert len(payloads(said, "approval_required")) == 1
    made = (talk.directory / "hello.txt").read_text()
    assert made.removesuffix("\n") == "hello there"  # which droid adds

    talk.turn("do: run touch again", "rejected")
    assert "again" not in talk.files(), "what was approved once was not allowed for good"


def until_made(talk: Talk, prompt: str, name: str, *decisions: Decision) -> list[Message]:
    """What comes of the turn, one of TRIES, in which that file is made."""
    for _ in range(TRIES):
        said = talk.turn(prompt, *(decisions or ("approved",)))
        if name in talk.files():
            break
    return said


def test_reject(begin: Begin) -> None:
    """A refused call does not run, and the person sees that it did not; the turn ends."""
    talk = begin()
    (talk.directory / "kept").write_text("as it was")
    said = talk.turn("do: run touch refused", "rejected")
    [asked] = payloads(said, "approval_required")
    assert asked["tool"] == "Bash" and "touch refused" in asked["params"]["command"]
    assert "touch refused" in asked["description"] and "call_id" not in asked["params"]
    [result] = payloads(said, "tool_result")
    assert result["tool_call_id"] == asked["tool_call_id"] and result["result"]["success"] is False
    assert payloads(said, "tool_error") == []
    assert payloads(said, "stream_end")[-1]["finish_reason"] == "stop"
    said += talk.turn(talk.order_write("kept", "overwritten"), "rejected")
    codes = [one["data"].get("code") for one in payloads(said, "notification")]
    assert "REJECTED_CALL_RAN" not in codes, "it only says that the call was refused"
    assert (talk.directory / "kept").read_text() == "as it was" and talk.files() == ["kept"]


@pytest.mark.parametrize("command", ["touch seen", "ls", "cat kept", "echo hello"])
def test_every_command_asks(begin: Begin, place: Place, command: str) -> None:
    """Also one that only reads (D75)."""
    if place.agent.reads_unasked and not command.startswith("touch"):
        pytest.skip(f"{place.agent.name} runs commands that only read unasked")
    talk = begin()
    (talk.directory / "kept").write_text("secret words")
    said = talk.turn(f"do: run {command}", "rejected")
    [asked] = payloads(said, "approval_required")
    assert command in asked["params"]["command"]
    [result] = payloads(said, "tool_result")
    assert result["result"]["success"] is False and talk.files() == ["kept"]


def test_an_edit_asks(begin: Begin) -> None:
    """The file is as it was until its edit is approved, and stays so when that is refused."""
    talk = begin()
    kept = talk.directory / "kept"
    kept.write_text("alpha beta\n")
    for decision in ("rejected", *["approved"] * TRIES):
        talk.say(f"do: edit {quote(str(kept))} alpha gamma")
        asked = talk.next_stop()["payload"]
        assert asked["tool"] in ("Edit", "Bash") and str(kept) in str(asked["params"]), asked
        assert kept.read_text() == "alpha beta\n"
        talk.decide(asked, decision)
        talk.answer(decision)
        if kept.read_text() != "alpha beta\n":
            break
    assert decision == "approved" and "gamma" in kept.read_text()


def test_a_rule(begin: Begin) -> None:
    """It approves the very same call, which runs; taken back, the call asks again (D68)."""
    talk, order = begin(), "do: run touch made"
    talk.say(order)
    talk.decide(talk.next_stop()["payload"], "approved", remember="exact")
    talk.answer("approved")
    (talk.directory / "made").unlink(missing_ok=True)
    said = until_made(talk, order, "made")
    assert not payloads(said, "approval_required")
    [rule] = [call["rule"] for call in payloads(said, "tool_call") if "rule" in call]
    (talk.directory / "made").unlink()
    take_back(talk.phone, talk.session, rule["id"])
    said = talk.turn(order, "rejected")
    assert len(payloads(said, "approval_required")) == 1 and talk.files() == []


def test_busy(begin: Begin, place: Place) -> None:
    """A message sent in a turn waits for its end, then is given: an answer each, in order."""
    talk = begin()
    place.model.go_on.clear()
    talk.begin("do: hold One two three")
    waits = talk.say("do: say after it")
    talk.phone.expect("message_state", message_id=waits, state="queued")
    place.model.go_on.set()
    for _ in range(2):
        assert talk.answer()["payload"]["finish_reason"] == "stop"
    talk.phone.expect("message_state", SECONDS, message_id=waits, state="given")
    assert answers(talk.phone, talk.session) == ["One two three", "after it"]
    steps = [
        one["payload"].get("state", "end")
        for one in talk.phone.messages
        if one["type"] == "stream_end" or one["payload"].get("message_id") == waits
        if one["type"] in ("stream_end", "message_state")
    ]
    assert steps[:2] == ["queued", "end"]


def test_a_picture(begin: Begin, place: Place) -> None:
    """The model is given it, as sent or drawn anew; where the agent takes none, a copy's path."""
    talk = begin()
    picture = sent(place.bridge, talk.session, name="of-the-phone.png")["attachment_id"]
    heard = len(place.model.heard)
    body = {"session_id": talk.session, "content": "do: say seen", "role": "user"}
    talk.phone.send("message", body | {"attachments": [picture]})
    assert talk.answer()["payload"]["finish_reason"] == "stop"
    shown = payloads(log_of(talk.phone, talk.session), "agent_event")[-1]["payload"]
    [given] = [one["given"] for one in shown["attachments"]]
    begun = base64.b64encode(PNG[:12]).decode()  # its signature
    is_picture = any(begun in one for one in place.model.heard[heard:])
    is_copy = any("of-the-phone.png" in one for one in place.model.heard[heard:])
    assert (given, is_picture, is_copy) in (("picture", True, False), ("file", False, True))


def test_modify(begin: Begin, place: Place) -> None:
    """Who cannot take changed parameters is refused, told them in the same turn, and asks again."""
    talk = begin()
    changed = {"command": "touch changed"}
    if not place.agent.modifies:
        changed["note"] = "do: run touch changed"  # how the scripted model understands it
    said = until_made(talk, "do: run touch original", "changed", changed, "approved")
    assert len(payloads(said, "approval_required")) == (1 if place.agent.modifies else 2)
    results = [result["result"]["success"] for result in payloads(said, "tool_result")]
    assert results == ([True] if place.agent.modifies else [False, True])
    assert talk.files() == ["changed"]


def test_interrupt(begin: Begin) -> None:
    """During text, and while a call waits for its decision; the next turn works."""
    talk = begin()
    talk.begin("do: count 2000")
    assert talk.interrupt()["payload"]["finish_reason"] == "stop"

    talk.say("do: run touch never")
    asked = talk.next_stop()
    assert asked["type"] == "approval_required", asked
    assert talk.interrupt()["payload"]["finish_reason"] == "stop"
    assert words(talk.turn("do: say and on")) == "and on"
    assert talk.files() == []


def test_resume(begin: Begin, place: Place) -> None:
    """Killed with the bridge in a turn: resumed, it knows what was said, and still asks."""
    talk, bridge = begin(), place.bridge
    talk.turn("do: say remember the marmalade")
    talk.begin("do: count 2000")
    assert place.processes()
    bridge.kill_all()
    bridge.start()
    wait_until(lambda: not place.processes())
    talk.phone.ready()
    assert status(bridge, talk.session) == "paused"
    talk.phone.join(talk.session)
    ends = payloads(log_of(talk.phone, talk.session), "stream_end")
    assert [end["finish_reason"] for end in ends] == ["stop", "error"]
    assert talk.resume()["payload"]["asks"] is place.agent.asks
    heard = len(place.model.heard)
    assert words(talk.turn("do: say and on we go")) == "and on we go"
    assert any("marmalade" in request for request in place.model.heard[heard:])
    said = talk.turn("do: run touch later", "rejected")
    assert len(payloads(said, "approval_required")) == 1 and talk.files() == []


def test_outlives(begin: Begin, place: Place) -> None:
    """The bridge is killed in mid-stream, and while a call waits: both go on as if it had not."""
    talk = begin()

    def killed() -> None:
        place.bridge.kill()
        place.bridge.start()
        talk.phone.vanish()
        talk.phone.ready().join(talk.session)
        assert status(place.bridge, talk.session) == "active"

    talk.begin("do: count 200")
    killed()
    assert talk.answer()["payload"]["finish_reason"] == "stop"
    kept = words(log_of(talk.phone, talk.session))
    assert kept.split() == [str(number) for number in range(200)]
    talk.say("do: run touch later")
    asked = talk.next_stop()["payload"]
    killed()
    talk.decide(asked, "approved")
    assert talk.answer("approved")["payload"]["finish_reason"] == "stop"
    assert talk.files() == ["later"]


def test_command_asks(begin: Begin, place: Place) -> None:
    """Also in a repository that allows everything: nothing of it runs."""
    directory = place.bridge.root / "test_command_asks"
    (directory / ".git").mkdir(parents=True)
    ran = place.home / "ran"
    for name, text in place.agent.allowing.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{ran}", str(ran)))
    talk = begin()
    assert talk.ready["payload"]["asks"] is place.agent.asks
    said = talk.turn("do: run touch refused", "rejected")
    assert len(payloads(said, "approval_required")) == 1
    assert "refused" not in talk.files() and not ran.exists()


def test_what_it_would_obey_unasked_bars_it(place: Place) -> None:
    """It is not started where it would run, or allow, what the repository says (D75)."""
    ran = place.home / "ran"
    for number, (name, text) in enumerate(place.agent.barred.items()):
        path = place.bridge.root / f"barred-{number}" / name
        path.parent.mkdir(parents=True)
        path.write_text(text.replace("{ran}", str(ran)))
        below = place.bridge.root / f"barred-{number}" / "src"
        below.mkdir()
        with place.bridge.phones() as (phone,):
            refused = start(phone, below, agent=place.agent.name, timeout=SECONDS)
            assert refused["payload"].get("code") == "AGENT_UNAVAILABLE", refused
            assert path.name in refused["payload"]["message"] and not ran.exists()


def test_memory(begin: Begin, place: Place) -> None:
    """The model is given the memory files that docs/agents.md names, and no others."""
    directory = place.bridge.root / "test_memory"
    (directory / ".git").mkdir(parents=True)
    for name in MEMORY:
        path = place.home / name[2:] if name.startswith("~/") else directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Notes\nRemember <{name}>.\n")
    heard = len(place.model.heard)
    assert words(begin().turn("do: say hello")) == "hello"
    given = "".join(place.model.heard[heard:])
    assert [name for name in MEMORY if f"<{name}>" in given] == place.agent.memory


def test_killed_agent(begin: Begin, place: Place) -> None:
    """Whichever of its processes is killed: the turn ends with an error, nothing is left."""
    talk = begin()
    talk.begin("do: count 2000")
    for pid in place.processes(talk.directory):
        with contextlib.suppress(psutil.NoSuchProcess):  # one has ended with another
            psutil.Process(pid).kill()
    assert talk.next_stop()["payload"]["finish_reason"] == "error"
    wait_until(lambda: not place.processes(talk.directory))
    wait_status(place.bridge, talk.session, "error")
