"""Which of several processes runs an agent, and what becomes of it when that one dies or Redis does (D31, D35, D39, D40, D46)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.agent_tools import Script, begun, http_say, status, stream, wait_status
from tests.conformance.agents import ask, begin, end, log_of, say, start, words
from tests.conformance.approvals import decide, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, new_session
from tests.faults.quick import QuickBridge, nursery
from tests.servers import Postgres, Redis

pytestmark = pytest.mark.spec("processes")

LEASE = 15


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain", "slow")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One of our own: it is taken away."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres_server: Postgres, redis: Redis, script: Script) -> Iterator[tuple[Bridge, Bridge]]:
    """Two processes with data directories of their own, the same tokens, roots, agents, database and Redis."""
    more = {"database_url": postgres_server.create_database(), "redis_url": redis.url, "BRIDGE_ACP_AGENTS": script.setting}
    first = QuickBridge(tmp_path_factory.mktemp("first"), **more)
    tokens = {"BRIDGE_HOOK_TOKEN": first.hook_token, "BRIDGE_ADMIN_TOKEN": first.admin_token, "BRIDGE_ALLOWED_ROOTS": str(first.root)}
    second = QuickBridge(tmp_path_factory.mktemp("second"), **tokens, **more)
    second.root = first.root
    first.start()
    second.start()
    yield first, second
    for bridge in (first, second):
        if bridge.process is not None and bridge.process.poll() is None:
            bridge.stop()
        nursery.forget(bridge.environment)
    script.assert_gone()


@pytest.fixture
def near(pair: tuple[Bridge, Bridge]) -> Iterator[Phone]:
    yield from _phone(pair[0], pair[0])


@pytest.fixture
def far(pair: tuple[Bridge, Bridge]) -> Iterator[Phone]:
    yield from _phone(pair[1], pair[0])


def _phone(bridge: Bridge, mints: Bridge) -> Iterator[Phone]:
    """A ready phone that does not check the pin: each process has its own certificate here."""
    phone = Phone(bridge.port, mints.pairing().token, None)
    yield phone.ready()
    phone.vanish()


def test_http_at_the_other_process(pair: tuple[Bridge, Bridge], near: Phone) -> None:
    """D39, D46: POST /sessions/:id/events wherever it arrives: accepted true, and the agent answers once."""
    sid = begin(pair[0], near, agent="plain")
    answer = http_say(pair[1], sid, {"type": "user_message", "content": "from elsewhere"})
    assert answer.status == 202 and answer.json()["accepted"] is True
    near.expect("stream_end", session_id=sid)
    assert words(of(near, "stream_chunk", sid)).count("from elsewhere") == 1
    end(near, sid)


def test_one_id_on_both_at_once(pair: tuple[Bridge, Bridge], script: Script, near: Phone, far: Phone) -> None:
    """D22: a session with an id of the clients' own is created once, whoever was first; both are in it."""
    sid, agents = new_session(), len(script.lines("new"))
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda phone: start(phone, pair[0].root, sid, agent="slow"), (near, far)))
    assert [answer["type"] for answer in answers] == ["session_ready"] * 2, answers
    assert len(script.lines("new")) == agents + 1
    say(far, sid, "who is there")
    for phone in (near, far):
        phone.expect("stream_end", session_id=sid)
    assert stream(near.messages, sid) == stream(far.messages, sid)
    end(near, sid)


def test_a_repeated_creation_at_the_other_process(pair: tuple[Bridge, Bridge], script: Script, near: Phone) -> None:
    """D31: the same session_start with session_id null, sent again by the same device to the other process, is that session, joined there."""
    body = {"agent": "plain", "session_id": None, "working_directory": str(pair[0].root), "resume": False}
    id_, agents = new_id(), len(script.lines("new"))
    near.send("session_start", body, id=id_)
    first = near.expect("session_ready")
    near.vanish()
    elsewhere = Phone(pair[1].port, near.token, None).ready()
    elsewhere.send("session_start", body, id=id_)
    again = elsewhere.expect("session_ready")
    assert again["payload"]["session_id"] == first["payload"]["session_id"] and len(script.lines("new")) == agents + 1
    assert "5 characters" in words(ask(elsewhere, again["payload"]["session_id"], "hello"))
    end(elsewhere, again["payload"]["session_id"])
    elsewhere.close()


@pytest.mark.parametrize("command", ["/rate x 6000 100", "/ask make test"])
def test_an_interrupt_from_the_other_process(pair: tuple[Bridge, Bridge], near: Phone, far: Phone, command: str) -> None:
    """D40: text, or a call that waits, is stopped from there, at once; both phones see it end with stop, and the next turn is the agent's."""
    sid = begin(pair[0], near, agent="plain")
    far.join(sid)
    say(near, sid, command)
    far.expect("approval_required" if "ask" in command else "stream_chunk", session_id=sid)
    began = time.monotonic()
    far.send("session_interrupt", {"session_id": sid})
    for phone in (near, far):
        phone.expect("stream_end", session_id=sid, finish_reason="stop")
    assert time.monotonic() - began < 5, "it yielded, it was not killed"
    assert "6 characters" in words(ask(far, sid, "onward")) and status(pair[1], sid) == "active"
    end(far, sid)


