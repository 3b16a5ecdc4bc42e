"""A bridge joins a session of the desk's, by stand-ins for codex (D80)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.codex.daemon import ASKS, THREAD, UNASKED, Json
from tests.agents.codex.desk import OTHERS, Desk
from tests.conformance.agents import end, log_of, say, start
from tests.conformance.approvals import decide
from tests.conformance.desk import refused, take
from tests.conformance.phone import Phone
from tests.conformance.samples import hook
from tests.conformance.terminal import until
from tests.servers import wait_until


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk"), BRIDGE_MAX_SESSIONS="1")
    with desk.bridge as bridge:
        bridge.pin = bridge.pairing().pin
        yield desk
    desk.daemon.close()


@pytest.fixture
def phone(desk: Desk) -> Iterator[Phone]:
    """It has joined the session, which it leaves at the end."""
    with desk.bridge.phones() as (phone,):
        phone.ready()
        assert desk.begin(phone)["type"] == "session_ready"
        yield phone
        phone.send("session_end", {"session_id": THREAD, "reason": "user_request"})
        wait_until(lambda: not desk.daemon.joined)


def test_it_is_listed_and_joined(desk: Desk, phone: Phone) -> None:
    sent = phone.send("history_list", {"agent": "codex"})
    listed = phone.answer_to(sent)["payload"]["sessions"]
    assert [(one["live"], one["shared"]) for one in listed] == [(False, True)] * len(desk.ids)
    info = desk.bridge.session(THREAD)
    assert (info["kind"], info["shared"]) == ("bridge", True)
    desk.daemon.typed("Do it.")
    typed = phone.expect("agent_event", session_id=THREAD, event="UserPromptSubmit")["payload"]
    assert typed["payload"]["prompt"] == "Do it."
    wait_until(lambda: desk.bridge.session(THREAD)["turn"] == "working")
    desk.daemon.say("It is done.")
    desk.daemon.turn(status="completed")
    assert phone.expect("stream_chunk", session_id=THREAD)["payload"]["content"] == "It is done."
    phone.expect("stream_end", session_id=THREAD, finish_reason="stop")
    say(phone, THREAD, "Go on.")
    wait_until(lambda: desk.daemon.asked_for("turn/start"))
    desk.daemon.turn(id_="turn-1", status="completed")
    phone.expect("stream_end", session_id=THREAD, finish_reason="stop")


@pytest.mark.parametrize("first", ["phone", "desk"])
def test_the_first_answer_counts(desk: Desk, phone: Phone, first: str) -> None:
    desk.daemon.typed("Do it.")
    item = desk.daemon.command(f"ls {first}")
    number = desk.daemon.may(item)
    asked = phone.expect("approval_required", session_id=THREAD)["payload"]["tool_call_id"]
    if first == "phone":
        decide(phone, THREAD, asked, "approved")
        assert desk.daemon.decision(number) == "accept"
    desk.daemon.resolve(number)
    told = phone.expect("notification", notification_type="approval_decided")["payload"]["data"]
    assert told["tool_call_id"] == asked
    if first == "desk":
        wait_until(lambda: desk.bridge.session(THREAD)["pending_approvals"] == 0)
        assert number not in desk.daemon.answers
    desk.daemon.over(item)
    result = phone.expect("tool_result", session_id=THREAD, tool_call_id=asked)["payload"]
    assert result["result"]["success"] is True
    desk.daemon.turn(status="completed")
    phone.expect("stream_end", session_id=THREAD, finish_reason="stop")


def test_interrupted_from_here(desk: Desk, phone: Phone) -> None:
    """Also a turn that has said nothing yet."""
    before = len(desk.daemon.asked_for("turn/interrupt"))
    desk.daemon.turn(id_="turn-7")
    phone.send("session_interrupt", {"session_id": THREAD})
    asked = wait_until(lambda: desk.daemon.asked_for("turn/interrupt")[before:])
    assert asked == [{"threadId": THREAD, "turnId": "turn-7"}]
    desk.daemon.turn(id_="turn-7", status="interrupted")


def test_left_and_joined_again(desk: Desk, phone: Phone) -> None:
    """What is ended here goes on at the desk, and takes no place of BRIDGE_MAX_SESSIONS."""
    for own in desk.ids[1:OTHERS]:
        assert desk.begin(phone, own)["type"] == "session_ready"
    payload = refused(desk.begin(phone, desk.ids[OTHERS]), "SESS_LIMIT_REACHED")
    assert "joined" in payload["message"]
    before = len(desk.daemon.heard)
    for own in desk.ids[:OTHERS]:
        assert end(phone, own)["type"] == "session_end"
    wait_until(lambda: not desk.daemon.joined)
    assert [one for one in desk.daemon.heard[before:] if one["method"] != "initialized"] == []
    info = desk.bridge.session(THREAD)
    assert info["session_status"] == "closed" and info["resumable"] is True
    ready = start(phone, desk.bridge.root, agent="codex")
    assert ready["type"] == "session_ready", "its own sessions have room"
    assert desk.begin(phone)["type"] == "session_ready"
    end(phone, ready["payload"]["session_id"])


def test_what_was_said_meanwhile(desk: Desk, phone: Phone) -> None:
    """It is there once, in its place, when the session is joined again."""
    desk.daemon.typed("Before.")
    desk.daemon.say("It was before.")
    desk.daemon.turn(status="completed")
    phone.expect("stream_end", session_id=THREAD)
    kept: list[Json] = []
    for number in range(2):
        end(phone, THREAD)
        now = time.time_ns() // 10**6
        content = [{"type": "text", "text": f"Meanwhile {number}."}]
        asked: Json = {"type": "userMessage", "id": f"u{number}", "content": content}
        done: Json = {"type": "agentMessage", "id": f"a{number}", "text": f"Done {number}."}
        # the newest first, as it is asked for
        kept = [{"item": {**one, "startedAtMs": now}} for one in (done, asked)] + kept
        desk.daemon.spec["thread/items/list"] = {"data": kept}
        assert desk.begin(phone)["type"] == "session_ready"
    try:
        desk.daemon.typed("After.")
        wait_until(lambda: "After." in str(log_of(phone, THREAD)))
        prompts, answers = [], []
        for one in log_of(phone, THREAD):
            if one["type"] == "agent_event" and one["payload"]["event"] == "UserPromptSubmit":
                prompts.append(one["payload"]["payload"]["prompt"])
            if one["type"] == "stream_chunk":
                answers.append((prompts[-1], one["payload"]["content"]))
        at = prompts.index("Before.")
        assert prompts[at:] == ["Before.", "Meanwhile 0.", "Meanwhile 1.", "After."]
        assert answers[-3:] == [
            ("Before.", "It was before."),
            ("Meanwhile 0.", "Done 0."),
            ("Meanwhile 1.", "Done 1."),
        ]
        assert desk.bridge.session(THREAD)["turn"] == "working", "by what came after"
    finally:
        desk.daemon.spec.pop("thread/items/list")
        desk.daemon.turn(status="completed")


def test_hook_events_say_nothing_new(desk: Desk, phone: Phone) -> None:
    """While it is joined: the bridge hears the same from codex itself."""
    event = hook("UserPromptSubmit", THREAD, {"prompt": "by a hook"})
    desk.bridge.accept(event)
    desk.daemon.typed("by codex")
    phone.expect("agent_event", session_id=THREAD, event="UserPromptSubmit")
    prompts = [
        one["payload"]["payload"]["prompt"]
        for one in log_of(phone, THREAD)
        if one["type"] == "agent_event" and one["payload"]["event"] == "UserPromptSubmit"
    ]
    assert "by codex" in prompts and "by a hook" not in prompts
    desk.daemon.turn(status="completed")


def test_the_desk_does_not_let_it_ask(desk: Desk, phone: Phone) -> None:
    """Every device is told; what is written is refused."""
    end(phone, THREAD)
    desk.daemon.spec["thread/resume"] = {"thread": {"id": THREAD}, **ASKS, **UNASKED}
    try:
        assert desk.begin(phone)["payload"]["asks"] is False
        told = phone.expect("notification", notification_type="agent_notification")["payload"]
        assert "does not ask" in told["title"] and told["priority"] == "high"
        payload = refused(phone.answer_to(say(phone, THREAD, "Go on.")), "AGENT_UNAVAILABLE")
        assert "At the desk" in payload["message"]
    finally:
        desk.daemon.spec["thread/resume"] = {"thread": {"id": THREAD}, **ASKS}


@pytest.mark.spec("ws.session_update")
def test_the_desk_switches_asking_off_and_on(desk: Desk, phone: Phone) -> None:
    """Whoever has the session open is told."""
    box = {"type": "readOnly", "networkAccess": False}
    for policy, asks in (("never", False), ("on-request", True)):
        settings = {"approvalPolicy": policy, "approvalsReviewer": "user", "sandboxPolicy": box}
        desk.daemon.note("thread/settings/updated", threadSettings=settings)
        until(phone, THREAD, asks=asks)


def test_an_observed_session_is_joined(desk: Desk, phone: Phone) -> None:
    """By the way that a session is taken over, and nothing is ended for it."""
    own = desk.ids[2]
    event = hook("SessionStart", own, {"working_directory": str(desk.bridge.root.resolve())})
    assert desk.bridge.post_hook(event, headers={"X-Hook-Source": "codex"}).status == 200
    assert desk.bridge.session(own)["continue"]["how"] == "join"
    about = {"agent": "codex", "working_directory": str(desk.bridge.root)}
    assert take(phone, own, **about)["type"] == "session_ready"
    info = desk.bridge.session(own)
    assert (info["kind"], info["shared"]) == ("bridge", True)
    end(phone, own)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    desk = Desk(tmp_path, join="")
    with desk.bridge as bridge, bridge.phones() as (phone,):
        phone.ready()
        sent = phone.send("history_list", {"agent": "codex"})
        listed = phone.answer_to(sent)["payload"]["sessions"]
        assert not any(one["shared"] for one in listed)
        assert desk.begin(phone)["type"] == "session_ready"
        assert bridge.session(THREAD)["shared"] is False and desk.daemon.heard == []
    desk.daemon.close()
