"""The bridge's clock is set forth and back by a year, or is not that of its second process."""

from pathlib import Path

import pytest

from tests.conformance.agents import ask, begin, words
from tests.conformance.approvals import decide, pre
from tests.conformance.samples import new_id, new_session, now, prompt
from tests.faults.clock import BusyClockBridge, ClockBridge
from tests.faults.quick import QuickBridge, bridge_of_module
from tests.servers import Postgres, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("other_clock")]

HOUR, YEAR = 3600.0, 365 * 86400.0

bridge = bridge_of_module(BusyClockBridge)


@pytest.mark.parametrize("ahead", [YEAR, -YEAR], ids=["year", "-year"])
def test_the_clock_jumps(bridge: BusyClockBridge, ahead: float) -> None:
    """D30, D31, D38: the jump makes nothing old: neither rows, nor what an agent of the bridge has
    said, nor an approval, nor an event's id.
    D15, D33: sockets and devices hold, and so does a revocation. D19, D55: certificates are good.
    """
    bridge.set(0)
    bridge.minted.clear()  # codes that nobody used are void after an hour
    sid, asked, repeated = new_session(), new_session(), new_id()
    away, here, gone = bridge.phone().ready(), bridge.phone().ready(), new_id()
    revoked = bridge.phone(bridge.mint("--name", gone)).ready()
    bridge.accept(prompt(sid, 0), pre(asked, approval=True, tool_call_id="call"))
    away.join(sid)
    away.close()
    here.join(sid)
    spoken = begin(bridge, here)
    ask(here, spoken, "before the jump")
    again = prompt(sid, 5, event_id=repeated)
    bridge.accept(*[prompt(sid, number) for number in range(1, 5)], again)
    bridge.manage("revoke_device", gone)
    bridge.set(ahead)
    bridge.do_chores(here)
    bridge.accept(*[one | {"timestamp": now(ahead)} for one in (again, prompt(sid, 6))])
    away.ready()
    away.wait_numbers(sid, range(7))
    away.join(spoken)
    replayed = away.expect("replay_buffer", session_id=spoken)["payload"]
    assert "before the jump" in words(replayed["messages"]) and replayed["complete"]
    away.join(asked)
    assert decide(away, asked, "call", "approved")["type"] == "approval_recorded"
    away.close()

    def counted() -> bool:
        here.ping()
        body = prompt(sid, new_id(), timestamp=now(ahead))
        return bool(bridge.accept(body)[0]["broadcast_count"] == 1)

    wait_until(counted, "the phone that is there is counted")
    here.collect(lambda: 6 in here.numbers(sid), "what came after the jump")
    assert [one for one in here.numbers(sid) if isinstance(one, int)] == list(range(7))
    here.again().close()
    assert revoked.connect().auth()["type"] == "connection_error"
    for moved in (ahead, 0.0):
        bridge.set(moved)
        wait_until(lambda moved=moved: bridge.certificates_are_good(moved))
    bridge.phone().ready().close()


def test_a_code_that_was_minted_by_another_clock(bridge: BusyClockBridge) -> None:
    """D15: it is good neither after its time nor long before it; a new one is."""
    codes = []
    for ahead in (-HOUR, YEAR):
        bridge.set(ahead)
        codes.append(bridge.mint("--name", new_id()))
    bridge.set(0)
    bridge.do_chores()
    for code in codes:
        assert bridge.phone(code).connect().auth()["type"] == "connection_error"
    bridge.phone(bridge.mint("--name", new_id())).ready().close()


def test_two_hosts_whose_clocks_differ(postgres_server: Postgres, tmp_path: Path) -> None:
    """D33, D46: they are one bridge, and neither takes the other's leases for over."""
    sid, url = new_session(), postgres_server.create_database()
    with QuickBridge(tmp_path / "right", database_url=url) as right:
        right.accept(prompt(sid, 0))
        right.phone().ready().join(sid)
        ahead = ClockBridge(tmp_path, **right.shared)
        ahead.set(HOUR)

        def counts() -> list[int]:
            """How many connections have joined the session, as each of the two says."""
            there = prompt(sid, 0, timestamp=now(ahead.ahead))
            answers = right.accept(prompt(sid, 0)) + ahead.accept(there)
            return [answer["broadcast_count"] for answer in answers]

        with ahead:
            assert counts() == [1, 1], "the newcomer has taken the other's leases for over"
            ahead.phone().ready().join(sid)
            for _ in range(3):
                assert counts() == [2, 2]
