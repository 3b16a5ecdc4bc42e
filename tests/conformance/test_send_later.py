"""Messages that wait for a time, and what may have happened until then (D71)."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge_project.protocol.types import now_text
from tests.conformance.agent_tools import Script, bridge_of, quick_bridge, script_of, wait_status
from tests.conformance.agents import ask, begin, end, resume, start
from tests.conformance.approvals import assert_refused
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.test_agent_news import until_state, withdraw
from tests.faults.clock import ClockBridge
from tests.faults.quick import with_limits
from tests.servers import wait_until

pytestmark = [pytest.mark.spec("ws.message"), pytest.mark.slow]
QUICK = with_limits(
    LATER_CHECK_SECONDS=0.1,
    LATER_LATE_SECONDS=0.5,
    LATER_RETRY_SECONDS=0.2,
    LATER_RETRIES_SECONDS=1,
)
script = script_of("plain")
bridge = bridge_of(first=QUICK, BRIDGE_MAX_SESSIONS="1")


@pytest.fixture
def session(bridge: Bridge, phone: Phone) -> Iterator[str]:
    session_id = begin(bridge, phone, agent="plain")
    yield session_id
    resume(bridge, phone, session_id)  # joined, on whatever connection
    end(phone, session_id)


def in_seconds(seconds: float) -> str:
    return now_text(datetime.now(UTC) + timedelta(seconds=seconds))


def say_later(phone: Phone, session_id: str, content: str, not_before: str) -> str:
    about = {"session_id": session_id, "content": content, "role": "user"}
    return phone.send("message", about | {"not_before": not_before})


def test_a_message_for_later(phone: Phone, script: Script, session: str) -> None:
    """It is shown with its time, lets others pass, and is given once; one of before at once."""
    sent = say_later(phone, session, "for later", in_seconds(3))
    shown: Any = phone.expect("agent_event", session_id=session)["payload"]["payload"]
    assert shown["queued"] and shown["not_before"]
    ask(phone, session, "at once")
    assert until_state(phone, session, sent, "given") == ["queued", "given"]
    assert script.prompts()[-2:] == ["at once", "for later"]
    before = say_later(phone, session, "of before", in_seconds(-60))
    assert until_state(phone, session, before, "given")[-1] == "given"


def test_times_that_no_message_can_wait_for(phone: Phone, session: str) -> None:
    for wrong in (in_seconds(366 * 86_400), in_seconds(7 * 86_400 + 60), "limit_reset", "soon"):
        answer = phone.answer_to(say_later(phone, session, "never", wrong))
        assert_refused(answer, "PROTO_INVALID_MESSAGE", True)


def test_a_message_for_the_end_of_a_limit(phone: Phone, session: str) -> None:
    ends = time.time() + 4
    limit = {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": ends}
    meta = {"_claude/rateLimit": limit}
    ask(phone, session, f"/do update('usage_update', used=1, size=9, _meta={meta})")
    sent = say_later(phone, session, "when it ends", "limit_reset")
    assert until_state(phone, session, sent, "given") == ["queued", "given"]
    assert time.time() >= ends - 0.01


def test_one_that_is_withdrawn_and_one_of_a_revoked_device(
    bridge: Bridge, phone: Phone, script: Script, session: str
) -> None:
    pairing = bridge.pairing()
    thief = bridge.phone(pairing).ready()
    thief.join(session)
    gone = say_later(phone, session, "taken back", in_seconds(3600))
    stolen = say_later(thief, session, "of the thief", in_seconds(3600))
    until_state(phone, session, stolen, "queued")
    assert withdraw(phone, session, gone) == "withdrawn"
    bridge.manage("revoke_device", pairing.name)
    assert until_state(phone, session, stolen, "withdrawn") == ["queued", "withdrawn"]
    assert until_state(phone, session, gone, "withdrawn")[0] == "queued"


def test_a_bridge_that_is_down_at_that_time(
    bridge: Bridge, phone: Phone, script: Script, session: str
) -> None:
    """It goes on with the paused session, gives the message once, and says that it was late."""
    due = time.time() + 1
    sent = say_later(phone, session, "while you slept", in_seconds(1))
    until_state(phone, session, sent, "queued")
    bridge.kill()
    wait_until(lambda: time.time() > due + 1)
    bridge.start()
    phone.ready()
    assert until_state(phone, session, sent, "given")[-1] == "given"
    phone.expect("notification", title="A message was sent late")
    resume(bridge, phone, session)
    ask(phone, session, "onward")
    assert script.prompts().count("while you slept") == 1


def test_a_session_that_the_grace_timer_closed(tmp_path: Path, script: Script) -> None:
    """It is opened again at that time, with what was said before (D60)."""
    grace = {"BRIDGE_SESSION_GRACE_SECONDS": "1"}
    with quick_bridge(tmp_path, script, first=QUICK, **grace) as bridge:
        bridge.pin = bridge.pairing().pin
        with bridge.phones() as (other,):
            with bridge.phones() as (phone,):
                session = begin(bridge, phone, agent="plain")
                ask(phone, session, "before")
                sent = say_later(phone, session, "after the grace", in_seconds(6))
                until_state(other, session, sent, "queued")
            wait_status(bridge, session, "closed")
            assert until_state(other, session, sent, "given")[-1] == "given"
            wait_status(bridge, session, "active")
            assert script.prompts()[-2:] == ["before", "after the grace"]


def test_a_full_house(bridge: Bridge, phone: Phone, session: str) -> None:
    """It is tried again for a while, then refused, with a notice."""
    bridge.restart("kill")
    phone.ready()
    wait_status(bridge, session, "paused")
    other = begin(bridge, phone, agent="plain")
    start(phone, bridge.root, session)
    due = time.time() + 1
    sent = say_later(phone, session, "no room", in_seconds(1))
    assert until_state(phone, session, sent, "refused")[-1] == "refused"
    assert time.time() > due + 1, "LATER_RETRIES_SECONDS"
    notice = phone.expect("notification", title="A message was not sent")
    assert "sessions run already" in notice["payload"]["body"]
    end(phone, other)


def test_a_clock_that_jumps(tmp_path: Path) -> None:
    """A clock that is set forward sends nothing early; what is said after that is in time."""
    with ClockBridge(tmp_path) as bridge:
        phone = bridge.phone().ready()
        session = begin(bridge, phone)
        early = say_later(phone, session, "in an hour", in_seconds(3600))
        until_state(phone, session, early, "queued")
        bridge.set(7200)
        sent = say_later(phone, session, "soon", in_seconds(7201))
        until_state(phone, session, sent, "given")
        assert until_state(phone, session, early, "queued") == ["queued"]
