"""GET /sessions, GET /sessions/:id, POST /sessions/:id/events (Endpoints; D6, D34, D35, D39)."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.agent_tools import http_say
from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, assert_now, is_uuid, parse_time
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS, PAYLOADS, hook, new_id, new_session, prompt

ABOUT = {"source": "mobile", "client_version": "1.0.0"}
MESSAGE = {"type": "user_message", "content": "hello", "metadata": ABOUT}


@pytest.mark.spec("http.sessions", "http.session", "session.*")
def test_a_session_from_its_first_event(shared: Bridge, sid: str) -> None:
    """The single view has recent_events, and for the rest says the same."""
    shared.accept(hook("SessionStart", sid, {"working_directory": "/home/dev/my-project"}))
    body = shared.get("/api/v1/sessions", shared.admin_token).json()
    assert body["total"] == len(body["sessions"])
    (session,) = [session for session in body["sessions"] if session["id"] == sid]
    about = {"agent_type": "primary-agent", "title": "my-project", "status": "active"}
    about |= {"working_directory": "/home/dev/my-project"}
    assert session == session | about | {"websocket_connected": False, "hook_count": 1}
    assert_now(session["created_at"])
    assert_now(session["last_activity_at"])
    single = shared.session(sid)
    assert len(single.pop("recent_events")) == 1
    assert single == session


@pytest.mark.spec("state.observed")
def test_states_of_an_observed_session(shared: Bridge, sid: str) -> None:
    """D34, D65: any event creates it, SessionEnd closes it, a late event does not open it again."""
    for event in EVENTS:
        other = new_session()
        shared.accept(hook(event, other))
        assert shared.session(other)["status"] == ("closed" if event == "SessionEnd" else "active")
    late_prompt = prompt(sid, "late")  # before the end by its own time, however slow this is
    shared.accept(hook("SessionStart", sid), hook("SessionEnd", sid), late_prompt)
    late = shared.session(sid)
    assert late["status"] == "closed" and late["hook_count"] == 3
    shared.accept(hook("SessionStart", sid))
    assert shared.session(sid)["status"] == "active"


STARTED = ("SessionStart", {"working_directory": "/srv/web"})
TITLES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "web": [STARTED],
    "app": [("SessionStart", {"working_directory": "C:\\work\\app\\"})],
    "api": [STARTED, ("SessionStart", {"working_directory": "/srv/api"})],
    "first": [STARTED, ("UserPromptSubmit", {"prompt": "first\nand more"})],
    "Fix the bug": [("SessionStart", STARTED[1] | {"initial_prompt": "Fix the bug\nand more"})],
}


@pytest.mark.spec("session.title")
def test_titles(shared: Bridge) -> None:
    """D6: the first line of the first prompt, else the name of the directory that it is in."""
    for title, events in TITLES.items():
        sid = new_session()
        shared.accept(*[hook(event, sid, payload) for event, payload in events])
        assert shared.session(sid)["title"] == title
        shared.accept(prompt(sid, "later"))
        assert (shared.session(sid)["title"] == title) is (title not in ("web", "app", "api"))


@pytest.mark.spec("session.recent_events", "session.hook_count", "session.last_activity_at")
def test_recent_events(shared: Bridge, sid: str) -> None:
    """D35: the last 20, newest first; how many there were, and when the last was."""
    prompts = [prompt(sid, number) for number in range(22)]
    shared.accept(prompts.pop())
    first = shared.session(sid)
    assert shared.post_hook(hook("Stop", sid, timestamp="x")).status == 400, "that counts nothing"
    used = hook("PreToolUse", sid, PAYLOADS["PreToolUse"] | {"tool": "Grep"})
    shared.accept(*prompts, used, hook("Stop", sid))
    second = shared.session(sid)
    assert second["hook_count"] == 24 and second["created_at"] == first["created_at"]
    assert parse_time(second["last_activity_at"]) > parse_time(first["last_activity_at"])
    recent = second["recent_events"]
    assert [event["type"] for event in recent] == ["Stop", "PreToolUse"] + ["UserPromptSubmit"] * 18
    assert recent[1]["tool"] == "Grep"
    times = [parse_time(event["timestamp"]) for event in recent]
    assert times == sorted(times, reverse=True)


@pytest.mark.spec("code.SESSION_NOT_FOUND")
def test_an_unknown_session(shared: Bridge) -> None:
    for unknown in ("no-such-session", "%00", "%2e%2e", "%F0%9F%98%80", "x" * 2000, "%ff"):
        found = shared.get(f"/api/v1/sessions/{unknown}", shared.admin_token)
        assert_error(found, 404, "SESSION_NOT_FOUND")
        assert_error(http_say(shared, unknown, MESSAGE), 404, "SESSION_NOT_FOUND")


@pytest.mark.spec("hook.session_id")
def test_session_ids_are_quoted(shared: Bridge) -> None:
    """Any non-empty string is one, so its percent-encoded form addresses it."""
    more = ("'; DROP TABLE--", "a" * 200, "../../etc", "%2e%2e", "a\nb")
    for odd in ("ünïcödé 会话 100% a+b", "a?b=c#d..", "team/project", *more):
        unique = f"{odd} {new_id()}"
        shared.accept(prompt(unique, 1))
        address = quote(unique, safe="")
        assert shared.session(address)["id"] == unique
        answer = http_say(shared, address, MESSAGE)
        assert answer.status == 202 and answer.json()["session_id"] == unique, answer


@pytest.mark.spec("http.session.events", "state.closed", "code.SESSION_CLOSED")
def test_an_event_for_an_observed_session(shared: Bridge, sid: str, device: Phone) -> None:
    """D39: accepted false, hooks cannot control the agent."""
    shared.accept(prompt(sid, 1))
    for token in (shared.admin_token, device.token):
        answer = http_say(shared, sid, MESSAGE, token)
        assert answer.status == 202, answer
        body = answer.json()
        assert body["accepted"] is False and body["session_id"] == sid and is_uuid(body["event_id"])
    shared.accept(hook("SessionEnd", sid))
    assert_error(http_say(shared, sid, MESSAGE), 409, "SESSION_CLOSED")


@pytest.mark.spec("code.other")
def test_a_bad_event(shared: Bridge, sid: str) -> None:
    """Type string, content string, metadata object."""
    shared.accept(prompt(sid, 1))
    wrong = [("content", one) for one in (5, "", " \t")] + [("type", 5), ("type", "interrupt")]
    bodies: list[Any] = [None, [], "x", {}, {"content": "hello"}, {"type": "user_message"}]
    for body in (*bodies, *(MESSAGE | {name: one} for name, one in (*wrong, ("metadata", "m")))):
        assert_error(http_say(shared, sid, body), 400, "VALIDATION_ERROR")
