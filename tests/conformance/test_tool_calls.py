"""Tool calls from hooks (D37): which call an event is about, and what becomes of it."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.approvals import (
    ask,
    assert_refused,
    assert_stands,
    decide,
    notifications,
    of,
    pending,
    post,
    pre,
)
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import EVENTS, hook, new_session

Event = Callable[[str], dict[str, Any]]


def before(id_: str | None = None, *, approval: bool = False, **params: Any) -> Event:
    """A call with this `tool_call_id`, of which null is none."""
    return lambda session_id: pre(session_id, params or None, approval=approval, tool_call_id=id_)


def after(id_: str | None = None, **params: Any) -> Event:
    return lambda session_id: post(session_id, params or None, tool_call_id=id_)


def other(event: Callable[..., dict[str, Any]], params: Any = None, /, **more: Any) -> Event:
    return lambda session_id: event(session_id, params, **more)


def turn_ends(session_id: str) -> dict[str, Any]:
    return hook("UserPromptSubmit", session_id)


REQUEST = other(pre, approval=True, permission_request=True)
# D37: what is posted, and which calls are told, asked about and ended, in order. `?…` is an id that
# the bridge made, each its own.
RULES: dict[str, tuple[list[Event], str]] = {
    "the id is tool_call_id or tool_use_id, else made": (
        [
            *(before("a", n=1), other(pre, {"n": 2}, tool_use_id="b"), before(n=5), before(n=6)),
            other(pre, {"n": 3}, tool_call_id="c", tool_use_id="d"),
            other(pre, {"n": 4}, tool_call_id=None, tool_use_id="e"),
        ],
        "call a, call b, call ?1, call ?2, call c, call e",
    ),
    "an id seen again with an equal open call is that call, whatever the order of its keys": (
        [
            before("x", approval=True, a="1", b={"c": 1, "d": None}),
            before("x", approval=True, b={"d": None, "c": 1}, a="1"),
        ],
        "asked x",
    ),
    "otherwise a new one: with other params, of another tool, when the first is closed": (
        [
            *(before("x"), before("x", command="rm -r build")),
            *(other(pre, tool="Shell", tool_call_id="x"), after("x"), before("x")),
        ],
        "call x, call ?1, call ?2, result x, call ?3",
    ),
    "a result is matched by its id": (
        [*map(before, "abc"), *(other(post, tool_use_id=one) for one in "cab")],
        "call a, call b, call c, result c, result a, result b",
    ),
    "else it is of the oldest open call of that tool and params": (
        [
            *(before("first", a=1, b=[2]), before("other", a=1, b=[3])),
            *(before("second", b=[2], a=1), after(b=[2], a=1)),
            *(after("an id that no call has", a=1, b=[2]), after(a=1, b=[3])),
        ],
        "call first, call other, call second, result first, result second, result other",
    ),
    "a result of no call is told, and closes none": (
        [
            *(before(approval=True, command="rm x"), after(command="never seen")),
            other(post, {"command": "rm x"}, tool="Shell"),
        ],
        "asked ?1, result ?2, result ?3",
    ),
    "the result of the second call under an id is not the first one's": (
        [before("x", approval=True, command="rm -r /"), before("x"), after("x")],
        "asked x, call ?1, result ?1",
    ),
    "a permission request is the open call, now waiting for a person, also when repeated": (
        [other(pre, tool="Read", tool_call_id="other"), before("x"), REQUEST, REQUEST],
        "call other, call x, asked x",
    ),
    "of equal ones it is the newest, which then is the one that ran": (
        [before("x"), before("y"), REQUEST, after()],
        "call x, call y, asked y, result y",
    ),
    "of none equal it is the oldest of that tool that nobody was asked about (D65)": (
        [before("x"), after("x"), before("y", command="pwd"), before("z", command="id"), REQUEST],
        "call x, result x, call y, call z, asked y",
    ),
    "without such a call it is one of its own": (
        [before("x"), after("x"), other(pre, tool="Read", tool_call_id="y"), REQUEST],
        "call x, result x, call y, asked ?1",
    ),
    "an end that comes after its turn is not the end of an equal call": (
        [before("x"), turn_ends, before("y"), after("x"), after("y")],
        "call x, call y, result x, result y",
    ),
    "a hook changed its parameters: it ends by its id, and not the equal one (D65)": (
        [before("x", command="a"), before("y", command="b"), after("x", command="b")],
        "call x, call y, result x",
    ),
}
KINDS = {"tool_call": "call", "approval_required": "asked", "tool_result": "result"}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.spec("record.id", "ws.tool_call", "event.PreToolUse")
def test_which_call_it_is(bridge: Bridge, sid: str, joined: Phone, rule: str) -> None:
    """Nothing is approved by a reused id; who is asked is notified, once, and nobody else is."""
    events, expected = RULES[rule]
    bridge.accept(*[event(sid) for event in events])
    bridge.fence(joined)
    bridge.fence(joined)
    told = {
        message["id"]: (KINDS[message["type"]], message["payload"]["tool_call_id"])
        for message in joined.messages
        if message["type"] in KINDS and message["payload"]["session_id"] == sid
    }
    for message in of(joined, "tool_call", sid):
        assert {"tool", "params"} < set(message["payload"]) and message["payload"]["description"]
    ids: dict[str, str] = {}
    wanted = map(str.split, expected.split(", "))
    for (kind, call_id), (wanted_kind, name) in zip(told.values(), wanted, strict=True):
        assert kind == wanted_kind and call_id == ids.setdefault(name, call_id), told
        assert name.startswith("?") or call_id == name, told
    assert len(set(ids.values())) == len(ids) and all(ids.values())
    asked = [call_id for kind, call_id in told.values() if kind == "asked"]
    notices = notifications(joined, sid, "approval_required")
    assert [notice["data"]["tool_call_id"] for notice in notices] == asked
    ended = [call_id for kind, call_id in told.values() if kind == "result"]
    assert pending(bridge, sid) == [call_id for call_id in asked if call_id not in ended]


@pytest.mark.spec("wscode.TOOL_CALL_NOT_FOUND", "wscode.SESSION_NOT_FOUND")
def test_ids_are_unique_within_a_session_only(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37: the same id in another session is another call, which neither ends nor decides this."""
    other, nowhere = new_session(), new_session()
    bridge.watch(joined, other)
    bridge.accept(
        pre(sid, approval=True, tool_call_id="x"),
        pre(other, approval=True, tool_call_id="x"),
        pre(other, {"n": 1}, approval=True, tool_call_id="y"),
        post(other, tool_call_id="x"),
    )
    assert joined.expect("tool_result", session_id=other)["payload"]["tool_call_id"] == "x"
    for session, code in {sid: "TOOL_CALL_NOT_FOUND", nowhere: "SESSION_NOT_FOUND"}.items():
        assert_refused(decide(joined, session, "y", "approved"), code, False, session)
    assert pending(bridge, sid) == ["x"] and pending(bridge, other) == ["y"]
    bridge.accept(hook("SessionEnd", other))


