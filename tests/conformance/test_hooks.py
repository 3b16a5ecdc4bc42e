"""POST /hooks/event and /hooks/batch (spec, Endpoints; D1 to D6, D28, D31 to D33)."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import assert_error, assert_now, is_uuid, parse_time
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS, PAYLOADS, hook, new_id, new_session, now, prompt
from tests.servers import wait_until

on_both = pytest.mark.usefixtures("database")


@on_both
@pytest.mark.spec(
    "ws.agent_event envelope.type envelope.id envelope.timestamp envelope.payload",
    "event_post.broadcast event.UserPromptSubmit event.SubagentStop event.PreCompact",
    "event.Notification event.Stop http.hooks.event event_post.result hook.event hook.payload",
)
def test_a_joined_client_gets_events_live(bridge: Bridge, sid: str, phone: Phone) -> None:
    """The payload is the hook event; D1: with event, event_type, event_id; D4: a fresh id each. D3:
    unknown fields of an event and of its payload are passed on, whatever their type.
    """
    bridge.watch(phone, sid)
    more = {"correlation": {"trace": ["x"]}}
    bodies = [prompt(sid, number, **more) for number in range(1, 6)]
    bodies[0]["payload"]["ünknown"] = [None, True, 1.5, 2**53 + 1, {"a": []}]
    answers = bridge.accept(*bodies)
    events = phone.wait_numbers(sid, range(1, 6))
    for event, body, answer in zip(events, bodies, answers, strict=True):
        payload = event["payload"]
        assert answer["received"] is True and is_uuid(answer["event_id"])
        assert answer["broadcast_count"] == 1 and type(answer["broadcast_count"]) is int
        assert_now(answer["timestamp"])
        assert payload["event"] == payload["event_type"] == "UserPromptSubmit"
        assert payload["event_id"] == answer["event_id"]
        assert payload["session_id"] == sid and payload["payload"] == body["payload"]
        assert payload["correlation"] == body["correlation"]
        assert parse_time(payload["timestamp"]) == parse_time(body["timestamp"])
        assert is_uuid(event["id"])
        assert_now(event["timestamp"])
    assert len({event["id"] for event in events}) == 5
    bridge.accept(*[hook(event, sid) for event in EVENTS], prompt(sid, "last"))
    phone.collect(lambda: "last" in phone.numbers(sid), "the last event")
    told = [event["payload"]["event"] for event in phone.events(sid)[5:]]
    assert told == [*EVENTS, "UserPromptSubmit"]


@on_both
@pytest.mark.spec("event_post.broadcast", "session.websocket_connected")
def test_broadcast_count(bridge: Bridge, sid: str) -> None:
    """D33: the connections that have joined, each once; D22: leaving ends no observed session."""

    def count() -> int:
        return int(bridge.accept(prompt(sid, 1))[0]["broadcast_count"])

    def connected() -> bool:
        return bool(bridge.session(sid)["websocket_connected"])

    with bridge.phones(3) as (first, second, _):
        assert count() == 0 and not connected()
        first.join(sid)
        assert count() == 1 and connected()
        second.join(sid)
        second.join(sid)
        assert count() == 2
        first.leave(sid)
        assert count() == 1
        second.close()
        wait_until(lambda: count() == 0)
        first.join(sid)
        assert count() == 1 and connected()
        assert bridge.accept(prompt(new_session(), 1))[0]["broadcast_count"] == 0
    wait_until(lambda: not connected())
    assert bridge.session(sid)["status"] == "active"


@pytest.mark.spec("hook.event_type")
def test_event_and_event_type(bridge: Bridge, sid: str, device: Phone) -> None:
    """D1: event_type alone is read as event; both may be equal, not different. Both are sent."""
    device.ready().close()
    different = hook("Stop", sid, event_type="SessionEnd")
    assert_error(bridge.post_hook(different), 400, "HOOK_INVALID_EVENT_TYPE")
    alone = hook("PostToolUse", sid, {}, event=..., event_type="PostToolUse")
    assert_error(bridge.post_hook(alone), 400, "HOOK_INVALID_PAYLOAD")
    assert not bridge.knows(sid)
    alone["payload"] = PAYLOADS["PostToolUse"]
    answer, _ = bridge.accept(alone, hook("Stop", sid, event_type="Stop"))
    payload = device.ready().expect("agent_event", session_id=sid)["payload"]
    assert payload["event"] == payload["event_type"] == "PostToolUse"
    assert payload["event_id"] == answer["event_id"]
    assert payload["payload"] == alone["payload"] and payload["timestamp"]


@pytest.mark.spec("event_post.headers", "session.agent_type")
def test_the_source_header_becomes_the_agent_type(bridge: Bridge, sid: str) -> None:
    """D6: once it is given; X-Hook-Version changes nothing."""
    headers = {"X-Hook-Source": "my-agent", "X-Hook-Version": "9.9.9"}
    for more, agent in (({}, "primary-agent"), (headers, "my-agent"), ({}, "my-agent")):
        assert bridge.post_hook(hook("Stop", sid), headers=more).status == 200
        assert bridge.session(sid)["agent_type"] == agent


@pytest.mark.spec("payload.lax payload.UserPromptSubmit.* payload.Stop.* payload.SessionEnd")
def test_lax_where_the_spec_is_lax(bridge: Bridge, sid: str) -> None:
    """D5: six events only need an object payload; a result is anything; null is absent."""
    lax = ("Stop", "SessionEnd", "UserPromptSubmit", "SubagentStop", "PreCompact", "Notification")
    ran = {"tool": "Bash", "params": {}, "success": False, "execution_time_ms": 1.5}
    results: list[Any] = [None, False, 0, "", [], {"deep": [1, {"x": None}]}]
    bridge.accept(
        *[hook(event, sid, {}) for event in lax],
        *[hook("PostToolUse", sid, ran | {"result": result}) for result in results],
        hook("Stop", sid, {"reason": "max_tokens", "context": "a string"}),
        hook("Stop", sid, {"reason": "safety", "context": {"a": 1}}),
        hook("SessionEnd", sid, {"exit_reason": "completion", "tools_used": ["Bash"]}),
        hook("SessionStart", sid, {"working_directory": "/w", "initial_prompt": None}),
    )


@on_both
def test_what_an_agents_own_session_end_lacks(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D47: it has a reason and no figures; the bridge counts from the last SessionStart."""
    turn = [hook(event, sid) for event in ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")]
    bridge.accept(hook("SessionEnd", sid, {"reason": "other"}), hook("SessionStart", sid), *turn)
    late = hook("SessionEnd", sid, {"reason": "other"}, occurred_at=now(-3600))
    long_ago = hook("SessionStart", sid, occurred_at=now(-60))  # delivered only now
    end = hook("SessionEnd", sid, {"reason": "other", "message_count": 7})
    lasted = parse_time(end["timestamp"]) - parse_time(long_ago["occurred_at"])
    accepted(bridge, [*turn, late, long_ago, end, hook("SessionEnd", sid)])

    def told() -> list[Any]:
        events = [event["payload"] for event in joined.events(sid)]
        return [event["payload"] for event in events if event["event"] == "SessionEnd"]

    joined.collect(lambda: len(told()) == 4, "four ends")
    ends = told()
    assert ends[:2] == [
        {"reason": "other"},
        {"reason": "other", "message_count": 4, "tools_used": ["Bash"]},
    ]
    assert ends[2].pop("duration_seconds") == lasted.total_seconds(), "by the agent's own times"
    assert ends[2] == {"reason": "other", "message_count": 7, "tools_used": []}
    assert ends[3] == PAYLOADS["SessionEnd"]


@pytest.mark.spec("hook.timestamp", "limit.skew")
def test_timestamps_come_out_in_utc(bridge: Bridge, sid: str, joined: Phone) -> None:
    """Within 5 minutes, either way, in any zone; one that is UTC is passed on unchanged."""
    for moment in (now(-310), now(310), now().replace("Z", "+02:00")):
        stale = hook("Stop", sid, timestamp=moment)
        assert_error(bridge.post_hook(stale), 400, "HOOK_STALE_TIMESTAMP")
    sent = now()
    odd = [now(7200).replace("Z", "+02:00"), sent[:-1], sent.replace("T", " "), f"{sent[:16]}Z"]
    odd = [now(-290), now(290), *odd]  # first: they do not keep for long
    before = len(joined.events(sid))
    bridge.accept(*[hook("Stop", sid, timestamp=moment) for moment in (*odd, sent)])
    joined.collect(lambda: len(joined.events(sid)) == before + 7, "seven events")
    told = [event["payload"]["timestamp"] for event in joined.events(sid)[before:]]
    recent = [event["timestamp"] for event in bridge.session(sid)["recent_events"][:7]]
    assert told == recent[::-1] and told[-1] == sent
    assert all(moment.endswith("Z") and parse_time(moment) for moment in told)


@on_both
@pytest.mark.spec("hook.event_id")
def test_the_same_event_id_twice(bridge: Bridge, sid: str, device: Phone) -> None:
    """D31: stored and sent once, the first body's content; what is no UUID is ignored."""
    device.ready().close()
    event_id = new_id()
    bodies = [prompt(sid, number, event_id=event_id) for number in (1, 2)]
    first, second, _ = bridge.accept(*bodies, prompt(sid, 3))
    assert first["event_id"] == second["event_id"] and second["received"] is True
    none = [prompt(sid, 4, event_id=odd) for odd in ("not-a-uuid", 7, None, ["x"]) * 2]
    ids = {answer["event_id"] for answer in bridge.accept(*none)}
    assert len(ids) == 8 and all(map(is_uuid, ids))
    stale = prompt(sid, 5, event_id=event_id, timestamp=now(-400))
    again = bridge.accept(stale)[0]
    assert again["event_id"] == event_id and again["received"] is True
    unknown = prompt(sid, 5, event_id=new_id(), timestamp=now(-400))
    body = accepted(bridge, [stale, unknown, prompt(sid, 6), stale | {"payload": 5}])
    assert body["event_ids"][0] == event_id and body["accepted"] == 2
    assert [error["index"] for error in body["errors"]] == [1, 3]
    assert bridge.session(sid)["hook_count"] == 11
    device.ready().wait_numbers(sid, [1, 3, *[4] * 8, 6])


@on_both
def test_the_same_event_id_at_the_same_time(bridge: Bridge, sid: str) -> None:
    """D31: eight posts of one event are one event."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(bridge.post_hook, [prompt(sid, 1, event_id=new_id())] * 8))
    assert [answer.status for answer in answers] == [200] * 8, [str(answer) for answer in answers]
    assert len({answer.json()["event_id"] for answer in answers}) == 1
    assert bridge.session(sid)["hook_count"] == 1


def accepted(bridge: Bridge, events: list[Any]) -> dict[str, Any]:
    answer = bridge.post_batch(events)
    assert answer.status == 200, answer
    body = dict(answer.json())
    assert body["received"] is True
    assert body["count"] == len(events) == body["accepted"] + body["rejected"], body
    assert len(body["event_ids"]) == body["accepted"] and all(map(is_uuid, body["event_ids"]))
    return body


@on_both
@pytest.mark.spec("http.hooks.batch", "batch.result", "batch.errors")
def test_bad_ones_in_the_middle(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D32: the good ones are stored in order, errors names the others by index."""
    bridge.watch(phone, sid)
    risk = PAYLOADS["PreToolUse"] | {"risk_level": "none"}
    bad: dict[int, tuple[Any, str]] = {
        1: (hook("Stop", sid, timestamp=now(-400)), "HOOK_STALE_TIMESTAMP"),
        2: ("not an object", "HOOK_INVALID_PAYLOAD"),
        4: (hook("PreToolUse", sid, risk), "HOOK_INVALID_PAYLOAD"),
        5: (hook("Stop", ""), "HOOK_INVALID_SESSION_ID"),
        6: (hook("Stop", sid, event="Boom"), "HOOK_INVALID_EVENT_TYPE"),
        8: (None, "HOOK_INVALID_PAYLOAD"),
    }
    good = [index for index in range(50) if index not in bad]
    events = [bad[index][0] if index in bad else prompt(sid, index) for index in range(50)]
    body = accepted(bridge, events)
    assert (body["accepted"], body["rejected"]) == (44, 6)
    rules = {error["index"]: error["validation_errors"][0]["rule"] for error in body["errors"]}
    assert rules == {index: rule for index, (_, rule) in bad.items()} and list(rules) == sorted(bad)
    received = phone.wait_numbers(sid, good)
    assert [event["payload"]["event_id"] for event in received] == body["event_ids"]
    assert accepted(bridge, [prompt(sid, "last")]).get("errors", []) == []
    unknown = new_session()
    body = accepted(bridge, [hook("Stop", unknown, timestamp="x"), {}])
    assert body["accepted"] == 0 and body["event_ids"] == [] and len(body["errors"]) == 2
    assert not bridge.knows(unknown)


def test_what_is_no_batch(bridge: Bridge, sid: str) -> None:
    """501 events are none; with and without the prefix (D2, D32)."""
    events = [prompt(sid, number) for number in range(501)]
    wrong: list[Any] = [{}, {"events": None}, {"events": {}}, [], 5, {"events": events}]
    for path in ("/hooks/batch", "/api/v1/hooks/batch"):
        for body in (*wrong, {"events": events[:500]}):
            answer = bridge.https().post(path, token=bridge.hook_token, json_body=body)
            if body in wrong:
                assert_error(answer, 400, "HOOK_INVALID_PAYLOAD")
        assert answer.json()["accepted"] == 500, answer
    assert bridge.session(sid)["hook_count"] == 1000
