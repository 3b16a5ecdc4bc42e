"""Sessions that the bridge runs, on several processes: a socket anywhere reaches the agent, and a dead owner is noticed (D35, D38, D46)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.agents import ask, begin, end, log_of, say, start, tool, words
from tests.conformance.approvals import assert_refused, decide, of
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone
from tests.servers import Postgres, Redis

pytestmark = pytest.mark.spec("processes")

GRACE = 3
LEASE = 15


@pytest.fixture(scope="module")
def pair(make_bridge: Callable[..., Bridge], postgres_server: Postgres, redis_server: Redis) -> Iterator[tuple[Bridge, Bridge]]:
    """Two processes with data directories of their own, the same tokens, roots, database and Redis."""
    more = {"database_url": postgres_server.create_database(), "redis_url": redis_server.url}
    more |= {"BRIDGE_SESSION_GRACE_SECONDS": str(GRACE), "BRIDGE_MAX_SESSIONS": "3"}
    first = make_bridge("first-agents", **more)
    tokens = {"BRIDGE_HOOK_TOKEN": first.hook_token, "BRIDGE_ADMIN_TOKEN": first.admin_token, "BRIDGE_ALLOWED_ROOTS": str(first.root)}
    second = make_bridge("second-agents", **tokens, **more)
    second.root = first.root
    yield first, second
    for bridge in (first, second):
        if bridge.process is not None and bridge.process.poll() is None:
            bridge.stop()


@pytest.fixture(autouse=True)
def hang_up(pair: tuple[Bridge, Bridge]) -> Iterator[None]:
    """A test that fails leaves no connection to the next one."""
    yield
    for bridge in pair:
        bridge.hang_up()


def on(bridge: Bridge, token: str) -> Phone:
    """A ready phone that does not check the pin: each process has its own certificate here."""
    phone = Phone(bridge.port, token, None)
    bridge.called.append(phone)
    return phone.ready()


def test_a_phone_on_the_other_process(pair: tuple[Bridge, Bridge]) -> None:
    """Issue: commands from a socket on another process reach the agent: joined, talked to, interrupted, ended from there."""
    first, second = pair
    near, far = on(first, first.pairing().token), on(second, first.pairing().token)
    sid = begin(first, near)
    seen = ask(near, sid, "from the owner's process")
    far.join(sid)
    assert far.expect("replay_buffer", session_id=sid)["payload"]["messages"] == seen
    assert words(ask(far, sid, "from the other process")).endswith("from the other process")
    near.expect("stream_end", session_id=sid)
    far.untaken.clear()
    say(near, sid, "/sleep 60")
    far.expect("stream_chunk", session_id=sid)
    far.send("session_interrupt", {"session_id": sid})
    far.collect(
        lambda: [m["payload"]["finish_reason"] for m in of(far, "stream_end", sid)][-1:] == ["stop"] and len(of(far, "stream_end", sid)) == 2, "the end"
    )
    end(far, sid)
    near.expect("session_end", session_id=sid)
    assert second.session(sid)["status"] == "closed"


def test_an_approval_from_the_other_process(pair: tuple[Bridge, Bridge]) -> None:
    """Issue: an approval answered from a second phone, on another process, after the first phone has vanished."""
    first, second = pair
    near = on(first, first.pairing().token)
    sid = begin(first, near)
    call_id = tool(near, sid)["tool_call_id"]
    near.vanish()
    far = on(second, first.pairing().token)
    far.expect("approval_required", session_id=sid, tool_call_id=call_id)
    assert decide(far, sid, call_id, "approved")["payload"]["forwarded"] is True
    far.join(sid)
    eventually(lambda: [message for message in log_of(far, sid) if message["type"] == "tool_result"])
    end(far, sid)


def test_limits_and_grace_hold_across(pair: tuple[Bridge, Bridge]) -> None:
    """D36, D46: sessions count on all processes; somebody who watches on another process keeps a session alive."""
    first, second = pair
    near, far = on(first, first.pairing().token), on(second, first.pairing().token)
    kept = [begin(first, near), begin(first, near), begin(second, far)]
    assert_refused(start(far, first.root), "SESS_LIMIT_REACHED", True)
    far.join(kept[0])
    near.vanish()
    far.expect("session_end", session_id=kept[1], reason="timeout")
    assert [first.session(sid)["status"] for sid in (kept[0], kept[2])] == ["active", "active"]
    for sid in (kept[0], kept[2]):
        end(far, sid)


def test_a_dead_owner_is_noticed(pair: tuple[Bridge, Bridge]) -> None:
    """D35, D46: kill -9 of the owner: within its lease another process pauses what it held, and can resume it; the old one cannot come back to it."""
    first, second = pair
    token = first.pairing().token
    near, far = on(first, token), on(second, first.pairing().token)
    sid = begin(first, near)
    ask(near, sid, "remember this")
    call_id = tool(near, sid)["tool_call_id"]
    far.join(sid)
    first.kill()
    died = time.monotonic()
    decided = far.expect("notification", 2 * LEASE, session_id=sid, notification_type="approval_decided")["payload"]["data"]
    assert (decided["tool_call_id"], decided["decision"], decided["reason"]) == (call_id, "rejected", "session_paused")
    assert second.session(sid)["status"] == "paused" and time.monotonic() - died < 2 * LEASE
    assert start(far, first.root, sid, resume=True)["type"] == "session_ready"
    assert words(ask(far, sid, "on another process")).endswith("on another process")
    first.start()
    assert second.session(sid)["status"] == "active", "D35: whoever comes back takes only what is still its own"
    end(far, sid)
