"""Sessions that the bridge runs, on several processes, which others may take for dead (D22, D31,
D35, D36, D38 to D40, D46).
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge_project.kernel import limits
from tests.conformance.agent_tools import (
    Script,
    begun,
    bridges_of,
    http_say,
    script_of,
    status,
    stream,
    wait_status,
)
from tests.conformance.agents import ask, asked, begin, end, log_of, resume, say, send_start, words
from tests.conformance.approvals import assert_refused, decide, of
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, new_session
from tests.conformance.terminal import Terminal
from tests.faults.quick import QuickBridge
from tests.servers import Postgres, Redis, own, wait_until
from tests.short import SHORT, short

pytestmark = pytest.mark.spec("processes")

GRACE, LEASE = 20, SHORT["LEASE_SECONDS"]
LIMIT = 3  # sessions at once, on all processes together
Pair = tuple[Bridge, Bridge]

postgres_server, redis_server = own(Postgres), own(Redis)
script = script_of("plain", "told")
# two that the tests use, and one that is killed
SETTINGS = {"BRIDGE_SESSION_GRACE_SECONDS": str(GRACE), "BRIDGE_MAX_SESSIONS": str(LIMIT)}
HASTY = short("LEASE_SECONDS", "LEASE_RENEWAL_SECONDS")  # taken for dead sooner
three = bridges_of(3, "script", **SETTINGS, **HASTY)


@pytest.fixture(scope="module")
def pair(three: list[QuickBridge]) -> Pair:
    return three[0], three[1]


@pytest.fixture
def near(pair: Pair) -> Iterator[Phone]:
    with pair[0].phones(1) as (phone,):
        yield phone


@pytest.fixture
def far(pair: Pair) -> Iterator[Phone]:
    """It does not check the pin: each process has its own certificate here."""
    phone = Phone(pair[1].port, pair[0].device_token())
    yield phone.ready()
    phone.vanish()


def test_one_id_on_both_at_once(pair: Pair, script: Script, near: Phone, far: Phone) -> None:
    """D22: a session with an id of the clients' own is created once, however many ask for it while
    its agent starts; D35: created, until the agent is ready, then active. D39, D46: all are in it,
    and it is talked to, also over HTTP, and ended from each process.
    """
    sid, agents = new_session(), len(script.lines("new"))
    beside = pair[0].phone().ready()
    phones = (near, beside, far)
    starts = {phone: send_start(phone, pair[0].root, sid, "told") for phone in phones}
    wait_until(lambda: pair[0].knows(sid) and script.processes())
    assert status(pair[1], sid) == "created"
    script.go.touch()
    for phone, id_ in starts.items():
        assert phone.answer_to(id_)["payload"]["status"] == "ready"
    assert status(pair[1], sid) == "active" and len(script.lines("new")) == agents + 1
    answer = http_say(pair[1], sid)
    assert answer.status == 202 and answer.json()["accepted"] is True, "wherever it is"
    for phone in phones:
        phone.expect("stream_end", session_id=sid)
    assert stream(near.messages, sid) == stream(beside.messages, sid) == stream(far.messages, sid)
    assert "2 characters" in words(stream(near.messages, sid))
    end(far, sid)
    near.expect("session_end", session_id=sid)
    assert status(pair[1], sid) == "closed"
    beside.close()


def test_a_repeated_creation_at_the_other_process(pair: Pair, script: Script, near: Phone) -> None:
    """D31: the same session_start with session_id null is that session, joined there."""
    body = {"agent": "plain", "session_id": None, "resume": False}
    body["working_directory"] = str(pair[0].root)
    id_, agents = new_id(), len(script.lines("new"))
    first = send(near, "session_start", id_, body)
    near.vanish()
    elsewhere = Phone(pair[1].port, near.token).ready()
    sid = send(elsewhere, "session_start", id_, body)["payload"]["session_id"]
    assert sid == first["payload"]["session_id"] and len(script.lines("new")) == agents + 1
    assert "5 characters" in words(ask(elsewhere, sid, "hello"))
    end(elsewhere, sid)
    elsewhere.close()


@pytest.mark.parametrize("command", ["/rate x 1200 20", "/ask make test"])
def test_an_interrupt_from_the_other_process(
    pair: Pair, script: Script, near: Phone, far: Phone, command: str
) -> None:
    """D40: the turn ends, the agent goes on; D35: it is ended from there too, in a turn."""
    sid = begin(pair[0], near, agent="plain")
    far.join(sid)
    say(near, sid, command)
    far.expect("approval_required" if "ask" in command else "stream_chunk", session_id=sid)
    far.send("session_interrupt", {"session_id": sid})
    for phone in (near, far):
        phone.expect("stream_end", session_id=sid, finish_reason="stop")
    assert "6 characters" in words(ask(far, sid, "onward"))
    assert status(pair[1], sid) == "active", "it yielded, it was not killed"
    agents = script.processes().keys()
    say(far, sid, "/rate x 1200 20")
    far.expect("stream_chunk", session_id=sid)
    end(far, sid)
    wait_until(lambda: not agents & script.processes().keys())


def test_without_redis(pair: Pair, redis_server: Redis, near: Phone, far: Phone) -> None:
    """D46: a prompt and a decision still reach the agent at the other process."""
    sid = begin(pair[0], near, agent="plain")
    far.join(sid)
    redis_server.stop()
    try:
        assert "in spite of it" in words(ask(far, sid, "in spite of it"))
        call_id = asked(far, sid)
        assert decide(far, sid, call_id, "rejected")["payload"]["forwarded"] is True
        far.expect("stream_end", session_id=sid, finish_reason="stop")
        near.collect(
            lambda: len(of(near, "stream_end", sid)) == len(of(far, "stream_end", sid)),
            "the same at the other",
        )
        assert stream(near.messages, sid) == stream(far.messages, sid)
    finally:
        redis_server.start()
    near.untaken.clear()
    assert "9 characters" in words(ask(near, sid, "and again"))
    end(near, sid)


@pytest.mark.slow
def test_a_process_that_slept(pair: Pair, script: Script, near: Phone, far: Phone) -> None:
    """D46, D79: another process goes on with its sessions; awake again, it leaves them alone."""
    first, second = pair
    script.assert_gone()
    sid = begun(first, near, "/rate old 1500 50")
    with first.asleep():
        far.join(sid)
        far.collect(lambda: "old-1200 " in words(stream(far.messages, sid)), "what goes on")
    far.expect("stream_end", session_id=sid, finish_reason="stop")
    said = words([one for one in log_of(far, sid) if one["type"] == "stream_chunk"])
    assert said == "".join(f"old-{number} " for number in range(1500))
    assert len(script.processes()) == 1 and status(second, sid) == "active"
    near.again().join(sid)
    assert words(ask(near, sid, "new")).endswith("new")
    end(far, sid)
    script.assert_gone()


@pytest.mark.slow
def test_processes_whose_database_was_away_are_not_dead(
    pair: Pair, script: Script, postgres_server: Postgres, near: Phone, far: Phone
) -> None:
    """D46: whoever looks first leaves the others the time to renew their leases. D22: and a phone
    that was gone has the grace time from when it can come back.
    """
    script.assert_gone()
    both = zip(pair, (near, far), strict=True)
    sessions = [(bridge, phone, begin(bridge, phone, agent="plain")) for bridge, phone in both]
    agents = script.processes().keys()
    connected = wait_until(lambda: pair[0].health().get("active_websockets"))
    near.vanish()
    wait_until(lambda: pair[0].health().get("active_websockets", connected) < connected)
    time.sleep(2 * limits.POLL_SECONDS)  # for its owner to see that nobody watches the session
    postgres_server.stop()
    far.stay(max(GRACE, LEASE) + 1)
    postgres_server.start()
    for bridge in pair:
        wait_until(lambda bridge=bridge: bridge.health().get("status") == "healthy")
    far.stay(2 * limits.POLL_SECONDS)  # it looks again
    near.ready().join(sessions[0][2])
    for _, phone, sid in sessions:
        assert words(ask(phone, sid, "still here")).endswith("still here")
    assert script.processes().keys() == agents
    for _, phone, sid in sessions:
        end(phone, sid)


@pytest.mark.slow
def test_an_owner_that_is_killed_leaves_its_agents(
    three: list[QuickBridge], script: Script, far: Phone
) -> None:
    """D79: when its lease has ended another process of the machine goes on with them."""
    first, second, killed = three
    near = Phone(killed.port, first.pairing().token).ready()
    asking, speaking = sids = begin(killed, near), begin(killed, near, agent="plain")
    call_id = asked(near, asking, '/tool Bash {"command": "make test"}')
    say(near, speaking, "/rate w 600 20")
    for sid in sids:
        far.join(sid)
    far.expect("stream_chunk", session_id=speaking)
    killed.kill()
    near.vanish()
    far.expect("stream_end", session_id=speaking, finish_reason="stop")
    said = words([one for one in log_of(far, speaking) if one["type"] == "stream_chunk"])
    assert said == "".join(f"w-{number} " for number in range(600))
    assert status(second, asking) == "active"
    decide(far, asking, call_id, "approved")
    far.expect("tool_result", session_id=asking, tool_call_id=call_id)
    killed.start()
    assert [status(second, sid) for sid in sids] == ["active", "active"]
    for sid in sids:
        end(far, sid)


@pytest.mark.slow
def test_an_owner_that_is_killed(three: list[QuickBridge], script: Script, far: Phone) -> None:
    """D35, D38, D46: within its lease another process ends the stream, rejects what was pending and
    pauses the sessions; resumed there, no prompt is sent twice; what its agent had started is gone
    at the latest when that bridge comes back, which takes nothing that is not its own.
    """
    first, second, killed = three
    script.assert_gone()
    near = Phone(killed.port, first.pairing().token).ready()
    asking, speaking = sids = begin(killed, near), begin(killed, near, agent="plain")
    ask(near, asking, "remember this")
    call_id = asked(near, asking, '/tool Bash {"command": "make test"}')
    ask(near, speaking, "/spawn")
    say(near, speaking, "/rate z 1200 20")
    for sid in sids:
        far.join(sid)
    far.expect("stream_chunk", session_id=speaking)
    agents = {pid for pid, command in script.processes().items() if " plain " in command}
    killed.kill_all()
    near.vanish()
    for sid in sids:
        wait_status(second, sid, "paused")
    assert not agents & script.processes().keys(), "the agent has ended with its bridge"
    told = far.expect("notification", session_id=asking, notification_type="approval_decided")
    decided = told["payload"]["data"]
    assert decided == decided | {"tool_call_id": call_id, "decision": "rejected"}
    assert decided["reason"] == "session_paused"
    for sid in sids:
        far.expect("stream_end", session_id=sid, finish_reason="error")
        assert resume(first, far, sid)["type"] == "session_ready"
    kept = [one for one in log_of(far, speaking) if one["type"] == "stream_end"]
    ends = [one["payload"]["finish_reason"] for one in kept]
    assert ends == ["stop", "error"], "the turn that was cut has one end"
    assert "6 characters" in words(ask(far, speaking, "onward"))
    assert script.prompts().count("/rate z 1200 20") == 1
    assert words(ask(far, asking, "on another process")).endswith("on another process")
    assert len([m for m in log_of(far, asking) if m["type"] == "approval_required"]) == 1
    killed.start()
    wait_until(lambda: len(script.processes()) == 1)
    assert "10 characters" in words(ask(far, speaking, "still here"))
    assert [status(killed, sid) for sid in sids] == ["active"] * 2
    for sid in sids:
        end(far, sid)
    script.assert_gone()


# last, when all other sessions are no more
@pytest.mark.slow
def test_limits_and_grace_hold_across(pair: Pair, near: Phone, far: Phone) -> None:
    first, second = pair
    kept = [begin(first, near), begin(first, near), begin(second, far)]
    one_more = send_start(far, first.root, None, "plain")
    assert_refused(far.answer_to(one_more), "SESS_LIMIT_REACHED", True)
    far.join(kept[0])
    near.vanish()
    far.expect("session_end", session_id=kept[1], reason="timeout")
    assert [status(first, sid) for sid in (kept[0], kept[2])] == ["active", "active"]
    for sid in (kept[0], kept[2]):
        end(far, sid)


def test_a_decision_reaches_the_hook_that_another_process_holds(
    pair: Pair, near: Phone, far: Phone, tmp_path: Path
) -> None:
    """The hook waits at the process whose spool it reports to (D66)."""
    sid = new_session()
    agent = Terminal(pair[0].data, sid, str(pair[0].root), tmp_path / "home")
    try:
        dialog = agent.asks("Bash", {"command": "ls"})
        near.expect("session_started", session_id=sid)
        far.expect("session_started", session_id=sid)
        far.join(sid)
        question = far.expect("approval_required", session_id=sid)["payload"]
        assert question["answerable"] is True
        recorded = decide(far, sid, question["tool_call_id"], "approved")["payload"]
        assert recorded["forwarded"] is True
        assert dialog.answer() == {"behavior": "allow"}
    finally:
        agent.kill()