@pytest.mark.spec(
    "ws.tool_result result.* event.PostToolUse ws.tool_error error.tool_error.*",
    "wscode.TOOL_EXECUTION_FAILED",
)
def test_results(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D50: of a tool that failed a tool_error, and a tool_result that says the same."""
    bridge.accept(*[pre(sid, tool_call_id=name) for name in "xy"])
    failed = {"error": "make: *** Error 2", "interrupted": False}
    bridge.accept(
        post(sid, tool_call_id="x", result="README.md", execution_time_ms=12.7),
        post(sid, tool_call_id="y", success=False, result=failed),
    )
    payload = joined.expect("tool_result", session_id=sid, tool_call_id="x", tool="Bash")["payload"]
    result = payload["result"]
    assert result["success"] is True and result["content"] == "README.md"
    assert type(result.get("duration_ms", 12)) is int and result.get("duration_ms", 12) in (12, 13)
    assert result.get("error") is None and isinstance(result.get("metadata") or {}, dict)
    payload = joined.expect("tool_error", session_id=sid, tool_call_id="y", tool="Bash")["payload"]
    assert payload["code"] == "TOOL_EXECUTION_FAILED"
    assert "make: *** Error 2" in payload["message"] and isinstance(payload["details"], dict)
    assert isinstance(payload["retryable"], bool)
    assert type(payload["max_retries"]) is int and payload["max_retries"] >= 0
    payload = joined.expect("tool_result", session_id=sid, tool_call_id="y")["payload"]
    assert payload["result"]["success"] is False
    bridge.accept(post(sid, success=False, result="Exit code " + "9" * 5000))


@pytest.mark.spec("hook.picture")
def test_pictures_are_named(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D70: in results and events, in text and as blocks, not in parameters."""
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20 * 1024)).decode()
    block = {"type": "image", "source": {"type": "base64", "data": picture}}
    params = {"command": f"echo {picture}"}
    bridge.accept(
        post(sid, params, tool_call_id="x", result=[{"type": "text", "text": "Seen:"}, block]),
        post(
            sid, tool_call_id="y", result={"stdout": f"<img src=data:image/png;base64,{picture}>"}
        ),
        hook("Stop", sid, {"reason": "task_completed", "message": f"It is {picture}"}),
    )
    results = {
        call: joined.expect("tool_result", tool_call_id=call)["payload"]["result"] for call in "xy"
    }
    assert {call: result["content"] for call, result in results.items()} == {
        "x": "Seen:\n[image/png, 20 KB]",
        "y": "<img src=[image/png, 20 KB]>",
    }
    stop = joined.expect("agent_event", session_id=sid, event="Stop")["payload"]["payload"]
    assert stop["message"] == "It is [image/png, 20 KB]"
    events = [one["payload"]["payload"] for one in joined.events(sid)]
    block = events[0]["result"][1]
    kept = {"type": "image", "media_type": "image/png", "size": 20 * 1024 + 8}
    assert block == kept | {"attachment_id": block["attachment_id"]}
    assert events[0]["params"] == params
    assert results["x"]["pictures"] == results["y"]["pictures"] == [block]
    where = f"/api/v1/sessions/{sid}/attachments/{block['attachment_id']}"
    answer = bridge.get(where, joined.token)
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    assert answer.body == base64.b64decode(picture)


