"""POST /hooks/event (spec, Endpoints; D1, D2, D3, D5, D6, D14, D31): what is accepted, and what it
makes.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, assert_now, is_uuid
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS, hook, new_id, now, prompt

pytestmark = pytest.mark.usefixtures("database")


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.spec("http.hooks.event", "event_post.result", "hook.event", "hook.payload")
def test_each_event_is_accepted(bridge: Bridge, sid: str, event: str) -> None:
    """Spec: 200 body received (true), event_id string, broadcast_count integer, timestamp."""
    answer = bridge.post_hook(hook(event, sid))
    assert answer.status == 200, answer
    body = answer.json()
    assert body["received"] is True and is_uuid(body["event_id"]), body
    assert body["broadcast_count"] == 0 and type(body["broadcast_count"]) is int
    assert_now(body["timestamp"])
    assert bridge.session(sid)["hook_count"] == 1


@pytest.mark.parametrize("path", ["/hooks/event", "/api/v1/hooks/event"])
@pytest.mark.spec("http.hooks.event")
def test_with_and_without_prefix(bridge: Bridge, sid: str, path: str) -> None:
    """D2: both paths answer and store."""
    answer = bridge.https().post(path, token=bridge.hook_token, json_body=hook("Stop", sid))
    assert answer.status == 200, answer
    assert bridge.knows(sid)


@pytest.mark.spec("hook.event_type")
def test_only_event_type(bridge: Bridge, sid: str, device: Phone) -> None:
    """D1: a body with only event_type is read as event; outbound payloads carry both names."""
    device.ready()
    device.close()
    body = hook("PostToolUse", sid, event=..., event_type="PostToolUse")
    (answer,) = bridge.accept(body)
    device.ready()
    payload = device.expect("agent_event", session_id=sid)["payload"]
    assert payload["event"] == payload["event_type"] == "PostToolUse"
    assert payload["event_id"] == answer["event_id"]
    assert payload["payload"] == body["payload"] and payload["timestamp"]


def test_event_and_event_type_alike(bridge: Bridge, sid: str) -> None:
    """D1: both present and equal is no contradiction."""
    assert bridge.post_hook(hook("Stop", sid, event_type="Stop")).status == 200


def test_event_and_event_type_different(bridge: Bridge, sid: str) -> None:
    """D1: both present and different: 400 HOOK_INVALID_EVENT_TYPE, nothing stored."""
    assert_error(
        bridge.post_hook(hook("Stop", sid, event_type="SessionEnd")), 400, "HOOK_INVALID_EVENT_TYPE"
    )
    assert not bridge.knows(sid)


def test_only_event_type_is_validated_too(bridge: Bridge, sid: str) -> None:
    """D1, D5: read as event, hence strict for PreToolUse, and unknown names are refused."""
    assert_error(
        bridge.post_hook(hook("PreToolUse", sid, {}, event=..., event_type="PreToolUse")),
        400,
        "HOOK_INVALID_PAYLOAD",
    )
    assert_error(
        bridge.post_hook(hook("Stop", sid, event=..., event_type="Explosion")),
        400,
        "HOOK_INVALID_EVENT_TYPE",
    )


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Basic Zm9vOmJhcg==", "Bearer wrong", "Bearer a b c", "token"],
)
@pytest.mark.parametrize("body", [{}, {"event": "Nonsense"}], ids=["empty", "nonsense"])
@pytest.mark.spec(
    "event_post.order", "event_post.unauthorized", "auth.hook.wrong", "code.HOOK_AUTH_FAILED"
)
def test_the_token_is_checked_first(
    bridge: Bridge, authorization: str | None, body: dict[str, Any]
) -> None:
    """Spec, processing order: authenticate before anything; 401 HOOK_AUTH_FAILED (D9: with
    WWW-Authenticate).
    """
    headers = {} if authorization is None else {"Authorization": authorization}
    assert_error(
        bridge.https().post("/api/v1/hooks/event", json_body=body, headers=headers),
        401,
        "HOOK_AUTH_FAILED",
    )


@pytest.mark.parametrize(
    "path", ["/api/v1/hooks/event", "/hooks/event", "/api/v1/hooks/batch", "/hooks/batch"]
)
@pytest.mark.spec("auth.hook")
def test_other_tokens_are_no_hook_tokens(bridge: Bridge, sid: str, path: str) -> None:
    """D14: on /hooks/* anything but the hook token is 401 HOOK_AUTH_FAILED, a device's or the
    admin's token too.
    """
    for token in (
        bridge.device_token(),
        bridge.admin_token,
        bridge.hook_token + "x",
        bridge.hook_token[:-1],
        bridge.hook_token.swapcase(),
    ):
        assert_error(
            bridge.https().post(path, token=token, json_body=hook("Stop", sid)),
            401,
            "HOOK_AUTH_FAILED",
        )
    assert not bridge.knows(sid)


@pytest.mark.spec("event_post.headers", "session.agent_type")
def test_the_source_header_becomes_the_agent_type(bridge: Bridge, sid: str) -> None:
    """D6: X-Hook-Source becomes agent_type; X-Hook-Version changes nothing."""
    assert (
        bridge.post_hook(
            hook("SessionStart", sid),
            headers={"X-Hook-Source": "my-agent", "X-Hook-Version": "9.9.9"},
        ).status
        == 200
    )
    assert bridge.session(sid)["agent_type"] == "my-agent"


def test_without_the_source_header(bridge: Bridge, sid: str) -> None:
    """D6: default primary-agent."""
    bridge.accept(hook("SessionStart", sid))
    assert bridge.session(sid)["agent_type"] == "primary-agent"


def test_unknown_fields_are_passed_on(bridge: Bridge, sid: str, device: Phone) -> None:
    """D3: unknown fields in a hook event and in its payload are kept and passed on, whatever their
    type.
    """
    device.ready()
    device.close()
    payload = {
        "prompt": "p",
        "context": {"current_file": "a.py", "cursor_position": 3},
        "ünknown": [None, True, 1.5, {"a": []}],
        "big": 2**53 + 1,
    }
    bridge.accept(hook("UserPromptSubmit", sid, payload, correlation={"trace": ["x"]}))
    device.ready()
    received = device.expect("agent_event", session_id=sid)["payload"]
    assert received["payload"] == payload
    assert received["correlation"] == {"trace": ["x"]}


@pytest.mark.parametrize(
    "result", [None, False, 0, "", [], {}, {"deep": [1, {"x": None}]}, "text"], ids=repr
)
@pytest.mark.spec("payload.PostToolUse.result")
def test_a_result_is_anything(bridge: Bridge, sid: str, result: Any) -> None:
    """Spec, PostToolUse: result any, required, so null counts as given."""
    answer = bridge.post_hook(
        hook(
            "PostToolUse",
            sid,
            {
                "tool": "Bash",
                "params": {},
                "result": result,
                "success": False,
                "execution_time_ms": 1.5,
            },
        )
    )
    assert answer.status == 200, answer


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("Stop", {}),
        ("Stop", {"reason": "tool_error"}),
        ("Stop", {"reason": "max_tokens", "context": "a string"}),
        ("Stop", {"reason": "safety", "context": {"a": 1}}),
        ("SessionEnd", {}),
        (
            "SessionEnd",
            {
                "exit_reason": "completion",
                "message_count": 3,
                "tools_used": ["Bash"],
                "summary": "s",
                "exit_code": 0,
            },
        ),
        ("UserPromptSubmit", {}),
        ("SubagentStop", {}),
        ("PreCompact", {}),
        ("Notification", {}),
        ("SessionStart", {"working_directory": "/w", "initial_prompt": None, "environment": None}),
    ],
    ids=str,
)
@pytest.mark.spec(
    "payload.lax", "payload.UserPromptSubmit.*", "payload.Stop.*", "payload.SessionEnd"
)
def test_lax_where_the_spec_is_lax(
    bridge: Bridge, sid: str, event: str, payload: dict[str, Any]
) -> None:
    """D5: six events only need an object payload; absent optional fields are omitted or null (spec,
    Versioning 4).
    """
    answer = bridge.post_hook(hook(event, sid, payload))
    assert answer.status == 200, answer


@pytest.mark.parametrize("seconds", [-290, -1, 0, 1, 290])
@pytest.mark.spec("hook.timestamp", "limit.skew")
def test_fresh_timestamps(bridge: Bridge, sid: str, seconds: int) -> None:
    """Spec: within 5 minutes, either direction."""
    assert bridge.post_hook(hook("Stop", sid, timestamp=now(seconds))).status == 200


def test_timestamps_with_an_offset(bridge: Bridge, sid: str) -> None:
    """Spec: ISO 8601; an offset other than Z names the same moment."""
    moment = now(7200).replace("Z", "+02:00")
    assert bridge.post_hook(hook("Stop", sid, timestamp=moment)).status == 200
    assert_error(
        bridge.post_hook(hook("Stop", sid, timestamp=now().replace("Z", "+02:00"))),
        400,
        "HOOK_STALE_TIMESTAMP",
    )


@pytest.mark.parametrize(
    "session_id",
    ["x", "ünïcödé 会话", "a b", "-", "a" * 200, "../../etc", "%2e%2e", "'; DROP TABLE--"],
)
@pytest.mark.spec("hook.session_id")
def test_any_session_id_that_is_not_empty(bridge: Bridge, session_id: str, device: Phone) -> None:
    """Spec: session_id string, non-empty; it comes out as it went in."""
    device.ready()
    device.close()
    unique = f"{session_id} {new_id()}"
    bridge.accept(prompt(unique, 1))
    device.ready()
    assert device.expect("agent_event", session_id=unique)["payload"]["session_id"] == unique


@pytest.mark.spec("hook.event_id")
def test_the_same_event_id_twice(bridge: Bridge, sid: str, device: Phone) -> None:
    """D31: 200 with the first answer's event_id, stored and sent once, the first body's content."""
    device.ready()
    device.close()
    event_id = new_id()
    first, second = bridge.accept(
        prompt(sid, 1, event_id=event_id), prompt(sid, 2, event_id=event_id)
    )
    assert first["event_id"] == second["event_id"] and second["received"] is True
    bridge.accept(prompt(sid, 3))
    assert bridge.session(sid)["hook_count"] == 2
    device.ready()
    device.collect(lambda: 3 in device.numbers(sid), "event 3")
    assert device.numbers(sid) == [1, 3]


def test_the_same_event_id_at_the_same_time(bridge: Bridge, sid: str) -> None:
    """D31 under a race: eight posts of one event are one event."""
    body, answers = prompt(sid, 1, event_id=new_id()), []
    barrier = threading.Barrier(8)

    def post() -> None:
        barrier.wait()
        answers.append(bridge.post_hook(body))

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200] * 8, [str(answer) for answer in answers]
    assert len({answer.json()["event_id"] for answer in answers}) == 1
    assert bridge.session(sid)["hook_count"] == 1


@pytest.mark.parametrize("event_id", ["not-a-uuid", 7, None, ["x"], ""], ids=repr)
def test_an_event_id_that_is_no_uuid_is_ignored(bridge: Bridge, sid: str, event_id: Any) -> None:
    """D31: anything but a UUID there is ignored: two events, two ids."""
    first, second = bridge.accept(
        prompt(sid, 1, event_id=event_id), prompt(sid, 2, event_id=event_id)
    )
    assert (
        is_uuid(first["event_id"])
        and is_uuid(second["event_id"])
        and first["event_id"] != second["event_id"]
    )
    assert bridge.session(sid)["hook_count"] == 2


def test_ids_are_fresh(bridge: Bridge, sid: str) -> None:
    """Spec: event_id; without one in the body each event has its own."""
    answers = bridge.accept(*[prompt(sid, number) for number in range(5)])
    assert len({answer["event_id"] for answer in answers}) == 5
