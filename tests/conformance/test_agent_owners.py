"""Sessions that the bridge runs, on several processes: a socket anywhere reaches the agent, and
what becomes of it when its process dies or Redis does (D31, D35, D36, D38 to D40, D46)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conformance.agent_tools import (
    Script,
    begun,
    http_say,
    status,
    stream,
    tidied,
    wait_status,
)
from tests.conformance.agents import (
    answer_to,
    ask,
    begin,
    end,
    log_of,
    reasons,
    say,
    send_start,
    start,
    tool,
    words,
)
from tests.conformance.approvals import assert_refused, decide, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import PATIENCE, Phone
from tests.conformance.samples import new_id, new_session
from tests.faults.quick import QuickBridge, nursery
from tests.servers import Postgres, Redis

pytestmark = pytest.mark.spec("processes")

GRACE = 8
LIMIT = 3  # sessions at once, on all processes together
Pair = tuple[Bridge, Bridge]


@dataclass
class Processes:
    """Two that the tests use, and one that is killed while they do; data directories of their own,
    the same tokens, roots, agents, database and Redis.
    """

    pair: Pair
    killed: Bridge


@dataclass
class Orphaned:
    """The sessions of the process that was killed: one in the middle of a turn, one in which
    somebody thinks about a call; and a phone on another process that has joined both.
    """

    speaking: str
    asking: str
    call_id: str
    agents: set[int]  # the processes of the first one's agent
    phone: Phone  # not connected


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"), "plain", "told")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """The same as `plain`, with a journal of its own: the agent of the process that is killed."""
    return Script(tmp_path_factory.mktemp("mortal"), "mortal")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One of our own: it is taken away."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def processes(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Postgres,
    redis: Redis,
    script: Script,
    mortal: Script,
) -> Iterator[Processes]:
    more = {
        "database_url": postgres_server.create_database(),
        "redis_url": redis.url,
        "BRIDGE_ACP_AGENTS": f"{script.setting};{mortal.setting}",
    }
    more |= {"BRIDGE_SESSION_GRACE_SECONDS": str(GRACE), "BRIDGE_MAX_SESSIONS": str(LIMIT)}
    first = QuickBridge(tmp_path_factory.mktemp("first"), **more)
    tokens = {
        "BRIDGE_HOOK_TOKEN": first.hook_token,
        "BRIDGE_ADMIN_TOKEN": first.admin_token,
        "BRIDGE_ALLOWED_ROOTS": str(first.root),
    }
    others = [
        QuickBridge(tmp_path_factory.mktemp(name), **tokens, **more)
        for name in ("second", "killed")
    ]
    first.start()
    for bridge in others:
        bridge.root = first.root
        bridge.spawn()
    for bridge in others:
        bridge.wait_ready()
    yield Processes((first, others[0]), others[1])
    if others[1].process is not None and others[1].process.poll() is not None:
        # a test has failed before it did so; what its agents had started is ended now
        others[1].start()
    for bridge in (first, *others):
        if bridge.process is not None and bridge.process.poll() is None:
            bridge.stop()
        nursery.forget(bridge.environment)
    script.assert_gone()
    mortal.assert_gone()


@pytest.fixture(scope="module")
def pair(processes: Processes) -> Pair:
    return processes.pair


@pytest.fixture(scope="module")
def orphaned(processes: Processes, mortal: Script) -> Iterator[Orphaned]:
    """Sessions whose process is killed as early as can be, and what becomes of them while the other
    tests run: its lease has to pass.
    """
    near, far = (
        Phone(bridge.port, processes.pair[0].pairing().token, None).ready()
        for bridge in (processes.killed, processes.pair[1])
    )
    asking, speaking = begin(processes.killed, near), begin(processes.killed, near, agent="mortal")
    ask(near, asking, "remember this")
    call_id = tool(near, asking)["tool_call_id"]
    ask(near, speaking, "/spawn")
    say(near, speaking, "/rate z 1200 20")
    for sid in (asking, speaking):
        far.join(sid)
    far.expect("stream_chunk", session_id=speaking)
    agents = {pid for pid, command in mortal.processes().items() if " mortal " in command}
    processes.killed.kill()
    near.vanish()
    far.vanish()
    yield Orphaned(speaking, asking, call_id, agents, far)
    far.vanish()


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest, pair: Pair, orphaned: Orphaned) -> Iterator[None]:
    """A test that fails leaves nothing to the next one. The killed process's lease runs out while
    the tests run.
    """
    with tidied(request, *pair, spared=(orphaned.speaking, orphaned.asking)):
        yield


@pytest.fixture
def near(pair: Pair) -> Iterator[Phone]:
    yield from _phone(pair[0], pair[0])


@pytest.fixture
def far(pair: Pair) -> Iterator[Phone]:
    yield from _phone(pair[1], pair[0])


def _phone(bridge: Bridge, mints: Bridge) -> Iterator[Phone]:
    """A ready phone that does not check the pin: each process has its own certificate here."""
    phone = Phone(bridge.port, mints.pairing().token, None)
    yield phone.ready()
    phone.vanish()


# -- from the other process ------------------------------------------------------------------------


def test_a_phone_on_the_other_process(pair: Pair, near: Phone, far: Phone) -> None:
    """Issue: commands from a socket on another process, and over HTTP, reach the agent: joined,
    talked to, ended from there.
    """
    sid = begin(pair[0], near)
    seen = ask(near, sid, "from the owner's process")
    far.join(sid)
    assert far.expect("replay_buffer", session_id=sid)["payload"]["messages"] == seen
    assert words(ask(far, sid, "from the other process")).endswith("from the other process")
    before = len(of(near, "stream_chunk", sid))
    answer = http_say(pair[1], sid, {"type": "user_message", "content": "by HTTP"})
    assert answer.status == 202 and answer.json()["accepted"] is True, "D39, D46: wherever it is"
    near.collect(lambda: len(of(near, "stream_end", sid)) == 3, "three answers")
    assert words(of(near, "stream_chunk", sid)[before:]).count("by HTTP") == 1
    end(far, sid)
    near.expect("session_end", session_id=sid)
    assert status(pair[1], sid) == "closed"


def test_one_id_on_both_at_once(pair: Pair, script: Script, near: Phone, far: Phone) -> None:
    """D22: a session with an id of the clients' own is created once, whoever was first; both are in
    it.
    """
    sid, agents = new_session(), len(script.lines("new"))
    asked = {phone: send_start(phone, pair[0].root, sid, "told") for phone in (near, far)}
    eventually(lambda: pair[0].knows(sid) and script.processes())
    script.go.touch()
    for phone, id_ in asked.items():
        assert answer_to(phone, id_)["type"] == "session_ready"
    assert len(script.lines("new")) == agents + 1
    say(far, sid, "who is there")
    for phone in (near, far):
        phone.expect("stream_end", session_id=sid)
    assert stream(near.messages, sid) == stream(far.messages, sid)
    end(near, sid)


def test_a_repeated_creation_at_the_other_process(pair: Pair, script: Script, near: Phone) -> None:
    """D31: the same session_start with session_id null, sent again by the same device to the other
    process, is that session, joined there.
    """
    body = {
        "agent": "plain",
        "session_id": None,
        "working_directory": str(pair[0].root),
        "resume": False,
    }
    id_, agents = new_id(), len(script.lines("new"))
    near.send("session_start", body, id=id_)
    first = near.expect("session_ready")
    near.vanish()
    elsewhere = Phone(pair[1].port, near.token, None).ready()
    elsewhere.send("session_start", body, id=id_)
    again = elsewhere.expect("session_ready")
    assert (
        again["payload"]["session_id"] == first["payload"]["session_id"]
        and len(script.lines("new")) == agents + 1
    )
    assert "5 characters" in words(ask(elsewhere, again["payload"]["session_id"], "hello"))
    end(elsewhere, again["payload"]["session_id"])
    elsewhere.close()


@pytest.mark.parametrize("command", ["/rate x 1200 20", "/ask make test"])
def test_an_interrupt_from_the_other_process(
    pair: Pair, script: Script, near: Phone, far: Phone, command: str
) -> None:
    """D40: text, or a call that waits, is stopped from there, at once; both phones see it end with
    stop, and the next turn is the agent's; D35: which is ended from there too, in the middle of it.
    """
    sid = begin(pair[0], near, agent="plain")
    far.join(sid)
    say(near, sid, command)
    far.expect("approval_required" if "ask" in command else "stream_chunk", session_id=sid)
    far.send("session_interrupt", {"session_id": sid})
    for phone in (near, far):
        phone.expect("stream_end", session_id=sid, finish_reason="stop")
    assert "6 characters" in words(ask(far, sid, "onward")) and status(pair[1], sid) == "active", (
        "it yielded, it was not killed"
    )
    agents = script.processes().keys()
    say(far, sid, "/rate x 1200 20")
    far.expect("stream_chunk", session_id=sid)
    end(far, sid)
    eventually(lambda: not agents & script.processes().keys())


@pytest.mark.spec("decision.forwarded")
def test_a_decision_after_its_phone_has_vanished(pair: Pair, script: Script, near: Phone) -> None:
    """Issue, Shown by: an approval answered from a second phone, on another process, after the
    first phone has vanished: a real process is told.
    """
    sid, before = begin(pair[0], near, agent="plain"), len(script.lines("decided"))
    say(near, sid, "/ask make test")
    call_id = near.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
    near.vanish()
    far = Phone(pair[1].port, pair[0].pairing().token, None).ready()
    far.expect("approval_required", session_id=sid, tool_call_id=call_id)
    far.join(sid)
    buffer = far.expect("replay_buffer", session_id=sid)["payload"]["messages"]
    assert "approval_required" not in [message["type"] for message in buffer], "it has that"
    assert decide(far, sid, call_id, "approved")["payload"]["forwarded"] is True
    eventually(lambda: len(script.lines("decided")) > before)
    assert script.lines("decided")[-1]["outcome"]["optionId"] == "allow_once"
    eventually(
        lambda: [message for message in log_of(far, sid) if message["type"] == "tool_result"]
    )
    end(far, sid)
    far.close()


def test_without_redis(pair: Pair, redis: Redis, near: Phone, far: Phone) -> None:
    """D46: Redis down: what is said at one process still reaches the agent at the other, and its
    answer comes back, from the database.
    """
    sid = begin(pair[0], near, agent="plain")
    far.join(sid)
    redis.stop()
    try:
        said = words(ask(far, sid, "in spite of it"))
        assert "in spite of it" in said
        say(far, sid, "/ask make test")
        call_id = near.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
        assert decide(far, sid, call_id, "rejected")["payload"]["forwarded"] is True
        far.collect(lambda: reasons(far, sid).count("stop") == 2, "the end of the turn")
        near.collect(
            lambda: len(of(near, "stream_end", sid)) == len(of(far, "stream_end", sid)),
            "the same at the other",
        )
        assert stream(near.messages, sid) == stream(far.messages, sid)
    finally:
        redis.start()
    near.untaken.clear()
    assert "9 characters" in words(ask(near, sid, "and again"))
    end(near, sid)


# -- processes that end ----------------------------------------------------------------------------


def test_an_owner_that_is_stopped(pair: Pair, script: Script, near: Phone, far: Phone) -> None:
    """D35: a process that ends in order hands over at once: paused, the turn ended, and resumed at
    the other by whoever watches there.
    """
    first, second = pair
    sid = begun(first, near, "/rate y 1200 20", "plain")
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


def test_an_owner_that_is_killed(
    processes: Processes, mortal: Script, far: Phone, orphaned: Orphaned
) -> None:
    """D35, D38, D46: kill -9 in the middle of a turn, and while somebody thinks: within its lease
    another process ends the stream, rejects what was pending and pauses the sessions; resumed
    there, no prompt is sent twice; the agent itself ends with its bridge, and what it started is
    ended at the latest when that bridge comes back, which takes nothing that is not its own."""
    root, killed = processes.killed.root, processes.killed
    sids = (orphaned.speaking, orphaned.asking)
    for sid in sids:
        wait_status(processes.pair[1], sid, "paused", PATIENCE)
    assert not orphaned.agents & mortal.processes().keys(), "the agent has ended with its bridge"
    orphaned.phone.ready()
    told = orphaned.phone.expect(
        "notification", session_id=orphaned.asking, notification_type="approval_decided"
    )
    decided = told["payload"]["data"]
    assert (decided["tool_call_id"], decided["decision"]) == (orphaned.call_id, "rejected")
    assert decided["reason"] == "session_paused"
    assert [start(far, root, sid, resume=True)["type"] for sid in sids] == ["session_ready"] * 2
    kept = stream(log_of(far, orphaned.speaking), orphaned.speaking)
    ends = [m["payload"]["finish_reason"] for m in kept if m["type"] == "stream_end"]
    assert ends == ["stop", "error"], "the turn that was cut has one end"
    assert "6 characters" in words(ask(far, orphaned.speaking, "onward"))
    assert mortal.prompts().count("/rate z 1200 20") == 1
    assert words(ask(far, orphaned.asking, "on another process")).endswith("on another process")
    assert len([m for m in log_of(far, orphaned.asking) if m["type"] == "approval_required"]) == 1
    killed.start()
    eventually(lambda: len(mortal.processes()) == 1, 20)
    assert "10 characters" in words(ask(far, orphaned.speaking, "still here"))
    assert [status(killed, sid) for sid in sids] == ["active"] * 2, (
        "D35: whoever comes back takes only what is still its own"
    )
    for sid in sids:
        end(far, sid)


# -- all together: last, when the killed one's sessions are no more --------------------------------


def test_limits_and_grace_hold_across(pair: Pair, near: Phone, far: Phone) -> None:
    """D36, D46: sessions count on all processes; somebody who watches on another process keeps a
    session alive.
    """
    first, second = pair
    kept = [begin(first, near), begin(first, near), begin(second, far)]
    assert_refused(start(far, first.root), "SESS_LIMIT_REACHED", True)
    far.join(kept[0])
    near.vanish()
    far.expect("session_end", session_id=kept[1], reason="timeout")
    assert [status(first, sid) for sid in (kept[0], kept[2])] == ["active", "active"]
    for sid in (kept[0], kept[2]):
        end(far, sid)