ENDING = ("UserPromptSubmit", "Stop", "SessionEnd", "SessionStart")


def started(session_id: str, source: str) -> dict[str, Any]:
    return hook(
        "SessionStart", session_id, {"working_directory": "/", "environment": {"source": source}}
    )


@pytest.mark.parametrize("event", ENDING)
@pytest.mark.spec("wscode.SESS_CLOSED")
@pytest.mark.usefixtures("database")
def test_not_granted_at_the_machine(bridge: Bridge, sid: str, joined: Phone, event: str) -> None:
    """D37, D38: still pending at the next prompt or end: rejected; a later decision is refused."""
    other = new_session()
    bridge.watch(joined, other)
    call_id, elsewhere = (ask(bridge, joined, one, {"command": "rm x"}) for one in (sid, other))
    bridge.accept(*[hook(silent, sid) for silent in EVENTS if silent not in ENDING[:3]])
    bridge.accept(started(sid, "compact"))
    assert pending(bridge, sid) == [call_id], "the other events say nothing about it"
    bridge.accept(started(sid, "resume") if event == "SessionStart" else hook(event, sid))
    told = joined.expect("notification", session_id=sid, notification_type="approval_decided")
    data, body = told["payload"]["data"], told["payload"]["body"]
    assert (data["tool_call_id"], data["decision"]) == (call_id, "rejected")
    assert data["result"] == "none" and "refused at the machine, interrupted" in body
    later = decide(joined, sid, call_id, "approved")
    if event == "SessionEnd":
        assert_refused(later, "SESS_CLOSED", False, sid)
        bridge.accept(hook("SessionStart", sid))
    else:
        assert_stands(later, "rejected", "agent")
    assert pending(bridge, sid) == [] and pending(bridge, other) == [elsewhere]
    bridge.accept(hook("SessionEnd", other))


def test_a_subagent_waits_while_its_agent_stops(bridge: Bridge, sid: str, joined: Phone) -> None:
    """D37 for an agent's own report of subagents that run: it stopped, and they still wait."""
    task = {"id": "a", "type": "subagent", "status": "running"}
    waits = {"reason": "task_completed", "context": {"background_tasks": [task]}}
    woken = {"prompt": "<task-notification>", "context": {"synthetic": True}}
    call_id = ask(bridge, joined, sid)
    bridge.accept(hook("Stop", sid, waits), hook("UserPromptSubmit", sid, woken))
    assert pending(bridge, sid) == [call_id]
    assert bridge.session(sid)["turn"] == "waiting" and bridge.session(sid)["doing"]
    bridge.accept(post(sid, {"n": 1}, tool_call_id=call_id), hook("Stop", sid, waits))
    assert bridge.session(sid)["turn"] == "working", "it is not done"
    bridge.accept(hook("Stop", sid, waits | {"context": {"background_tasks": []}}))
    told = joined.expect("notification", session_id=sid, notification_type="approval_decided")
    assert told["payload"]["data"]["decision"] == "approved"
    assert bridge.session(sid)["turn"] == "idle"
    joined.expect("notification", session_id=sid, notification_type="task_complete")
    assert len(notifications(joined, sid, "task_complete")) == 1


@pytest.mark.spec("notification.priority")
@pytest.mark.parametrize("how", ["rejected", "rejected Stop", "rejected SessionEnd", "modified"])
def test_a_rejected_call_that_ran_anyway(bridge: Bridge, sid: str, joined: Phone, how: str) -> None:
    """D37: a high notification of type error, also after turn or session; the decision stands."""
    decision, _, then = how.partition(" ")
    call_id = ask(bridge, joined, sid, tool_call_id="x")
    decide(joined, sid, call_id, decision)
    ends = [hook(then, sid)] if then else []
    bridge.accept(*ends, post(sid, {"n": 1}, tool_call_id="x"))
    assert joined.expect("tool_result", session_id=sid)["payload"]["tool_call_id"] == call_id
    bridge.fence(joined)
    assert len(notifications(joined, sid, "approval_decided")) == 1
    alarms = notifications(joined, sid, "error")
    if decision == "modified":
        assert not alarms, "what was granted may run"
        return
    (alarm,) = alarms
    assert (alarm["priority"], alarm["data"]["tool_call_id"]) == ("high", call_id)
    assert alarm["title"] and alarm["body"]
    if then != "SessionEnd":
        assert_stands(decide(joined, sid, call_id, "approved"), "rejected", "")