@pytest.mark.spec("decision.forwarded")
def test_a_decision_after_its_phone_has_vanished(pair: tuple[Bridge, Bridge], script: Script, near: Phone) -> None:
    """Issue, Shown by: an approval answered from a second phone, on another process, after the first phone has vanished: a real process is told."""
    sid, before = begin(pair[0], near, agent="plain"), len(script.lines("decided"))
    say(near, sid, "/ask make test")
    call_id = near.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
    near.vanish()
    far = Phone(pair[1].port, pair[0].pairing().token, None).ready()
    far.expect("approval_required", session_id=sid, tool_call_id=call_id)
    assert decide(far, sid, call_id, "approved")["payload"]["forwarded"] is True
    eventually(lambda: len(script.lines("decided")) > before)
    assert script.lines("decided")[-1]["outcome"]["optionId"] == "allow_once"
    far.join(sid)
    eventually(lambda: [message for message in log_of(far, sid) if message["type"] == "tool_result"])
    end(far, sid)
    far.close()


def test_without_redis(pair: tuple[Bridge, Bridge], redis: Redis, near: Phone, far: Phone) -> None:
    """D46: Redis down: what is said at one process still reaches the agent at the other, and its answer comes back, from the database."""
    sid = begin(pair[0], near, agent="plain")
    far.join(sid)
    redis.stop()
    try:
        said = words(ask(far, sid, "in spite of it"))
        assert "in spite of it" in said
        say(far, sid, "/ask make test")
        call_id = near.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
        assert decide(far, sid, call_id, "rejected")["payload"]["forwarded"] is True
        far.collect(lambda: len([m for m in of(far, "stream_end", sid) if m["payload"]["finish_reason"] == "stop"]) == 2, "the end of the turn")
        near.collect(lambda: len(of(near, "stream_end", sid)) == len(of(far, "stream_end", sid)), "the same at the other")
        assert stream(near.messages, sid) == stream(far.messages, sid)
    finally:
        redis.start()
    near.untaken.clear()
    assert "9 characters" in words(ask(near, sid, "and again"))
    end(near, sid)


def test_an_owner_that_is_stopped(pair: tuple[Bridge, Bridge], script: Script, near: Phone, far: Phone) -> None:
    """D35: a process that ends in order hands over at once: paused, the turn ended, and resumed at the other by whoever watches there."""
    first, second = pair
    sid = begun(first, near, "/rate y 6000 100", "plain")
    far.join(sid)
    far.expect("stream_chunk", session_id=sid)
    near.vanish()
    first.stop()
    try:
        assert status(second, sid) == "paused", "before it has ended"
        assert far.expect("stream_end", session_id=sid)["payload"]["finish_reason"] == "error"
        script.assert_gone()
        assert start(far, first.root, sid, resume=True)["type"] == "session_ready"
        assert "6 characters" in words(ask(far, sid, "onward"))
    finally:
        first.start()
    assert status(first, sid) == "active"
    end(far, sid)


def test_an_owner_that_is_killed(pair: tuple[Bridge, Bridge], script: Script, near: Phone, far: Phone) -> None:
    """D35, D46: kill -9 in the middle of a turn: within its lease the other process ends the stream and pauses the session; resumed there, no prompt is sent twice;
    the agent itself ends with its bridge, and what it started is ended at the latest when that bridge comes back, which takes nothing that is not its own."""
    first, second = pair
    sid = begin(first, near, agent="plain")
    ask(near, sid, "/spawn")
    say(near, sid, "/rate z 6000 100")
    far.join(sid)
    far.expect("stream_chunk", session_id=sid)
    agents = {pid for pid, command in script.processes().items() if " plain " in command}
    first.kill()
    died = time.monotonic()
    ended = far.expect("stream_end", 2 * LEASE, session_id=sid, finish_reason="error")
    wait_status(second, sid, "paused", 5)
    assert time.monotonic() - died < 2 * LEASE
    assert not agents & set(script.processes()), "the agent has ended with its bridge"
    told = [m["payload"]["message_id"] for m in stream(log_of(far, sid), sid) if m["type"] == "stream_end"]
    assert told.count(ended["payload"]["message_id"]) == 1
    assert start(far, first.root, sid, resume=True)["type"] == "session_ready"
    assert "6 characters" in words(ask(far, sid, "onward"))
    assert script.prompts().count("/rate z 6000 100") == 1
    first.start()
    eventually(lambda: len(script.processes()) == 1, 20)
    assert "10 characters" in words(ask(far, sid, "still here")) and status(second, sid) == "active"
    end(far, sid)
